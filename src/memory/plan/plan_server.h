// PlanServer: requests served from a MemoryPlan one by one, as a runtime must, knowing nothing of
// what comes next.
//
//  - The first requests of an iteration tell which signature it is: each is followed, and the one
//    that has met most of its slots serves; after kChoosingRequests it is settled.
//  - A request takes the slot that is next, or a near one of its stream and size: where requests
//    are missing or swapped the place in the plan is found again.
//  - One without a slot takes the best fit in the dynamic space of its place.
//  - An address is given only where it is free now; what is left falls back to another allocator.
//
// It says where requests would go; it touches no memory. 100 to 500 ns a request; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "memory/plan/memory_plan.h"

namespace headroom::memory {

inline constexpr uint32_t kChoosingRequests = 64;

class PlanServer {
 public:
  // REQUIRES: check_plan(plan), at least one signature; it outlives the server.
  explicit PlanServer(const MemoryPlan& plan);

  void begin_iteration();

  enum class Source : uint8_t { planned, reused, none };
  struct Served {
    Source source = Source::none;
    int64_t offset = 0;
  };
  // `stream` is an index of the plan's. REQUIRES: size >= 0.
  Served allocate(uint32_t stream, int64_t size);
  // REQUIRES: `offset` was served and is not free yet.
  void release(int64_t offset);

  [[nodiscard]] uint32_t signature() const { return chosen_; }

 private:
  // Where one signature stands in the iteration.
  struct Cursor {
    uint32_t next = 0;          // slot
    uint32_t after_leap = 0;    // where it would be, had the last match but one been right
    uint32_t met = 0;           // slots
    uint32_t without_slot = 0;  // requests since `next` moved
    std::vector<bool> is_used;
  };

  [[nodiscard]] std::optional<uint32_t> find_slot(const SignaturePlan& signature,
                                                  const Cursor& cursor, uint32_t stream,
                                                  int64_t size) const;
  void move(Cursor& cursor, uint32_t slot) const;
  [[nodiscard]] const DynamicReusableSpace* space_for(const SignaturePlan& signature,
                                                      const Cursor& cursor, uint32_t stream) const;
  [[nodiscard]] std::optional<int64_t> best_fit(const DynamicReusableSpace& space,
                                                int64_t rounded) const;
  [[nodiscard]] bool is_free(int64_t offset, int64_t rounded) const;

  const MemoryPlan& plan_;
  std::vector<Cursor> cursors_;  // by signature
  uint32_t chosen_ = 0;
  uint32_t seen_ = 0;                 // requests of this iteration
  std::map<int64_t, int64_t> taken_;  // offset to end
};

}  // namespace headroom::memory
