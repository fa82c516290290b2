#include "csrc/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

namespace mlx_gemm {
namespace {

constexpr int kMostThreads = 512;

// Threads look for what comes next for as long as waking takes, before they sleep. They yield meanwhile: whoever else
// wants their CPU gets it. Elsewhere than on Linux, where CPU streams have no products of ours, they sleep at once.
template <class CONDITION>
void look_for([[maybe_unused]] const CONDITION& condition) {
#ifdef __linux__
  constexpr auto kPatience = std::chrono::microseconds(60);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition() && std::chrono::steady_clock::now() < end) {
    give_way();
  }
#endif
}

#ifdef __linux__
// Empty where the system has more CPUs than the type can tell.
cpu_set_t usable_cpu_set() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof cpus, &cpus);
  return cpus;
}
#endif

int usable_cpus() {
#ifdef __linux__
  const cpu_set_t cpus = usable_cpu_set();
  if (CPU_COUNT(&cpus) > 0) {
    return CPU_COUNT(&cpus);
  }
#endif
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

// 0 where the text is not a positive number.
int positive(const char* text) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return end != text && *end == '\0' && value > 0 ? static_cast<int>(std::min<long>(value, kMostThreads)) : 0;
}

int configured_threads() {
  if (const char* own = std::getenv("MLX_GEMM_NUM_THREADS")) {
    const int threads = positive(own);
    if (threads == 0) {
      throw std::invalid_argument("MLX_GEMM_NUM_THREADS must be a positive number, got '" + std::string(own) + "'");
    }
    return threads;
  }
  const char* blas = std::getenv("OPENBLAS_NUM_THREADS");
  const int threads = blas == nullptr ? 0 : positive(blas);
  return threads > 0 ? threads : usable_cpus();
}

class Pool {
 public:
  static Pool& instance() {
    static Pool* pool = nullptr;  // never destroyed: stream threads outlive static destruction
    static std::once_flag once;
    std::call_once(once, [] {
      pool = new Pool;
      // A forked child has none of the parent's helpers, and perhaps a lock that nobody will release.
      pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
    });
    return *pool;
  }

  void run(int64_t count, int threads, const std::function<void(int64_t)>& body) {
    Loop loop{count, threads, body};
    std::list<Loop*>::iterator place;
    {
      std::lock_guard lock(mutex_);
      start_helpers();
      keep_off_this_cpu();
      ++computing_;
      ++news_;
      place = loops_.insert(loops_.end(), &loop);
    }
    wake(std::min<int64_t>(count, threads) - 1);
    std::exception_ptr error = loop.work();
    look_for([&] { return loop.helpers == 0; });
    std::unique_lock lock(mutex_);
    loops_.erase(place);
    --computing_;
    left_.wait(lock, [&] { return loop.helpers == 0; });
    if (!loops_.empty()) {
      wake_.notify_one();  // for another caller, who may now have one more helper
    }
    lock.unlock();
    if (error || (error = loop.error)) {
      std::rethrow_exception(error);
    }
  }

  void announce(int threads) {
    {
      std::lock_guard lock(mutex_);
      start_helpers();
      keep_off_this_cpu();
      ++news_;
    }
    wake(threads - 1);
  }

 private:
  struct Loop {
    int64_t count;
    int threads;
    const std::function<void(int64_t)>& body;
    std::atomic<int64_t> next = 0;
    std::atomic<int> helpers = 0;        // changes under the pool's mutex
    std::exception_ptr error = nullptr;  // of a helper; guarded by that mutex

    std::exception_ptr work() {
      try {
        for (int64_t i = next++; i < count; i = next++) {
          body(i);
        }
        return nullptr;
      } catch (...) {
        next = count;
        return std::current_exception();
      }
    }
  };

  void start_helpers() {
    while (static_cast<int>(helpers_.size()) < thread_count() - 1) {
      try {
        std::thread helper([this] { help(); });
        helpers_.push_back(helper.native_handle());
        helper.detach();
      } catch (const std::system_error&) {
        return;  // the system has no more threads: those that are there do the work
      }
    }
  }

  // On a machine that was busy just now, Linux runs a thread on the CPU of the one who woke it, however idle the
  // others. Each helper takes a system call: with many, one of them on this CPU matters less than that.
  void keep_off_this_cpu() {
#ifdef __linux__
    constexpr size_t kMostHelpers = 15;
    const int cpu = sched_getcpu();
    if (cpu == avoided_cpu_ || helpers_.size() > kMostHelpers) {
      return;
    }
    cpu_set_t others = usable_cpu_set();
    CPU_CLR(cpu, &others);
    if (CPU_COUNT(&others) == 0) {
      return;
    }
    for (const pthread_t helper : helpers_) {
      pthread_setaffinity_np(helper, sizeof others, &others);
    }
    avoided_cpu_ = cpu;
#endif
  }

  Loop* loop_to_help() {
    if (computing_ >= thread_count()) {
      return nullptr;
    }
    const auto found = std::ranges::find_if(
        loops_, [](const Loop* loop) { return loop->next < loop->count && loop->helpers + 1 < loop->threads; });
    return found == loops_.end() ? nullptr : *found;
  }

  void wake(int64_t helpers) {
    for (int64_t i = 0; i < helpers; ++i) {
      wake_.notify_one();
    }
  }

  Loop* wait_for_loop(std::unique_lock<std::mutex>& lock) {
    while (true) {
      if (Loop* loop = loop_to_help()) {
        return loop;
      }
      const int64_t seen = news_;
      lock.unlock();
      look_for([&] { return news_ != seen; });
      lock.lock();
      wake_.wait(lock, [&] { return news_ != seen || loop_to_help() != nullptr; });
    }
  }

  void help() {
    std::unique_lock lock(mutex_);
    while (true) {
      Loop* loop = wait_for_loop(lock);
      ++loop->helpers;
      ++computing_;
      lock.unlock();
      const std::exception_ptr error = loop->work();
      lock.lock();
      if (error) {
        loop->error = error;
      }
      --computing_;
      --loop->helpers;
      left_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable left_;
  std::list<Loop*> loops_;
  int computing_ = 0;  // callers and helpers at work
  std::vector<pthread_t> helpers_;
#ifdef __linux__
  int avoided_cpu_ = -1;  // by all helpers
#endif
  std::atomic<int64_t> news_ = 0;  // loops begun or announced; changes under the mutex
};

}  // namespace

int thread_count() {
  static const int count = configured_threads();
  return count;
}

void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& body) {
  const int most = std::min(threads, thread_count());
  if (count > 1 && most > 1) {
    Pool::instance().run(count, most, body);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    body(i);
  }
}

void announce_loop(int threads) {
  const int most = std::min(threads, thread_count());
  if (most > 1) {
    Pool::instance().announce(most);
  }
}

void give_way() {
#ifdef __linux__
  std::this_thread::yield();
#endif
}

}  // namespace mlx_gemm
