// SpinLock: for critical sections of tens of nanoseconds in which nothing calls the driver.
//
// Taking it is one exchange and releasing it one store, half of what a mutex costs. Who finds it
// taken spins a little and then yields, so that a holder that was preempted gets to run; after many
// turns it sleeps, as a yield lets nobody run whose priority is lower (SCHED_FIFO).
#pragma once

#include <sched.h>
#include <time.h>

#include <atomic>

namespace headroom::runtime {

class SpinLock {
 public:
  void lock() {
    if (!is_taken_.exchange(true, std::memory_order_acquire)) [[likely]]
      return;
    wait();
  }
  bool try_lock() { return !is_taken_.exchange(true, std::memory_order_acquire); }
  void unlock() { is_taken_.store(false, std::memory_order_release); }

 private:
  [[gnu::noinline]] void wait() {
    do {
      for (int spins = 0; is_taken_.load(std::memory_order_relaxed); ++spins) {
        if (spins < kSpins) {
          pause();
        } else if (spins < kSpins + kYields) {
          sched_yield();
        } else {
          const timespec a_little{0, 20'000};
          nanosleep(&a_little, nullptr);
        }
      }
    } while (is_taken_.exchange(true, std::memory_order_acquire));
  }
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  static constexpr int kSpins = 200;
  static constexpr int kYields = 1000;
  std::atomic<bool> is_taken_ = false;
};

}  // namespace headroom::runtime
