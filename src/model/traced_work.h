// What a traced operator computes: a multiplication and an addition are two operations.
//
// Products, convolutions and attention; nothing else is counted (operator/eager.h says the same of
// a family's operators). Causal attention is half of all pairs. Source of the arguments' names:
// PyTorch's schemas (aten/src/ATen/native/native_functions.yaml).
#pragma once

#include <string_view>

#include "model/traced_values.h"

namespace headroom::model {

// `name` as the trace writes it, "aten.addmm.default"; `args` its arguments, whose values are of
// `values`; `output` the sizes of its first output. 0 where it is none of those, or where the sizes
// do not belong together. Constant time.
[[nodiscard]] double work_of(std::string_view name, const text::Json& args,
                             const TracedValues& values, const op::Dims& output);

}  // namespace headroom::model
