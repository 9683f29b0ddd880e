// Steps of two streams for tests of the C ABI: what the side stream has, a program of its own does.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/units.h"
#include "runtime/abi.h"
#include "runtime/fake/abi_words.h"
#include "runtime/fake/fake_cuda.h"
#include "runtime/fake/in_child.h"

namespace headroom::runtime::fake {

inline void* const kSide = reinterpret_cast<void*>(uintptr_t{64});

inline void* take(int64_t bytes, void* stream) {
  void* const block = headroom_malloc(bytes, 0, stream);
  const auto address = reinterpret_cast<uint64_t>(block);
  IN_CHILD(block != nullptr && headroom_fake_is_touched(stream, address, bytes) == 0);
  headroom_fake_work(stream, address, bytes);
  return block;
}
// The device is at work on it until the end.
inline void give(void* block, int64_t bytes, void* stream) {
  headroom_fake_work(stream, reinterpret_cast<uint64_t>(block), bytes);
  headroom_free(block, bytes, 0, stream);
  headroom_fake_advance(1);
}

// Activations; what `beside` has on the side stream; and an optimizer, whose temporaries are as
// large as that.
template <typename Beside>
void run_step_beside(Beside&& beside) {
  std::vector<void*> activations;
  for (int i = 0; i < 20; ++i) activations.push_back(take(kMiB + i * 4096, nullptr));
  beside();
  for (int i = 19; i >= 0; --i) {
    void* const gradient = take(200'000 + i * 2048, nullptr);
    give(activations[static_cast<size_t>(i)], kMiB + i * 4096, nullptr);
    give(gradient, 200'000 + i * 2048, nullptr);
  }
  std::vector<void*> states;
  for (int i = 0; i < 16; ++i) states.push_back(take(2 * kMiB + i * 4096, nullptr));
  for (int i = 0; i < 16; ++i) give(states[static_cast<size_t>(i)], 2 * kMiB + i * 4096, nullptr);
}

// The planner's thread needs its turn, which a busy machine may not give it for long.
template <typename Step>
bool run_until_it_serves(Step&& step) {
  for (int i = 0; i < 10'000 && statistics().is_planned == 0; ++i) {
    step();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return statistics().is_planned != 0;
}

}  // namespace headroom::runtime::fake
