// Products that CPU streams still have to compute.
#pragma once

namespace mlx_gemm {

// One product, from when its op is evaluated until the stream's thread has computed it.
void add_pending_product();
void remove_pending_product();

// Returns when no stream has a product left to compute, or after a minute.
void wait_for_pending_products();

}  // namespace mlx_gemm
