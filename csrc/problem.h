// Value types that describe a GEMM and the device it runs on. Pure C++: no MLX arrays, no Metal.
#pragma once

#include <cstdint>
#include <string>

namespace mlx_gemm {

enum class Dtype { float32, float16, bfloat16, float64, complex64 };

// How A and B lie in memory: rows contiguous (n), or columns contiguous (t, the transpose of a row-major matrix).
enum class Layout { nn, nt, tn, tt };

constexpr bool a_transposed(Layout layout) { return layout == Layout::tn || layout == Layout::tt; }
constexpr bool b_transposed(Layout layout) { return layout == Layout::nt || layout == Layout::tt; }
constexpr Layout make_layout(bool a_transposed, bool b_transposed) {
  if (a_transposed) {
    return b_transposed ? Layout::tt : Layout::tn;
  }
  return b_transposed ? Layout::nt : Layout::nn;
}

// C[M, N] = A[M, K] B[K, N], `batch` times. Leading dimensions count elements.
struct Problem {
  int64_t M = 0;
  int64_t N = 0;
  int64_t K = 0;
  int64_t lda = 0;
  int64_t ldb = 0;
  int64_t batch = 1;
  Layout layout = Layout::nn;
  Dtype dtype = Dtype::float32;  // of A and B
  Dtype out = Dtype::float32;    // of C
  bool fuses = false;            // with an activation or a residual, which mx.addmm has not
};

// Elements from the first to the last one of an operand, both included. C is row-contiguous.
int64_t a_extent(const Problem& problem);
int64_t b_extent(const Problem& problem);
int64_t c_extent(const Problem& problem);

int64_t bytes_per_element(Dtype dtype);

enum class Backend { cpu, metal, cuda };

struct DeviceTraits {
  Backend backend = Backend::cpu;
  std::string architecture;  // "applegpu_g17g"; empty on a CPU
  int generation = 0;        // 13 = M1 ... 17 = M5; 0 on a CPU
  int os = 0;                // macOS version, 100*major + minor; 0 elsewhere
  int64_t memory = 0;        // bytes; 0 where nobody asked
  int mlx_os = 0;            // macOS that libmlx was built for, as above; 0 where that is not known
  bool blas = false;         // a BLAS was found for CPU streams
  bool tf32_enabled = true;  // MLX_ENABLE_TF32
  bool tf32 = false;         // mx.matmul multiplies float32 at TF32 precision here
};

const char* to_string(Dtype dtype);
const char* to_string(Layout layout);
const char* to_string(Backend backend);

// "M=64 N=64 K=256 nn float32", for messages.
std::string describe(const Problem& problem);

}  // namespace mlx_gemm
