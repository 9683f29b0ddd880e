// Work: what ran, piece by piece, with its group: kernels, copies and fills of a device.
//
// A trace without a device (PyTorch on a CPU) has pieces too: there an operator is the work, and
// its pieces are the times in which it was the innermost one open on its thread. So whatever counts
// pieces counts both. In order of their start. Linear; pure.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/trace.h"
#include "ops/links.h"
#include "ops/rules.h"

namespace headroom::ops {

struct Work {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint32_t event = formats::kNone;      // the kernel, or the operator on a CPU
  uint32_t operation = formats::kNone;  // the innermost operator, where one is linked
  int32_t step = kOutside;              // that launched it
  GroupIndex group = 0;
  GroupIndex name_group = 0;  // what the name of the kernel alone says
  bool is_in_graph = false;   // one of several that one call launched

  [[nodiscard]] int64_t duration_ns() const { return end_ns - start_ns; }
};

std::vector<Work> work_of(const formats::Trace& trace, const Links& links, Classifier& classifier);

}  // namespace headroom::ops
