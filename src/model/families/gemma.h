#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_gemma(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_gemma2(const text::JsonView& config, const BuildOptions& options);
// A model of text and images, trained on text alone.
Result<Graph> build_gemma3_with_images(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_gemma3(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
