#include "tools/mlx_kernels/nax.h"

NAX(bfloat16, bfloat)
