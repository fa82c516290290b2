#include "tests/metal/mlx/nax.h"

NAX(float16, half)
