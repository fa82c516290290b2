#include "csrc/backends/cpu/isa.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mlx_gemm {
namespace {

constexpr Isa kAll[] = {Isa::portable, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};

#if defined(__x86_64__) && defined(__linux__)
// Linux gives a process the tile registers only when it asks.
bool may_use_tiles() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_amx_bf16() {
  constexpr unsigned kAmxBf16 = 1u << 22;
  constexpr unsigned kAmxTile = 1u << 24;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAmxBf16) != 0 && (edx & kAmxTile) != 0;
}

Isa detected() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (!avx2) {
    return Isa::portable;
  }
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) {
    return Isa::avx2;
  }
  if (!__builtin_cpu_supports("avx512bf16")) {
    return Isa::avx512;
  }
  return has_amx_bf16() ? Isa::amx : Isa::avx512_bf16;
}
#else
Isa detected() { return Isa::portable; }
#endif

Isa highest_allowed() {
  const char* name = std::getenv("MLX_GEMM_ISA");
  if (name == nullptr) {
    return Isa::amx;
  }
  std::string known;
  for (const Isa isa : kAll) {
    if (std::string(name) == to_string(isa)) {
      return isa;
    }
    known += std::string(known.empty() ? "" : ", ") + to_string(isa);
  }
  throw std::invalid_argument("MLX_GEMM_ISA must be one of " + known + ", got '" + name + "'");
}

Isa chosen() {
  const Isa isa = std::min(detected(), highest_allowed());
#if defined(__x86_64__) && defined(__linux__)
  if (isa == Isa::amx && !may_use_tiles()) {
    return Isa::avx512_bf16;
  }
#endif
  return isa;
}

}  // namespace

Isa cpu_isa() {
  static const Isa isa = chosen();
  return isa;
}

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return "portable";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512_bf16";
    case Isa::amx:
      return "amx";
  }
  return "?";
}

}  // namespace mlx_gemm
