// The names of PyTorch's operators in a trace, as kinds of ours.
#pragma once

#include <cstddef>
#include <string_view>

#include "operator/kind.h"

namespace headroom::model {

struct KnownOperator {
  op::OpKind kind = op::OpKind::opaque;
  bool product = false;  // a matrix product, whose first factor is argument `first_factor`
  size_t first_factor = 0;
  bool starts_loss = false;
};

// `name` as a trace writes it, "aten.addmm.default"; opaque where it is not known.
[[nodiscard]] KnownOperator known_operator(std::string_view name);

}  // namespace headroom::model
