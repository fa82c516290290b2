// Metal source of the kernels, held by the extension and compiled at run time.
#pragma once

#include <string>
#include <string_view>

namespace mlx_gemm {

// A complete Metal file that instantiates this kernel and no other; empty when there is none.
std::string kernel_source(std::string_view kernel);

}  // namespace mlx_gemm
