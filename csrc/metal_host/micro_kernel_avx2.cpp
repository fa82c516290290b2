#include "csrc/metal_host/micro_kernel.h"

namespace metal_host {

void micro_kernel_avx2(const MicroTile& tile) { multiply_panel<8, 6, 2>(tile); }

}  // namespace metal_host
