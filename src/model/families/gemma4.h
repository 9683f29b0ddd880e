#pragma once

#include "model/families/family.h"

namespace headroom::model {

// A model of text, images and sounds, trained on text alone.
Result<Graph> build_gemma4(const text::JsonView& config, const BuildOptions& options);
// The language model alone.
Result<Graph> build_gemma4_text(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
