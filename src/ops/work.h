// Work: what ran, piece by piece, with its group: kernels, copies and fills of a device.
//
// A trace without a device (PyTorch on a CPU) has pieces too: there an operator is the work, and
// its pieces are the times in which it was the innermost one open on its thread. So are
// collectives, which a backend runs on threads of its own under ranges, not operators. So whatever
// counts pieces counts both. In order of their start. Linear; pure.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/trace.h"
#include "ops/links.h"
#include "ops/rules.h"

namespace headroom::ops {

struct Work {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint32_t event = formats::kNone;      // the kernel, or the operator on a CPU
  uint32_t operation = formats::kNone;  // the innermost operator around its launch, if any
  uint32_t captured = formats::kNone;   // of a graph: the innermost one around its capture
  int32_t step = kOutside;              // that launched it
  GroupIndex group = 0;
  GroupIndex name_group = 0;  // what the name of the kernel alone says
  bool is_in_graph = false;   // one of several that one call launched

  [[nodiscard]] int64_t duration_ns() const { return end_ns - start_ns; }
  // The operator that it is the work of: what launches a graph is not.
  [[nodiscard]] uint32_t own_operation() const { return is_in_graph ? captured : operation; }
};

// Counts operators by their work: one that put several kernels on the device is one, but of a graph
// one for each launch.
class OperatorCount {
 public:
  OperatorCount(const formats::Trace& trace, const Links& links)
      : links_(links), is_counted_(trace.events.size(), false) {}
  // 1 for the first piece of its operator, or of what stands for one (`event`); then 0.
  int64_t add(const Work& piece, uint32_t event);

 private:
  const Links& links_;
  std::vector<bool> is_counted_;                  // by event
  std::set<std::pair<uint32_t, uint32_t>> runs_;  // of captured operators, by the graph's launch
};

// "gloo:all_reduce": what c10d's backends call the range of a collective.
[[nodiscard]] bool names_collective(std::string_view name);

std::vector<Work> work_of(const formats::Trace& trace, const Links& links, Classifier& classifier);

}  // namespace headroom::ops
