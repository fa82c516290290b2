// The micro-kernels, one per instruction set.
#pragma once

namespace metal_host {

constexpr int kPanelColumns = 32;

// c[rows, 32] (+)= a[rows, k] b[k, 32]; b is packed, 32 values per k.
struct MicroTile {
  const float* a;
  long a_row;  // strides of a, in elements
  long a_k;
  const float* b;
  float* c;
  long ldc;
  int rows;
  int k;
  bool accumulate;
  const float* next;  // what the next call reads as b, brought closer meanwhile
};

using MicroKernel = void (*)(const MicroTile& tile);

void micro_kernel_portable(const MicroTile& tile);
#if defined(__x86_64__)
void micro_kernel_avx2(const MicroTile& tile);
void micro_kernel_avx512(const MicroTile& tile);
#endif

}  // namespace metal_host
