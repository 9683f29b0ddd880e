// Gradients as a backward left them, for passes that are written and not run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "operator/eager.h"
#include "step/optimizer.h"

namespace headroom::step {

struct GradientRecord {
  op::Dims sizes;
  op::Dims strides;
  op::DType dtype{};
  uint32_t buffer = 0;

  // In all but the block that it stands in.
  [[nodiscard]] bool is_like(const GradientRecord& other) const {
    return sizes == other.sizes && strides == other.strides && dtype == other.dtype;
  }
};
using GradientRecords = std::vector<std::optional<GradientRecord>>;  // by parameter

[[nodiscard]] GradientRecords gradients_of(const std::vector<OptimizedParameter>& parameters);

// Hangs gradients of these layouts on the parameters, in the blocks that `block_of` says.
void hang_gradients(op::Eager& eager, const std::vector<OptimizedParameter>& parameters,
                    const GradientRecords& gradients,
                    const std::function<uint32_t(uint32_t buffer)>& block_of);

}  // namespace headroom::step
