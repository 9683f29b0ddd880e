// What a recorded operator had to do: the FLOPs and bytes of its shapes, counted by the operators
// of the step model (operator/functional.h), so that `ops` and `fit` count alike.
//
// The operator runs on symbolic tensors of the recorded shapes. Bytes are what the algorithm must
// move at least once. An operator that is not in the table, whose shapes were not recorded or do
// not fit, has no count: none is guessed. Pure, thread-safe, some microseconds.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "operator/tensor.h"

namespace headroom::ops {

// One input as a profiler records it; what is no tensor has no sizes.
struct RecordedInput {
  std::vector<int64_t> sizes;
  std::optional<op::DType> dtype;  // of a tensor
};

struct OperatorWork {
  double flops = 0;
  double bytes = 0;
  op::DType dtype = op::DType::f32;  // of the operands
  bool is_product = false;           // runs in matrix units: a GEMM or attention
};

// "[[64,512],[512]] [\"float\",\"float\"]", as readers keep it (formats/trace.h). A list of tensors
// is that many inputs. Nothing where the text says something else.
std::optional<std::vector<RecordedInput>> parse_inputs(std::string_view detail);

std::optional<OperatorWork> work_of_operator(std::string_view name,
                                             const std::vector<RecordedInput>& inputs);

}  // namespace headroom::ops
