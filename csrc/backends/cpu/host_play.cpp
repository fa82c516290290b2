#include "csrc/backends/cpu/host_play.h"

#include <dlfcn.h>

#include <mutex>

#include "csrc/counters.h"

namespace mlx_gemm {
namespace {

struct CheckedModule {
  std::mutex mutex;
  std::string path;
  const metal_host::Module* module = nullptr;
};

CheckedModule& checked_module() {
  static CheckedModule checked;
  return checked;
}

const metal_host::Module& load_checked_module() {
  CheckedModule& checked = checked_module();
  std::lock_guard lock(checked.mutex);
  if (checked.module == nullptr) {
    // Local: it holds its own copy of every kernel and of the runtime.
    void* library = dlopen(checked.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* entry = library == nullptr ? nullptr : dlsym(library, "metal_host_module");
    if (entry == nullptr) {
      throw std::runtime_error(std::string("cannot load the checked kernels: ") + dlerror());
    }
    checked.module = reinterpret_cast<decltype(&metal_host_module)>(entry)();
  }
  return *checked.module;
}

metal_host::Size3 size(const Extent3& extent) { return {extent.x, extent.y, extent.z}; }

void* base_of(Operand operand, const HostOperands& operands) {
  switch (operand) {
    // The binding's writable flag keeps kernels from writing to what they read.
    case Operand::a:
      return const_cast<void*>(operands.a);
    case Operand::b:
      return const_cast<void*>(operands.b);
    case Operand::c:
      return operands.c;
    case Operand::addend:
      return const_cast<void*>(operands.addend);
    case Operand::residual:
      return const_cast<void*>(operands.residual);
    case Operand::a_copy:
    case Operand::b_copy:
      break;  // copied by the CPU itself: a and b are the copies
  }
  return nullptr;
}

metal_host::Dispatch dispatch_of(const LaunchRecord& record, const HostOperands& operands) {
  metal_host::Dispatch dispatch;
  dispatch.kernel = record.kernel;
  dispatch.grid = size(record.grid);
  dispatch.threads = size(record.threads);
  for (const BufferBinding& binding : record.buffers) {
    auto* base = static_cast<std::byte*>(base_of(binding.operand, operands));
    dispatch.buffers[binding.slot] = {
        .data = base + binding.byte_offset,
        .bytes = static_cast<size_t>(binding.byte_size),
        .writable = binding.writable,
    };
  }
  dispatch.buffers[record.params_slot] = {
      .data = const_cast<std::byte*>(record.params.data()), .bytes = record.params.size(), .constant = true};
  for (const FunctionConstant& constant : record.constants) {
    dispatch.constants.push_back({constant.id, constant.value});
  }
  return dispatch;
}

}  // namespace

void set_checked_module_path(const std::string& path) {
  CheckedModule& checked = checked_module();
  std::lock_guard lock(checked.mutex);
  checked.path = path;
}

bool has_checked_module() {
  CheckedModule& checked = checked_module();
  std::lock_guard lock(checked.mutex);
  return !checked.path.empty();
}

const metal_host::Module& host_module(bool checked) { return checked ? load_checked_module() : *metal_host_module(); }

metal_host::Outcome play(const LaunchRecord& record, const HostOperands& operands, const HostOptions& options) {
  metal_host::Dispatch dispatch = dispatch_of(record, operands);
  dispatch.mode = options.mode;
  dispatch.seed = options.seed;
  ++counters().host_launches;
  metal_host::Outcome outcome = host_module(options.check).run(dispatch);
  if (!outcome.fault.empty()) {
    throw HostFault(outcome.fault);
  }
  return outcome;
}

}  // namespace mlx_gemm
