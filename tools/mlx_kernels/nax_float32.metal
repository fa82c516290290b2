#include "tools/mlx_kernels/nax.h"

NAX(float32, float)
