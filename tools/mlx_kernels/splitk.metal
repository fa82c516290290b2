#include "tools/mlx_kernels/splitk.h"

// Every tile in one layout, one of them in all layouts.
#define SPLITK_ALL(DTYPE, T)                      \
  SPLITK_TILE(nn, false, false, DTYPE, T, 16, 16) \
  SPLITK_TILE(nt, false, true, DTYPE, T, 16, 32)  \
  SPLITK_TILE(tn, true, false, DTYPE, T, 32, 16)  \
  SPLITK_TILE(nn, false, false, DTYPE, T, 32, 32) \
  SPLITK_TILE(nt, false, true, DTYPE, T, 32, 32)  \
  SPLITK_TILE(tn, true, false, DTYPE, T, 32, 32)  \
  SPLITK_TILE(tt, true, true, DTYPE, T, 32, 32)   \
  SPLITK_ACCUMULATE(DTYPE, T)

SPLITK_ALL(float32, float)
SPLITK_ALL(float16, half)
SPLITK_ALL(bfloat16, bfloat)
