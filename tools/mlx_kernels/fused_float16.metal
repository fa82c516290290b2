#include "tools/mlx_kernels/fused.h"

FUSED(float16, half)
