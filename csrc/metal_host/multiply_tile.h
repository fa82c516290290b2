// The product behind matmul2d::run: packing, type conversion and the choice of a micro-kernel.
#pragma once

#include <cstddef>
#include <functional>

#include "csrc/metal_host/runtime.h"

namespace metal_host {

constexpr size_t element_bytes(Element element) { return element == Element::float32 ? 4 : 2; }

// D[rows, cols] (+)= A[m, k] B[k, n]; rows and columns of D past m and n get zeros, as if the operands continued so.
struct TileProduct {
  const MatmulCall& call;
  int m = 0;
  int n = 0;
  int k = 0;
  int rows = 0;
  int cols = 0;
};

// Called for every contiguous run of operand or destination memory that the product touches.
using AccessObserver = std::function<void(const void* data, size_t bytes, bool write)>;

void multiply_tile(const TileProduct& product, const AccessObserver& observer);

// Name of the instruction set that the micro-kernel was chosen for.
const char* micro_kernel_isa();

}  // namespace metal_host
