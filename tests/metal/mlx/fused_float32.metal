#include "tests/metal/mlx/fused.h"

FUSED(float32, float)
