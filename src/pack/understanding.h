// What a recording repeats, and what of a plan survives that: iterations, classes of requests, the
// plan for iterations and its score on iterations that it was not made from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "memory/plan/memory_plan.h"
#include "memory/plan/plan_score.h"
#include "memory/plan/request_class.h"

namespace headroom::pack {

struct PackAnswer;

struct Understanding {
  memory::Iterations iterations;
  memory::RequestClasses classes;  // by request of the answer
  // How many requests, by recurrence, then lifespan.
  std::array<std::array<size_t, 3>, 3> counts{};
  // Where there are iterations: the plan that a run would be served from, made of all of them.
  // Where streams wait for each other, with memory of one for another, if that needs less.
  std::optional<memory::MemoryPlan> plan;
  int64_t apart_bytes = 0;  // of a plan that keeps streams apart
  // The same made from the first few of each kind, on all others; nothing where none is left.
  std::optional<memory::PlanScore> held_out;

  [[nodiscard]] bool shares_streams() const { return plan && plan->bytes < apart_bytes; }
  [[nodiscard]] size_t count(memory::Recurrence recurrence) const {
    size_t sum = 0;
    for (const size_t one : counts[static_cast<size_t>(recurrence)]) sum += one;
    return sum;
  }
};

// Of a recording whose requests are read. `marks`: where the user said that iterations begin.
// A few microseconds a request, and planning with little effort.
[[nodiscard]] Understanding understand(const PackAnswer& answer, const std::vector<int64_t>& marks,
                                       uint64_t seed);

// The plan of an answer for a file: of its iterations, or of all that was recorded, as one
// signature. REQUIRES: the answer is complete.
[[nodiscard]] memory::MemoryPlan memory_plan_of(const PackAnswer& answer);

// When a request's bytes may be used again: where another stream kept it, half of that delay after
// its latest observed completion, as nothing says how long it takes the next time.
[[nodiscard]] int64_t safe_upper(int64_t released, int64_t upper);

}  // namespace headroom::pack
