// Decoders with mixtures of experts.
#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_mixtral(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_qwen2_moe(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_qwen3_moe(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_glm4_moe(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_minimax_m2(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_gpt_oss(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_granitemoe(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_deepseek_v2(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_glm_moe_dsa(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_deepseek_v3(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
