#include "csrc/metal_host/kernel_table.h"

#include <vector>

namespace metal_host {

namespace {

// A function-local static, since registrations run during the initialisation of other files; never destroyed, since
// kernels may still run while the process exits.
std::vector<KernelEntry>& entries() {
  static auto* table = new std::vector<KernelEntry>;
  return *table;
}

}  // namespace

KernelRegistration::KernelRegistration(const KernelEntry& entry) { entries().push_back(entry); }

const KernelEntry* find_kernel(std::string_view name, uint32_t lanes) {
  for (const KernelEntry& entry : entries()) {
    if (name == entry.name && lanes == entry.lanes) {
      return &entry;
    }
  }
  return nullptr;
}

}  // namespace metal_host
