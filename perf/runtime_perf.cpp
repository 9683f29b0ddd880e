// What a request costs that a plan serves: the C ABI over the fake driver, in one thread, through
// the shape of PyTorch's pluggable wrapper, and in 8 threads, beside the simulator of PyTorch's
// allocator and beside a plain best fit, each behind one lock. A round is kOperations allocations
// and releases; the goals (15 ns an operation, 40 through the wrapper) are of rounds, too.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/units.h"
#include "memory/best_fit_arena.h"
#include "memory/caching_allocator.h"
#include "runtime/abi.h"
#include "runtime/fake/abi_words.h"
#include "runtime/fake/fake_cuda.h"

namespace {

using namespace headroom;

constexpr int kLayers = 200;

int64_t size_of(int layer) { return 100'000 + layer * 1536; }

void* stream_of(int thread) {
  return thread == 0 ? nullptr
                     : reinterpret_cast<void*>(uintptr_t{64} * static_cast<unsigned>(thread));
}

// A forward and a backward pass: kLayers blocks that wait, each with a temporary beside it.
template <typename Malloc, typename Free>
void step(Malloc&& allocate, Free&& release) {
  void* live[kLayers];
  for (int layer = 0; layer < kLayers; ++layer) {
    void* const temporary = allocate(size_of(layer) / 2 + 77);
    live[layer] = allocate(size_of(layer));
    release(temporary);
  }
  for (int layer = kLayers; layer-- > 0;) {
    void* const gradient = allocate(size_of(layer) + 99);
    release(live[layer]);
    release(gradient);
  }
}
constexpr int64_t kOperations = 6 * kLayers;  // of a step

void run(int thread) {
  step([&](int64_t size) { return headroom_malloc(size, 0, stream_of(thread)); },
       [&](void* block) { headroom_free(block, 0, 0, stream_of(thread)); });
}

// Until a plan serves the streams of all threads, one after the other: their steps are one
// iteration, as the sequence says (no marks).
bool plan_for(int threads) {
  static const bool is_configured = [] {
    const headroom_fake_setting fake{1, 64 * kGiB, 2 * kMiB, 0, 0, 0, 1, 0};
    headroom_fake_set_up(&fake);
    headroom_configuration configuration{};
    configuration.struct_bytes = sizeof configuration;
    configuration.driver_path = FAKE_CUDA_PATH;
    configuration.flags = HEADROOM_FLAG_ALWAYS_PLAN;
    return headroom_configure(&configuration) == 0;
  }();
  headroom_statistics s{};
  for (int i = 0; i < 250 && is_configured && s.is_planned == 0; ++i) {
    for (int thread = 0; thread < threads; ++thread) run(thread);
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    s = runtime::fake::statistics();
  }
  if (s.is_planned == 0) {
    std::fprintf(stderr, "%s\n%s\n", headroom_error(), runtime::fake::report().c_str());
  }
  return s.is_planned != 0;
}

void check_planned(benchmark::State& state) {
  const headroom_statistics s = runtime::fake::statistics();
  const auto all = static_cast<double>(s.allocation.allocated);
  state.counters["planned_pct"] = 100 * static_cast<double>(s.planned_requests) / all;
}

void aim_at(benchmark::State& state, double nanoseconds) {
  state.counters["target_seconds"] = nanoseconds * 1e-9 * static_cast<double>(kOperations);
}

constexpr int kThreads = 8;

void planned(benchmark::State& state) {
  if (state.thread_index() == 0 && !plan_for(kThreads)) state.SkipWithError("no plan");
  for (auto _ : state) run(state.thread_index());
  state.SetItemsProcessed(state.iterations() * kOperations);
  if (state.thread_index() == 0) check_planned(state);
  if (state.threads() == 1) aim_at(state, 15);
}
BENCHMARK(planned)->Name("planned/headroom")->MinTime(1);
BENCHMARK(planned)
    ->Name("planned, 8 threads/headroom")
    ->Threads(kThreads)
    ->MinTime(1)
    ->UseRealTime();

// std::function, a mutex and a map of what was handed out, as CUDAPluggableAllocator has them.
void wrapped(benchmark::State& state) {
  if (!plan_for(kThreads)) state.SkipWithError("no plan");
  const std::function<void*(size_t, int, void*)> allocate = [](size_t size, int device,
                                                               void* stream) {
    return headroom_malloc(static_cast<ssize_t>(size), device, stream);
  };
  const std::function<void(void*, size_t, int, void*)> release = [](void* block, size_t size,
                                                                    int device, void* stream) {
    headroom_free(block, static_cast<ssize_t>(size), device, stream);
  };
  struct Known {
    size_t size = 0;
    int device = 0;
    void* stream = nullptr;
  };
  std::mutex mutex;
  std::unordered_map<void*, Known> known;
  for (auto _ : state) {
    step(
        [&](int64_t size) {
          void* const block = allocate(static_cast<size_t>(size), 0, nullptr);
          const std::lock_guard lock(mutex);
          known.emplace(block, Known{static_cast<size_t>(size), 0, nullptr});
          return block;
        },
        [&](void* block) {
          Known what;
          {
            const std::lock_guard lock(mutex);
            const auto at = known.find(block);
            what = at->second;
            known.erase(at);
          }
          release(block, what.size, what.device, what.stream);
        });
  }
  state.SetItemsProcessed(state.iterations() * kOperations);
  aim_at(state, 40);
}
BENCHMARK(wrapped)->Name("planned, wrapped/headroom")->MinTime(1);

// The simulator has the policy of PyTorch's allocator and its data structures' complexity.
struct Peer {
  std::mutex mutex;
  memory::DeviceMemory device;
  memory::CachingAllocator allocator{{}, device};
};

void caching(benchmark::State& state) {
  static Peer peer;
  const auto stream = static_cast<uint32_t>(state.thread_index());
  for (auto _ : state) {
    step(
        [&](int64_t size) {
          const std::lock_guard lock(peer.mutex);
          const auto block = peer.allocator.allocate(size, stream)->block;
          return reinterpret_cast<void*>(static_cast<uintptr_t>(block) + 1);
        },
        [&](void* block) {
          const std::lock_guard lock(peer.mutex);
          peer.allocator.free(static_cast<memory::BlockId>(reinterpret_cast<uintptr_t>(block) - 1));
        });
  }
  state.SetItemsProcessed(state.iterations() * kOperations);
}
BENCHMARK(caching)->Name("planned/caching")->MinTime(1);
BENCHMARK(caching)
    ->Name("planned, 8 threads/caching")
    ->Threads(kThreads)
    ->MinTime(1)
    ->UseRealTime();

// Ordered by size and by address, a range a stream.
void best_fit(benchmark::State& state) {
  static std::mutex mutex;
  static memory::BestFitArena arena{64 * kGiB};
  const auto stream = static_cast<uint32_t>(state.thread_index());
  for (auto _ : state) {
    step(
        [&](int64_t size) {
          const std::lock_guard lock(mutex);
          return reinterpret_cast<void*>(
              static_cast<uintptr_t>(arena.allocate(size, stream)->handle) + 1);
        },
        [&](void* block) {
          const std::lock_guard lock(mutex);
          arena.free(reinterpret_cast<uintptr_t>(block) - 1);
        });
  }
  state.SetItemsProcessed(state.iterations() * kOperations);
}
BENCHMARK(best_fit)->Name("planned/best_fit")->MinTime(1);
BENCHMARK(best_fit)
    ->Name("planned, 8 threads/best_fit")
    ->Threads(kThreads)
    ->MinTime(1)
    ->UseRealTime();

}  // namespace
