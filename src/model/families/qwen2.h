#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_qwen2(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_qwen3(const text::JsonView& config, const BuildOptions& options);

// Models of text and images, trained on text alone.
Result<Graph> build_qwen2_vl(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_qwen2_5_vl(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_qwen3_vl(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
