#include "csrc/metal_host/c_api.h"

#include <cstring>
#include <string>

#include "csrc/metal_host/host.h"

static_assert(sizeof(MetalHostCounters) == sizeof(metal_host::Counters), "the counters have the same fields");

int32_t metal_host_dispatch(const MetalHostDispatch* request, MetalHostCounters* counters, MetalHostText text) {
  metal_host::Dispatch dispatch;
  dispatch.kernel = request->kernel;
  dispatch.grid = {request->grid[0], request->grid[1], request->grid[2]};
  dispatch.threads = {request->threads[0], request->threads[1], request->threads[2]};
  if (request->grid_threads[0] != 0) {
    dispatch.grid_threads = {request->grid_threads[0], request->grid_threads[1], request->grid_threads[2]};
  }
  dispatch.mode = metal_host::Mode(request->mode);
  dispatch.workers = request->workers;
  dispatch.tolerant = request->tolerant != 0;
  if (request->shuffled) {
    dispatch.seed = request->seed;
  }
  for (int32_t i = 0; i < request->buffer_count; ++i) {
    const MetalHostBuffer& buffer = request->buffers[i];
    dispatch.buffers.at(size_t(buffer.slot)) = {buffer.data, buffer.bytes, buffer.writable != 0, buffer.constant != 0};
  }
  for (int32_t i = 0; i < request->constant_count; ++i) {
    dispatch.constants.push_back({request->constants[i].id, request->constants[i].value});
  }
  const metal_host::Outcome outcome = metal_host_module()->run(dispatch);
  std::memcpy(counters, &outcome.counters, sizeof *counters);
  std::string lines;
  for (const std::string& warning : outcome.warnings) {
    lines += (lines.empty() ? "" : "\n") + warning;
  }
  std::strncpy(text.data, (outcome.fault.empty() ? lines : outcome.fault).c_str(), size_t(text.capacity));
  return !outcome.fault.empty();
}

int32_t metal_host_allows_uniform(const char* kernel) { return metal_host_module()->allows_uniform(kernel); }
