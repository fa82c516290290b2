// Which of this CPU's instruction sets the CPU backend uses.
#pragma once

namespace mlx_gemm {

// Each includes those before it.
enum class Isa {
  portable,     // vectors of four floats, which every 64-bit CPU has
  avx2,         // with FMA and F16C
  avx512,       // F, BW, DQ and VL
  avx512_bf16,  // products of bfloat16 pairs
  amx,          // products of bfloat16 tiles
};

// The best that this CPU and its operating system offer, or what MLX_GEMM_ISA lowers it to. Throws
// std::invalid_argument where that variable names none of them.
Isa cpu_isa();

const char* to_string(Isa isa);

}  // namespace mlx_gemm
