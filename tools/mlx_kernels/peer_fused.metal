// The tile that MLX takes for float32 on base M1 to M4.
#include "tools/mlx_kernels/fused.h"

FUSED_LAYOUT(nn, false, false, float32, float, 64, 64, 16, 2, 2)
