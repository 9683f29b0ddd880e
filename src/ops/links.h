// Links: what belongs to what in a trace.
//
// kernel -> the call that launched it (same correlation) -> the innermost operator around that call
// on its thread -> the operators and annotations around that one; and each kernel to the step whose
// time holds its launch. What runs on the device inside the steps and was launched before them is
// earlier work, the backlog. Where a trace has no steps (ProfilerStep#N), all of it is one.
//
// Linear in the events but for a sort of the calls; 12 bytes an event. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/trace.h"

namespace headroom::ops {

struct TraceStep {
  std::string name;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t before_ns = 0;  // Links::passed_ns at its begin
};

inline constexpr int32_t kOutside = -1;  // of every step

struct Links {
  // By event. Of a host event the innermost operator or annotation around it on its thread; of a
  // device event the innermost one around its launch. kNone where there is none.
  std::vector<uint32_t> parent;
  // By event: of a device event the call that launched it, or kNone.
  std::vector<uint32_t> launch;
  // By event: of a device event the step that launched it, or kOutside.
  std::vector<int32_t> step;

  std::vector<TraceStep> steps;  // never empty where there are events; in order, disjoint
  bool has_steps = false;        // the trace named them
  bool has_device = false;       // there is at least one device event
  bool has_calls = false;        // there is at least one call into a device's runtime

  // The time of the steps, first to last.
  [[nodiscard]] int64_t start_ns() const { return steps.empty() ? 0 : steps.front().start_ns; }
  [[nodiscard]] int64_t end_ns() const { return steps.empty() ? 0 : steps.back().end_ns; }
  // How much of that has passed at `time`. What lies between steps is none of theirs where the host
  // does the work; a device goes on with a step after the host has ended it.
  [[nodiscard]] int64_t passed_ns(int64_t time) const;
  // How much of it passes from the begin of a step to the next one's, or to the end: what a step
  // takes, so that all of them sum to the whole.
  [[nodiscard]] int64_t step_ns(size_t index) const;
};

Links link(const formats::Trace& trace);

// The step in whose time `time` is, or kOutside.
int32_t step_at(const Links& links, int64_t time);

// The innermost operator (not annotation) at or around `event`, or kNone.
uint32_t operator_of(const formats::Trace& trace, const Links& links, uint32_t event);

// The names of the operators and annotations around a device event, the innermost first.
void chain_of(const formats::Trace& trace, const Links& links, uint32_t event,
              std::vector<uint32_t>& names);

}  // namespace headroom::ops
