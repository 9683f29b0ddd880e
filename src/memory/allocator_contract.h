// The contract that every allocator of this room must keep, as one test suite (tests only).
//
// An allocator is wrapped as an AllocatorUnderTest; allocator_contract_test.cpp lists the wrappers
// and runs each through random programs, with a naive validator that knows nothing of how any of
// them works: live blocks do not overlap, each lies in memory that the allocator holds, a released
// block is not handed out again before its release is complete, and the figures are the sums.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace headroom::memory::contract {

struct Placement {
  uint64_t handle = 0;
  int64_t address = 0;
  int64_t size = 0;  // at least what was requested
};

class AllocatorUnderTest {
 public:
  virtual ~AllocatorUnderTest() = default;
  virtual std::optional<Placement> allocate(int64_t bytes, uint32_t stream) = 0;
  virtual void free(uint64_t handle) = 0;
  virtual void empty_cache() = 0;
  // Address and size of everything that it holds from the driver.
  [[nodiscard]] virtual std::vector<std::pair<int64_t, int64_t>> held() const = 0;
  [[nodiscard]] virtual int64_t allocated_bytes() const = 0;
  [[nodiscard]] virtual int64_t requested_bytes() const = 0;
  [[nodiscard]] virtual int64_t reserved_bytes() const = 0;
  // Its own invariants.
  [[nodiscard]] virtual Result<void> check() const = 0;
};

struct Candidate {
  std::string name;
  std::function<std::unique_ptr<AllocatorUnderTest>()> make;
  int64_t budget = 0;  // of the device it was made with
};

// One step of a random program.
struct Step {
  enum class Kind : uint8_t { allocate, free, empty_cache };
  Kind kind = Kind::allocate;
  int64_t bytes = 0;
  uint32_t stream = 0;
  uint32_t pick = 0;  // which live block to free, modulo their number
};

// Runs a program and returns the first complaint, or nothing.
inline std::optional<std::string> run_program(const Candidate& candidate,
                                              const std::vector<Step>& program) {
  const auto allocator = candidate.make();
  struct Live {
    int64_t size = 0;
    int64_t requested = 0;
    uint64_t handle = 0;
  };
  std::map<int64_t, Live> live;  // by address
  const auto complain = [&]() -> std::optional<std::string> {
    int64_t allocated = 0;
    int64_t requested = 0;
    int64_t reserved = 0;
    std::map<int64_t, int64_t> held;
    for (const auto& [address, size] : allocator->held()) {
      held[address] = size;
      reserved += size;
    }
    for (const auto& [address, block] : live) {
      allocated += block.size;
      requested += block.requested;
      auto holder = held.upper_bound(address);
      if (holder == held.begin()) return "a block outside of all segments";
      --holder;
      if (address + block.size > holder->first + holder->second) {
        return "a block that leaves its segment";
      }
    }
    if (allocated != allocator->allocated_bytes()) return "allocated bytes are not the sum";
    if (requested != allocator->requested_bytes()) return "requested bytes are not the sum";
    if (reserved != allocator->reserved_bytes()) return "reserved bytes are not the sum";
    if (reserved > candidate.budget) return "more memory than the device has";
    if (const auto result = allocator->check(); !result) return result.error().to_string();
    return std::nullopt;
  };
  for (const Step& step : program) {
    if (step.kind == Step::Kind::empty_cache) {
      allocator->empty_cache();
    } else if (step.kind == Step::Kind::free) {
      if (live.empty()) continue;
      const auto at = std::next(live.begin(), step.pick % live.size());
      allocator->free(at->second.handle);
      live.erase(at);
    } else if (const auto placed = allocator->allocate(step.bytes, step.stream)) {
      if (placed->size < step.bytes) return "a block that is too small";
      const auto after = live.lower_bound(placed->address);
      if (after != live.end() && after->first < placed->address + placed->size) {
        return "a block over the one after it";
      }
      if (after != live.begin()) {
        const auto before = std::prev(after);
        if (before->first + before->second.size > placed->address) {
          return "a block over the one before it";
        }
      }
      live[placed->address] = {placed->size, step.bytes, placed->handle};
    }
    if (const auto complaint = complain()) return complaint;
  }
  while (!live.empty()) {
    allocator->free(live.begin()->second.handle);
    live.erase(live.begin());
  }
  allocator->empty_cache();
  if (allocator->reserved_bytes() != 0) return "memory is held after everything was released";
  return complain();
}

}  // namespace headroom::memory::contract
