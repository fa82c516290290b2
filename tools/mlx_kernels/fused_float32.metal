#include "tools/mlx_kernels/fused.h"

FUSED(float32, float)
