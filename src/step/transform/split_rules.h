// Where a value that lies in parts among ranks is divided, and how an operator hands that on.
//
// Only sizes matter here: a rank's part of a dimension is as large as everyone's (the first rank's,
// where it does not come out even). In a dimension that holds several factors, such as packed
// matrices or (batch, heads) made one, the divided factor lies behind `outer` others.
//
// Rules are for plain operators in the shapes of the whole model. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/graph.h"
#include "operator/tensor.h"

namespace headroom::step {

struct Split {
  int dim = -1;       // of the whole value's dimensions; -1: every rank has all of it
  int64_t outer = 1;  // elements of that dimension before the divided factor
  explicit operator bool() const { return dim >= 0; }
  bool operator==(const Split&) const = default;
};

// This rank's sizes; the largest part where it does not come out even.
[[nodiscard]] op::Dims local_sizes(const op::Dims& whole, const Split& split, int64_t ranks);

// An operator on whole values, of which some are divided.
struct SplitQuestion {
  const model::Operation& operation;
  std::vector<op::Dims> inputs;  // whole sizes; empty for absent inputs
  std::vector<Split> splits;     // of the inputs
  std::vector<op::Dims> outputs;
  int64_t ranks = 1;
};

struct SplitAnswer {
  model::Attributes attributes;  // for the rank's own sizes
  std::vector<Split> outputs;
  std::vector<Split> cuts;  // by input: of a whole one the rank takes its part
};

// The Error names what cannot be divided.
[[nodiscard]] Result<SplitAnswer> split_of(const SplitQuestion& question);

}  // namespace headroom::step
