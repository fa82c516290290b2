// gemv and gemv_t of MLX, from the headers of the installed package.
#include "mlx/backend/metal/kernels/gemv.h"

#define GEMV_CASE(FN, DTYPE, T, BM, BN, SM, SN, TM, TN, NC, AXPBY)                                                  \
  instantiate_kernel(                                                                                               \
      #FN "_" #DTYPE "_" #BM "_" #BN "_" #SM "_" #SN "_" #TM "_" #TN "_" #NC "_" #AXPBY, FN, T, BM, BN, SM, SN, TM, \
      TN, NC, AXPBY)

#define GEMV_TILE(...)         \
  GEMV_CASE(__VA_ARGS__, 0, 0) \
  GEMV_CASE(__VA_ARGS__, 0, 1) \
  GEMV_CASE(__VA_ARGS__, 1, 1)

#define GEMV(DTYPE, T)                           \
  GEMV_TILE(gemv, DTYPE, T, 1, 8, 1, 32, 4, 4)   \
  GEMV_TILE(gemv, DTYPE, T, 1, 8, 1, 32, 1, 4)   \
  GEMV_TILE(gemv, DTYPE, T, 1, 1, 8, 4, 4, 4)    \
  GEMV_TILE(gemv, DTYPE, T, 1, 1, 8, 4, 1, 4)    \
  GEMV_TILE(gemv, DTYPE, T, 4, 1, 1, 32, 1, 4)   \
  GEMV_TILE(gemv, DTYPE, T, 4, 1, 1, 32, 4, 4)   \
  GEMV_TILE(gemv, DTYPE, T, 8, 1, 1, 32, 4, 4)   \
  GEMV_TILE(gemv_t, DTYPE, T, 1, 2, 8, 4, 4, 1)  \
  GEMV_TILE(gemv_t, DTYPE, T, 1, 2, 8, 4, 4, 4)  \
  GEMV_TILE(gemv_t, DTYPE, T, 1, 4, 8, 4, 4, 4)  \
  GEMV_TILE(gemv_t, DTYPE, T, 1, 16, 8, 4, 4, 4) \
  GEMV_TILE(gemv_t, DTYPE, T, 1, 16, 4, 8, 4, 4)

GEMV(float32, float)
GEMV(float16, half)
GEMV(bfloat16, bfloat)
