#include "csrc/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#ifdef __linux__
#include <sched.h>
#endif

namespace mlx_gemm {
namespace {

constexpr int kMostThreads = 512;

int usable_cpus() {
#ifdef __linux__
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
    return std::max(CPU_COUNT(&cpus), 1);
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

  void run(int64_t count, const std::function<void(int64_t)>& body) {
    Loop loop{count, body};
    std::list<Loop*>::iterator place;
    {
      std::lock_guard lock(mutex_);
      start_helpers();
      ++computing_;
      place = loops_.insert(loops_.end(), &loop);
    }
    for (int64_t i = 1; i < std::min<int64_t>(count, thread_count()); ++i) {
      wake_.notify_one();
    }
    std::exception_ptr error = loop.work();
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

 private:
  struct Loop {
    int64_t count;
    const std::function<void(int64_t)>& body;
    std::atomic<int64_t> next = 0;
    int helpers = 0;  // guarded by the pool's mutex

    std::exception_ptr error = nullptr;  // of a helper; guarded likewise

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
    for (; helpers_ < thread_count() - 1; ++helpers_) {
      try {
        std::thread([this] { help(); }).detach();
      } catch (const std::system_error&) {
        return;  // the system has no more threads: those that are there do the work
      }
    }
  }

  Loop* loop_to_help() {
    if (computing_ >= thread_count()) {
      return nullptr;
    }
    const auto found = std::ranges::find_if(loops_, [](const Loop* loop) { return loop->next < loop->count; });
    return found == loops_.end() ? nullptr : *found;
  }

  void help() {
    std::unique_lock lock(mutex_);
    while (true) {
      Loop* loop = nullptr;
      wake_.wait(lock, [&] { return (loop = loop_to_help()) != nullptr; });
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
  int helpers_ = 0;
};

}  // namespace

int thread_count() {
  static const int count = configured_threads();
  return count;
}

void parallel_for(int64_t count, const std::function<void(int64_t)>& body) {
  if (count > 1 && thread_count() > 1) {
    Pool::instance().run(count, body);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    body(i);
  }
}

}  // namespace mlx_gemm
