// The names of PyTorch's operators in a trace, as kinds of ours.
#pragma once

#include <string_view>

#include "operator/kind.h"

namespace headroom::model {

struct KnownOperator {
  op::OpKind kind = op::OpKind::opaque;
  std::string_view factor;  // of a matrix product: the argument that is its first factor
  bool starts_loss = false;
};

// `name` as a trace writes it, "aten.addmm.default"; opaque where it is not known.
[[nodiscard]] KnownOperator known_operator(std::string_view name);

}  // namespace headroom::model
