// BufferReuse: in which blocks that have ended generated code puts new values of the same type and
// size, which it does rather than let the one go and allocate the other.
//
// The block that ended last is taken, if it ended with the kernel just before, or if holding it
// until now raises no kernel's bytes above the pass's peak. Kernels are counted as they run.
// Invariant: a value's block is handed out once. Logarithmic in kernels.
// Source: torch/_inductor/codegen/wrapper.py (AllocateLine, FreeIfNotReusedLine,
// EfficientPeakEstimate).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "step/compiled/joint_graph.h"

namespace headroom::step {

// Adds to ranges of numbers, and tells the greatest of a range.
class RangeMaxima {
 public:
  explicit RangeMaxima(const std::vector<int64_t>& numbers);
  // Of [begin, end); 0 where that is empty.
  [[nodiscard]] int64_t greatest(size_t begin, size_t end) const;
  void add(size_t begin, size_t end, int64_t number);

 private:
  // Of the node that stands for [low, high).
  [[nodiscard]] int64_t greatest(size_t node, size_t low, size_t high, size_t begin,
                                 size_t end) const;
  void add(size_t node, size_t low, size_t high, size_t begin, size_t end, int64_t number);

  size_t size_;
  std::vector<int64_t> most_;   // by node: of what it stands for, `added_` of it included
  std::vector<int64_t> added_;  // to all that it stands for, and not passed on
};

class BufferReuse {
 public:
  struct Ended {
    JointValueId value = 0;
    uint32_t kernel = 0;  // with which it ended
  };

  // `live`: bytes while each kernel runs, as the compiler estimates them.
  explicit BufferReuse(const std::vector<int64_t>& live);

  void end(const JointTensor& value, uint32_t kernel);
  // What `kernel` may write `value` in place of.
  [[nodiscard]] std::optional<Ended> take(const JointTensor& value, uint32_t kernel);

 private:
  using Key = std::pair<op::DType, int64_t>;  // and bytes

  int64_t peak_;
  RangeMaxima live_;
  std::map<Key, std::vector<Ended>> pool_;
};

}  // namespace headroom::step
