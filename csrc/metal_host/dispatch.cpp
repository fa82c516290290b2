#include "csrc/metal_host/dispatch.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "csrc/metal_host/checker.h"
#include "csrc/metal_host/kernel_table.h"
#include "csrc/metal_host/threadgroup.h"

namespace metal_host {

namespace {

// All dispatches of the process share the CPUs; this also bounds the memory maps of the fibers' stacks.
class WorkerBudget {
 public:
  static WorkerBudget& instance() {
    static WorkerBudget* budget = nullptr;  // never destroyed: stream threads may outlive static destruction
    static std::once_flag once;
    std::call_once(once, [] {
      budget = new WorkerBudget;
      // A forked child has none of the parent's workers.
      pthread_atfork(nullptr, nullptr, [] { budget = new WorkerBudget; });
    });
    return *budget;
  }

  // Blocks for the first worker, then takes as many more as are free.
  int take(int wanted) {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return free_ > 0; });
    const int taken = std::min(free_, wanted);
    free_ -= taken;
    return taken;
  }

  void give_back(int count) {
    {
      std::lock_guard lock(mutex_);
      free_ += count;
    }
    freed_.notify_all();
  }

 private:
  static constexpr int kMaxWorkers = 16;
  std::mutex mutex_;
  std::condition_variable freed_;
  int free_ = std::clamp(int(std::thread::hardware_concurrency()), 1, kMaxWorkers);
};

// The order in which threadgroups run: by index, or a seeded permutation of it.
std::vector<uint32_t> shuffled_order(uint64_t count, uint64_t seed) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  return order;
}

void add(Counters& total, const Counters& part) {
  total.threadgroups += part.threadgroups;
  total.barriers += part.barriers;
  total.multiplies += part.multiplies;
  total.threadgroup_bytes = std::max(total.threadgroup_bytes, part.threadgroup_bytes);
  total.device_read_bytes += part.device_read_bytes;
  total.device_write_bytes += part.device_write_bytes;
  total.threadgroup_read_bytes += part.threadgroup_read_bytes;
  total.threadgroup_write_bytes += part.threadgroup_write_bytes;
}

class Execution {
 public:
  Execution(const Dispatch& dispatch, const KernelEntry& kernel, bool checked)
      : dispatch_(dispatch), kernel_(kernel), count_(uint64_t(dispatch.grid.x) * dispatch.grid.y * dispatch.grid.z) {
    if (checked) {
      shadow_ = std::make_unique<DeviceShadow>(dispatch);
    }
    if (dispatch.seed) {
      order_ = shuffled_order(count_, *dispatch.seed);
    }
  }

  Outcome run() {
    const uint64_t limit = dispatch_.workers > 0 ? uint64_t(dispatch_.workers) : std::thread::hardware_concurrency();
    const int workers = WorkerBudget::instance().take(int(std::clamp<uint64_t>(limit, 1, count_)));
    std::vector<std::thread> threads;
    for (int i = 1; i < workers; ++i) {
      threads.emplace_back([this] { work(); });
    }
    work();
    for (std::thread& thread : threads) {
      thread.join();
    }
    WorkerBudget::instance().give_back(workers);
    return std::move(outcome_);
  }

 private:
  Size3 position(uint64_t index) const {
    const uint64_t at = order_.empty() ? index : order_[index];
    const Size3 grid = dispatch_.grid;
    // Down before across: threadgroups that follow each other share the columns of B, which are packed once.
    return {uint32_t(at / grid.y % grid.x), uint32_t(at % grid.y), uint32_t(at / grid.y / grid.x)};
  }

  void work() {
    try {
      Threadgroup group(dispatch_, kernel_);
      std::unique_ptr<Checker> checker;
      if (shadow_) {
        checker = std::make_unique<Checker>(group, *shadow_);
        group.set_checker(checker.get());
      }
      bool alive = true;
      while (alive && !stop_) {
        const uint64_t index = next_++;
        if (index >= count_) {
          break;
        }
        alive = group.run(position(index));
      }
      finish(group.counters(), group.fault_message(), group.warnings());
    } catch (const std::exception& error) {
      finish({}, std::string("the host runtime failed: ") + error.what(), {});
    }
  }

  // The first fault wins; it also stops the other workers before their next threadgroup.
  void finish(const Counters& counters, const std::string& fault, const std::set<std::string>& warnings) {
    std::lock_guard lock(mutex_);
    add(outcome_.counters, counters);
    outcome_.warnings.insert(warnings.begin(), warnings.end());
    if (!fault.empty()) {
      stop_ = true;
      if (outcome_.fault.empty()) {
        outcome_.fault = fault;
      }
    }
  }

  const Dispatch& dispatch_;
  const KernelEntry& kernel_;
  uint64_t count_;
  std::unique_ptr<DeviceShadow> shadow_;
  std::vector<uint32_t> order_;
  std::atomic<uint64_t> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  Outcome outcome_;
};

Outcome refused(const Dispatch& dispatch, const std::string& reason) {
  return {{}, {}, "kernel " + std::string(dispatch.kernel) + ": " + reason};
}

}  // namespace

bool has_kernel(std::string_view name) { return find_kernel(name, kSimdWidth) != nullptr; }

bool allows_uniform(std::string_view name) { return find_kernel(name, 1) != nullptr; }

Outcome run_dispatch(const Dispatch& dispatch, bool checked) {
  if (!has_kernel(dispatch.kernel)) {
    return refused(dispatch, "not in this build of the host runtime");
  }
  const uint64_t threads = uint64_t(dispatch.threads.x) * dispatch.threads.y * dispatch.threads.z;
  if (threads == 0 || threads > kMaxThreads || threads % kSimdWidth != 0) {
    return refused(dispatch, "a threadgroup has 32 to 1024 threads, a multiple of 32, got " + std::to_string(threads));
  }
  const uint64_t groups = uint64_t(dispatch.grid.x) * dispatch.grid.y * dispatch.grid.z;
  if (groups == 0 || groups > UINT32_MAX) {
    return refused(dispatch, "the grid has " + std::to_string(groups) + " threadgroups");
  }
  if (dispatch.grid_threads && dispatch.mode != Mode::lanes && allows_uniform(dispatch.kernel)) {
    return refused(dispatch, "a grid of threads needs a fiber per thread");
  }
  if (dispatch.mode == Mode::uniform && !allows_uniform(dispatch.kernel)) {
    return refused(dispatch, "asks for a thread's own index, so one fiber cannot stand for a SIMD group");
  }
  const bool uniform = dispatch.mode != Mode::lanes && allows_uniform(dispatch.kernel);
  return Execution(dispatch, *find_kernel(dispatch.kernel, uniform ? 1 : kSimdWidth), checked).run();
}

}  // namespace metal_host
