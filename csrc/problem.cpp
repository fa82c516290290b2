#include "csrc/problem.h"

namespace mlx_gemm {

int64_t a_extent(const Problem& problem) {
  return a_transposed(problem.layout) ? (problem.K - 1) * problem.lda + problem.M
                                      : (problem.M - 1) * problem.lda + problem.K;
}

int64_t b_extent(const Problem& problem) {
  return b_transposed(problem.layout) ? (problem.N - 1) * problem.ldb + problem.K
                                      : (problem.K - 1) * problem.ldb + problem.N;
}

int64_t c_extent(const Problem& problem) { return problem.M * problem.N; }

int64_t bytes_per_element(Dtype dtype) {
  switch (dtype) {
    case Dtype::float16:
    case Dtype::bfloat16:
      return 2;
    case Dtype::float32:
      return 4;
    case Dtype::float64:
    case Dtype::complex64:
      return 8;
  }
  return 0;
}

const char* to_string(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32:
      return "float32";
    case Dtype::float16:
      return "float16";
    case Dtype::bfloat16:
      return "bfloat16";
    case Dtype::float64:
      return "float64";
    case Dtype::complex64:
      return "complex64";
  }
  return "?";
}

const char* to_string(Layout layout) {
  switch (layout) {
    case Layout::nn:
      return "nn";
    case Layout::nt:
      return "nt";
    case Layout::tn:
      return "tn";
    case Layout::tt:
      return "tt";
  }
  return "?";
}

const char* to_string(Backend backend) {
  switch (backend) {
    case Backend::cpu:
      return "cpu";
    case Backend::metal:
      return "metal";
    case Backend::cuda:
      return "cuda";
  }
  return "?";
}

std::string describe(const Problem& problem) {
  std::string text =
      "M=" + std::to_string(problem.M) + " N=" + std::to_string(problem.N) + " K=" + std::to_string(problem.K);
  if (problem.batch != 1) {
    text += " batch=" + std::to_string(problem.batch);
  }
  return text + " " + to_string(problem.layout) + " " + to_string(problem.dtype);
}

}  // namespace mlx_gemm
