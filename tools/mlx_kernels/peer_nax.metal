// The tiles that MLX takes for float32 on the base M5, and on larger ones.
#include "tools/mlx_kernels/nax.h"

NAX_LAYOUT(nn, false, false, float32, float, 128, 128, 512, 4, 4)
NAX_LAYOUT(nn, false, false, float32, float, 64, 128, 256, 2, 4)
