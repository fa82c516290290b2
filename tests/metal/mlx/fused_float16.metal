#include "tests/metal/mlx/fused.h"

FUSED(float16, half)
