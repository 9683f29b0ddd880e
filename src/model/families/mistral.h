#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_mistral(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_ministral3(const text::JsonView& config, const BuildOptions& options);
// A model of text and images, trained on text alone.
Result<Graph> build_mistral3(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
