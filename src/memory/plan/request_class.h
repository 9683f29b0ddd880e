// What kind of request each one is: how long it lives, and whether it comes again.
//
// The lifespans are STAlloc's (arXiv 2507.16274, section 3), found without its marks: a phase is a
// stretch of an iteration in which memory fills up or drains (forward and backward of a
// micro-batch), a request that stays for a whole iteration is persistent, one that begins and ends
// in one phase is transient, and what lies between is scoped.
//
// A request is static where every iteration of its kind makes it, of the same size and in the same
// place; dynamic where sizes or order vary; and nothing can be said of what was recorded only once
// (persistent requests among it).
// O(n log n); pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "memory/plan/iterations.h"

namespace headroom::memory {

enum class Lifespan : uint8_t { persistent, scoped, transient };
enum class Recurrence : uint8_t { fixed, dynamic, once };  // "static" is a word of C++

[[nodiscard]] std::string_view lifespan_name(Lifespan lifespan);        // "persistent", ...
[[nodiscard]] std::string_view recurrence_name(Recurrence recurrence);  // "static", "dynamic", ...

inline constexpr uint32_t kNoIteration = 0xffffffff;
inline constexpr uint32_t kNoPhase = 0xffffffff;

struct RequestClass {
  Lifespan lifespan = Lifespan::scoped;
  Recurrence recurrence = Recurrence::once;
  uint32_t iteration = kNoIteration;  // into Iterations::whole: the one that it begins in
  uint32_t phase = kNoPhase;          // of that iteration, from 0
};

// A phase: memory rises to a peak, or falls from one.
struct Phase {
  uint32_t iteration = kNoIteration;  // kNoIteration: of a recording without iterations
  int64_t lower = 0;                  // times
  int64_t upper = 0;
  bool is_filling = false;
};

struct RequestClasses {
  std::vector<RequestClass> by_request;
  std::vector<Phase> phases;  // in order of time
};

[[nodiscard]] RequestClasses classify_requests(std::span<const RecordedRequest> requests,
                                               const Iterations& iterations);

}  // namespace headroom::memory
