// What a recorded convolution had to do, forward and backward.
//
// Unlike other operators its work does not follow from the sizes of its tensors: stride and padding
// are among the numbers that Kineto keeps ("Concrete Inputs"), each library's operator at places of
// its own. Counted by the step model's convolution (operator/functional.h); backward is two such
// products, of the input's gradient and the weight's, or as many as were asked for. Transposed and
// dilated ones have no count. Pure, thread-safe.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ops/operator_work.h"

namespace headroom::ops {

[[nodiscard]] bool is_convolution(std::string_view name);

// REQUIRES: is_convolution(name).
std::optional<OperatorWork> work_of_convolution(std::string_view name,
                                                const std::vector<RecordedInput>& inputs);

}  // namespace headroom::ops
