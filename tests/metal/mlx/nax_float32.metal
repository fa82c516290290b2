#include "tests/metal/mlx/nax.h"

NAX(float32, float)
