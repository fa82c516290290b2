#include "csrc/backends/cpu/blas.h"

#include <dlfcn.h>

#include <atomic>
#include <complex>
#include <stdexcept>
#include <type_traits>

#include "csrc/counters.h"

namespace mlx_gemm {
namespace {

// Values of CBLAS_ORDER and CBLAS_TRANSPOSE in cblas.h.
enum CblasOrder { kRowMajor = 101 };
enum CblasTranspose { kNoTrans = 111, kTrans = 112 };

using Complex = std::complex<float>;

// BLAS takes real factors by value and complex ones by address.
template <class T>
using Factor = std::conditional_t<std::is_same_v<T, Complex>, const T*, T>;

template <class T>
Factor<T> factor(const T& value) {
  if constexpr (std::is_same_v<T, Complex>) {
    return &value;
  } else {
    return value;
  }
}

template <class T>
struct BlasFunctions {
  void (*gemm)(int order, int trans_a, int trans_b, int m, int n, int k, Factor<T> alpha, const T* a, int lda,
               const T* b, int ldb, Factor<T> beta, T* c, int ldc);
  void (*gemv)(int order, int trans, int m, int n, Factor<T> alpha, const T* a, int lda, const T* x, int incx,
               Factor<T> beta, T* y, int incy);
};

struct Blas {
  BlasFunctions<float> real;
  BlasFunctions<double> real64;
  BlasFunctions<Complex> complex;
  char* (*get_config)();
};

std::atomic<const Blas*> loaded_blas = nullptr;

template <class Function>
void find_symbol(void* library, const std::string& name, Function& function) {
  void* address = dlsym(library, name.c_str());
  if (address == nullptr) {
    throw std::runtime_error(dlerror());
  }
  function = reinterpret_cast<Function>(address);
}

template <class T>
void find_functions(void* library, const std::string& prefix, BlasFunctions<T>& functions) {
  find_symbol(library, prefix + "gemm", functions.gemm);
  find_symbol(library, prefix + "gemv", functions.gemv);
}

Blas find_blas(void* library) {
  Blas blas;
  find_functions(library, "scipy_cblas_s", blas.real);
  find_functions(library, "scipy_cblas_d", blas.real64);
  find_functions(library, "scipy_cblas_c", blas.complex);
  find_symbol(library, "scipy_openblas_get_config", blas.get_config);
  // Its own threads spin while they wait for each other, and one product at a time may use them.
  void (*set_num_threads)(int);
  find_symbol(library, "scipy_openblas_set_num_threads", set_num_threads);
  set_num_threads(1);
  return blas;
}

struct Vector {
  const void* data;
  int64_t step;
};

// y (+)= alpha op(m) x, where op is the transpose or nothing.
template <class T>
void gemv(const BlasFunctions<T>& blas, const BlasProduct& p, const BlasMatrix& m, bool transpose, const Vector& x,
          int64_t y_step) {
  const int64_t outputs = p.M * p.N;  // one of them is 1
  const int rows = static_cast<int>(transpose ? p.K : outputs);
  const int columns = static_cast<int>(transpose ? outputs : p.K);
  const T alpha = p.alpha;
  const T beta = p.accumulate ? 1.0f : 0.0f;
  blas.gemv(kRowMajor, transpose ? kTrans : kNoTrans, rows, columns, factor(alpha), static_cast<const T*>(m.data),
            static_cast<int>(m.ld), static_cast<const T*>(x.data), static_cast<int>(x.step), factor(beta),
            static_cast<T*>(p.c), static_cast<int>(y_step));
}

template <class T>
void gemm(const BlasFunctions<T>& blas, const BlasProduct& p) {
  const T alpha = p.alpha;
  const T beta = p.accumulate ? 1.0f : 0.0f;
  blas.gemm(kRowMajor, p.a.transposed ? kTrans : kNoTrans, p.b.transposed ? kTrans : kNoTrans, static_cast<int>(p.M),
            static_cast<int>(p.N), static_cast<int>(p.K), factor(alpha), static_cast<const T*>(p.a.data),
            static_cast<int>(p.a.ld), static_cast<const T*>(p.b.data), static_cast<int>(p.b.ld), factor(beta),
            static_cast<T*>(p.c), static_cast<int>(p.ldc));
}

template <class T>
void multiply(const BlasFunctions<T>& blas, const BlasProduct& p) {
  // With one row or column gemm takes several times as long as gemv, which streams the matrix once.
  if (p.N == 1) {
    gemv(blas, p, p.a, p.a.transposed, {p.b.data, p.b.transposed ? 1 : p.b.ld}, p.ldc);
  } else if (p.M == 1) {
    gemv(blas, p, p.b, !p.b.transposed, {p.a.data, p.a.transposed ? p.a.ld : 1}, 1);
  } else {
    gemm(blas, p);
  }
}

}  // namespace

void load_blas(const std::string& path) {
  // Local: the symbols must not meet those of another OpenBLAS in the process.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error(dlerror());
  }
  static const Blas blas = find_blas(library);
  loaded_blas = &blas;
}

bool blas_loaded() { return loaded_blas != nullptr; }

std::string blas_config() {
  const Blas* blas = loaded_blas;
  return blas == nullptr ? "" : blas->get_config();
}

void blas_gemm(const BlasProduct& product) {
  ++counters().blas_calls;
  const Blas& blas = *loaded_blas;
  switch (product.dtype) {
    case Dtype::float64:
      return multiply(blas.real64, product);
    case Dtype::complex64:
      return multiply(blas.complex, product);
    default:
      return multiply(blas.real, product);
  }
}

}  // namespace mlx_gemm
