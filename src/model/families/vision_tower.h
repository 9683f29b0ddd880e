// The part of a model of text and images that reads images, as what it holds: a step on text alone
// has its parameters in memory, gives them no gradient, and so no state of an optimizer.
#pragma once

#include <functional>

#include "base/result.h"
#include "model/builder.h"
#include "text/json.h"

namespace headroom::model {

// Declares the parameters and buffers of a tower and of what joins it to the language model, in the
// order of the modules' constructors.
using VisionTower = std::function<void(GraphBuilder&)>;

// Each reads "vision_config" of a whole config, whose language model is `hidden` wide. Errors: a
// size that is not there, or out of bounds.
[[nodiscard]] Result<VisionTower> siglip_tower(const text::JsonView& config, int64_t hidden);
[[nodiscard]] Result<VisionTower> pixtral_tower(const text::JsonView& config, int64_t hidden);
[[nodiscard]] Result<VisionTower> qwen2_tower(const text::JsonView& config);
[[nodiscard]] Result<VisionTower> qwen2_5_tower(const text::JsonView& config);
[[nodiscard]] Result<VisionTower> qwen3_tower(const text::JsonView& config);

}  // namespace headroom::model
