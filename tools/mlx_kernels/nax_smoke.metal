// Two kernels that compile in seconds.
#include "tools/mlx_kernels/nax.h"

NAX_LAYOUT(nt, false, true, float16, half, 64, 64, 256, 2, 2)
NAX_LAYOUT(tn, true, false, float32, float, 64, 64, 256, 2, 2)
