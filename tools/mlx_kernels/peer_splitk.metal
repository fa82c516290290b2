// The tile that MLX takes for float32 from 40 rows and columns on.
#include "tools/mlx_kernels/splitk.h"

SPLITK_TILE(nn, false, false, float32, float, 32, 32)
SPLITK_ACCUMULATE(float32, float)
