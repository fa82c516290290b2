// Errors that a user meets: "[mlx_gemm.matmul] expected ..., got a=(2,3) b=(4,5)".
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "mlx/utils.h"  // prints shapes and dtypes

namespace mlx_gemm {

template <class... Parts>
std::string error_text(std::string_view op, const Parts&... parts) {
  using mlx::core::operator<<;
  std::ostringstream text;
  text << "[mlx_gemm." << op << "] ";
  (text << ... << parts);
  return text.str();
}

// A wrong argument: ValueError in Python.
template <class... Parts>
[[noreturn]] void reject(std::string_view op, const Parts&... parts) {
  throw std::invalid_argument(error_text(op, parts...));
}

}  // namespace mlx_gemm
