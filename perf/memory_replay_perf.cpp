// Replaying a training step's allocations, at the size of Mistral-7B: 32 layers, about 40 buffers a
// layer in forward and as many in backward. The peer is what PyTorch's allocator is made of, a
// std::set ordered by size and address, with the same splits and merges and nothing else.
#include <benchmark/benchmark.h>

#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "memory/replay.h"

namespace {

using namespace headroom;
using namespace headroom::memory;

// `steps` training steps of `layers` layers; parameters first, as in a real run.
MemoryTrace training_trace(uint32_t layers, uint32_t steps) {
  MemoryTrace trace;
  constexpr int64_t kHidden = 4096LL * 4096 * 2;
  for (uint32_t i = 0; i < layers * 9; ++i) {
    trace.alloc({.requested_bytes = kHidden + i % 9 * 2048, .category = Category::parameter}, 0);
  }
  for (uint32_t step = 0; step < steps; ++step) {
    std::vector<uint32_t> saved;
    for (uint32_t i = 0; i < layers * 40; ++i) {
      const uint32_t scratch = trace.alloc(
          {.requested_bytes = 4096LL * (i % 13 + 1) * 700, .category = Category::temporary}, i);
      const uint32_t kept = trace.alloc(
          {.requested_bytes = 4096LL * 4096 * (i % 5 + 1) / 3, .category = Category::activation},
          i);
      trace.free(scratch, i);
      saved.push_back(kept);
    }
    std::vector<uint32_t> gradients;
    for (uint32_t i = layers * 40; i-- > 0;) {
      const uint32_t incoming = trace.alloc(
          {.requested_bytes = 4096LL * 4096 * (i % 7 + 1) / 5, .category = Category::temporary}, i);
      trace.free(saved[i], i);
      if (i % 5 == 0) {
        gradients.push_back(
            trace.alloc({.requested_bytes = kHidden / 4, .category = Category::gradient}, i));
      }
      trace.free(incoming, i);
    }
    for (const uint32_t gradient : gradients) trace.free(gradient, 0);
  }
  return trace;
}

void replay_headroom(benchmark::State& state) {
  const MemoryTrace trace = training_trace(32, static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) {
    DeviceMemory device;
    benchmark::DoNotOptimize(replay(trace, {}, device));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(trace.events.size()));
  state.counters["events"] = static_cast<double>(trace.events.size());
  if (state.range(0) == 1) state.counters["target_seconds"] = 0.005;
}

// Best fit over a std::set, with a block list in a std::map by address.
class SetAllocator {
 public:
  int64_t allocate(int64_t requested) {
    const int64_t size = rounded_size(settings_, requested);
    auto& free = size <= kSmallSize ? small_ : large_;
    auto at = free.lower_bound({size, 0});
    int64_t address = 0;
    int64_t block_size = 0;
    if (at == free.end()) {
      block_size = segment_size_for(settings_, size);
      address = next_;
      next_ += block_size + kMiB;  // a gap, so that segments do not merge
    } else {
      std::tie(block_size, address) = *at;
      free.erase(at);
    }
    const int64_t rest = block_size - size;
    if (rest > (size <= kSmallSize ? 0 : kSmallSize)) {
      free.insert({rest, address + size});
      blocks_[address + size] = {rest, true};
      block_size = size;
    }
    blocks_[address] = {block_size, false};
    return address;
  }
  void release(int64_t address) {
    auto at = blocks_.find(address);
    auto& free = at->second.first <= kSmallSize ? small_ : large_;
    auto next = std::next(at);
    if (next != blocks_.end() && next->second.second && next->first == address + at->second.first) {
      free.erase({next->second.first, next->first});
      at->second.first += next->second.first;
      blocks_.erase(next);
    }
    if (at != blocks_.begin()) {
      auto before = std::prev(at);
      if (before->second.second && before->first + before->second.first == at->first) {
        free.erase({before->second.first, before->first});
        before->second.first += at->second.first;
        blocks_.erase(at);
        at = before;
      }
    }
    at->second.second = true;
    free.insert({at->second.first, at->first});
  }

 private:
  AllocatorSettings settings_;
  std::set<std::pair<int64_t, int64_t>> small_;
  std::set<std::pair<int64_t, int64_t>> large_;
  std::map<int64_t, std::pair<int64_t, bool>> blocks_;  // size, is free
  int64_t next_ = int64_t{1} << 32;
};

void replay_std_set(benchmark::State& state) {
  const MemoryTrace trace = training_trace(32, static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) {
    SetAllocator allocator;
    std::vector<int64_t> addresses(trace.buffers.size());
    for (const MemoryEvent& event : trace.events) {
      if (event.kind == EventKind::alloc) {
        addresses[event.buffer] = allocator.allocate(trace.buffers[event.buffer].requested_bytes);
      } else {
        allocator.release(addresses[event.buffer]);
      }
    }
    benchmark::DoNotOptimize(addresses);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(trace.events.size()));
}

// A cache of many free blocks, as fragmentation leaves one.
void many_cached_blocks(benchmark::State& state) {
  DeviceMemory device;
  CachingAllocator allocator({}, device);
  std::vector<BlockId> blocks;
  for (int64_t i = 0; i < state.range(0) * 2; ++i) {
    blocks.push_back(allocator.allocate(2 * kMiB + i % 4096 * 512, 0)->block);
  }
  for (size_t i = 0; i < blocks.size(); i += 2) allocator.free(blocks[i]);
  int64_t i = 0;
  for (auto _ : state) {
    allocator.free(allocator.allocate(2 * kMiB + i++ % 4096 * 512, 0)->block);
  }
  state.SetItemsProcessed(state.iterations() * 2);
}

}  // namespace

BENCHMARK(replay_headroom)
    ->Name("memory_replay/headroom")
    ->Arg(1)
    ->Arg(16)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(replay_std_set)
    ->Name("memory_replay/std_set")
    ->Arg(1)
    ->Arg(16)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(many_cached_blocks)->Name("memory_cached_blocks/headroom")->Arg(100)->Arg(100000);
