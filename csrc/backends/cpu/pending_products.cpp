#include "csrc/backends/cpu/pending_products.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace mlx_gemm {
namespace {

// OpenBLAS unloads badly under a running product, so exit waits for them.
class Pending {
 public:
  static Pending& instance() {
    static Pending* pending = nullptr;  // never destroyed: stream threads outlive static destruction
    static std::once_flag once;
    std::call_once(once, [] {
      pending = new Pending;
      // A forked child has none of the parent's streams.
      pthread_atfork(nullptr, nullptr, [] { pending = new Pending; });
    });
    return *pending;
  }

  void add() {
    std::lock_guard lock(mutex_);
    ++count_;
  }

  void remove() {
    {
      std::lock_guard lock(mutex_);
      --count_;
    }
    idle_.notify_all();
  }

  void wait() {
    constexpr auto kLongest = std::chrono::minutes(1);  // a stream may wait for an event that never comes
    std::unique_lock lock(mutex_);
    idle_.wait_for(lock, kLongest, [&] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable idle_;
  int64_t count_ = 0;
};

}  // namespace

void add_pending_product() { Pending::instance().add(); }

void remove_pending_product() { Pending::instance().remove(); }

void wait_for_pending_products() { Pending::instance().wait(); }

}  // namespace mlx_gemm
