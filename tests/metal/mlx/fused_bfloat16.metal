#include "tests/metal/mlx/fused.h"

FUSED(bfloat16, bfloat)
