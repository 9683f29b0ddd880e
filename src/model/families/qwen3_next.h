#pragma once

#include "model/graph.h"
#include "model/options.h"
#include "text/json.h"

namespace headroom::model {

Result<Graph> build_qwen3_next(const text::JsonView& config, const BuildOptions& options);
// Qwen3.5's language models, and those inside its models of text and images ("text_config").
Result<Graph> build_qwen3_5(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_qwen3_5_moe(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
