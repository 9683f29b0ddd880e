// What Gemma 4 holds besides its language model: what reads images and sounds. A step on text alone
// has its parameters in memory, gives them no gradient, and so no state of an optimizer.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "model/builder.h"
#include "text/json.h"

namespace headroom::model {

// Two functions that declare, in the order of named_parameters() and named_buffers(), what lies on
// either side of model.language_model; lm_head comes behind both. They may always be called.
struct Gemma4Towers {
  std::function<void(GraphBuilder&)> before;  // vision_tower
  std::function<void(GraphBuilder&)> behind;  // audio_tower, embed_vision, embed_audio
};

// Reads "vision_config" and "audio_config" of a whole config, either of which may be missing or
// null: then there is no such part. Its language model is `text_hidden` wide. Errors: a size out of
// bounds, or one of which transformers makes no model.
[[nodiscard]] Result<Gemma4Towers> gemma4_towers(const text::JsonView& json, int64_t text_hidden);

}  // namespace headroom::model
