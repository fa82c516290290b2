#include "tools/mlx_kernels/fused.h"

FUSED(bfloat16, bfloat)
