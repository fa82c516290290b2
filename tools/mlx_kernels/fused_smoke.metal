// Two kernels that compile in seconds.
#include "tools/mlx_kernels/fused.h"

FUSED_LAYOUT(nt, false, true, float32, float, 32, 32, 16, 2, 2)
FUSED_LAYOUT(tn, true, false, bfloat16, bfloat, 32, 32, 16, 2, 2)
