#include "tests/metal/mlx/nax.h"

NAX(bfloat16, bfloat)
