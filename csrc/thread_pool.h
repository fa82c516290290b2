// Threads that help whoever runs a loop. Pure C++.
#pragma once

#include <cstdint>
#include <functional>

namespace mlx_gemm {

// How many threads may compute at once: MLX_GEMM_NUM_THREADS, else OPENBLAS_NUM_THREADS, else the CPUs that this
// process may use. Throws std::invalid_argument where MLX_GEMM_NUM_THREADS is not a positive number.
int thread_count();

// Calls body(i) for every i below `count`, in any order, on this thread and on idle helpers, at most `threads` in all;
// returns when all are done. Loops of several threads share the helpers: no more than thread_count() threads compute at
// once, but for the callers themselves. What `body` throws ends the loop early and is thrown here.
void parallel_for(int64_t count, int threads, const std::function<void(int64_t)>& body);

// Another thread is about to run a loop on so many threads: helpers wake up now, on other CPUs than this thread's, and
// look for it for a moment, because waking takes them as long as a small product.
void announce_loop(int threads);

// Lets a thread that waits for this CPU run first.
void give_way();

}  // namespace mlx_gemm
