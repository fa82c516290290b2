#include "csrc/metal_host/micro_kernel.h"

namespace metal_host {

void micro_kernel_avx512(const MicroTile& tile) { multiply_panel<16, 12, 2>(tile); }

}  // namespace metal_host
