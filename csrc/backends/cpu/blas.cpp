#include "csrc/backends/cpu/blas.h"

#include <dlfcn.h>

#include <atomic>
#include <stdexcept>

#include "csrc/counters.h"

namespace mlx_gemm {
namespace {

// Values of CBLAS_ORDER and CBLAS_TRANSPOSE in cblas.h.
enum CblasOrder { kRowMajor = 101 };
enum CblasTranspose { kNoTrans = 111, kTrans = 112 };

using SgemmFunction = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a,
                               int lda, const float* b, int ldb, float beta, float* c, int ldc);

using SgemvFunction = void (*)(int order, int trans, int m, int n, float alpha, const float* a, int lda, const float* x,
                               int incx, float beta, float* y, int incy);

struct Blas {
  SgemmFunction sgemm;
  SgemvFunction sgemv;
  char* (*get_config)();
};

std::atomic<const Blas*> loaded_blas = nullptr;

template <class Function>
Function symbol(void* library, const char* name) {
  void* address = dlsym(library, name);
  if (address == nullptr) {
    throw std::runtime_error(dlerror());
  }
  return reinterpret_cast<Function>(address);
}

// A matrix as it is stored, row after row.
struct Stored {
  const float* data;
  int64_t rows;
  int64_t columns;
  int64_t ld;
  bool transposed;  // relative to its role in the product
};

struct Vector {
  const float* data;
  int64_t step;
};

Stored stored_a(const Problem& p, const float* a) {
  const bool t = a_transposed(p.layout);
  return {a, t ? p.K : p.M, t ? p.M : p.K, p.lda, t};
}

Stored stored_b(const Problem& p, const float* b) {
  const bool t = b_transposed(p.layout);
  return {b, t ? p.N : p.K, t ? p.K : p.N, p.ldb, t};
}

// y = alpha op(m) x, where op is the transpose or nothing. y is contiguous.
void gemv(const Stored& m, bool transpose, float alpha, const Vector& x, float* y) {
  loaded_blas.load()->sgemv(kRowMajor, transpose ? kTrans : kNoTrans, static_cast<int>(m.rows),
                            static_cast<int>(m.columns), alpha, m.data, static_cast<int>(m.ld), x.data,
                            static_cast<int>(x.step), 0.0f, y, 1);
}

void gemm(const Stored& a, const Stored& b, const Problem& p, float alpha, float* c) {
  const int m = static_cast<int>(p.M);
  const int n = static_cast<int>(p.N);
  const int k = static_cast<int>(p.K);
  loaded_blas.load()->sgemm(kRowMajor, a.transposed ? kTrans : kNoTrans, b.transposed ? kTrans : kNoTrans, m, n, k,
                            alpha, a.data, static_cast<int>(a.ld), b.data, static_cast<int>(b.ld), 0.0f, c, n);
}

}  // namespace

void load_blas(const std::string& path) {
  // Local: the symbols must not meet those of another OpenBLAS in the process.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error(dlerror());
  }
  static const Blas blas{
      .sgemm = symbol<SgemmFunction>(library, "scipy_cblas_sgemm"),
      .sgemv = symbol<SgemvFunction>(library, "scipy_cblas_sgemv"),
      .get_config = symbol<char* (*)()>(library, "scipy_openblas_get_config"),
  };
  loaded_blas = &blas;
}

bool blas_loaded() { return loaded_blas != nullptr; }

std::string blas_config() {
  const Blas* blas = loaded_blas;
  return blas == nullptr ? "" : blas->get_config();
}

void blas_gemm(const Problem& problem, float alpha, const float* a_data, const float* b_data, float* c) {
  ++counters().blas_calls;
  const Stored a = stored_a(problem, a_data);
  const Stored b = stored_b(problem, b_data);
  // With one row or column sgemm takes several times as long as sgemv, which streams the matrix once.
  if (problem.N == 1) {
    gemv(a, a.transposed, alpha, {b_data, b.transposed ? 1 : b.ld}, c);
  } else if (problem.M == 1) {
    gemv(b, !b.transposed, alpha, {a_data, a.transposed ? a.ld : 1}, c);
  } else {
    gemm(a, b, problem, alpha, c);
  }
}

}  // namespace mlx_gemm
