#include "tools/mlx_kernels/nax.h"

NAX(float16, half)
