// Decoders with mixtures of experts.
#pragma once

#include "model/families/family.h"

namespace headroom::model {

Result<Graph> build_mixtral(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_qwen2_moe(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_qwen3_moe(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_olmoe(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_glm4_moe(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_dots1(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_llama4(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_phimoe(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_ernie4_5_moe(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_minimax_m2(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_gpt_oss(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_granitemoe(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_deepseek_v2(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_glm_moe_dsa(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_glm4_moe_lite(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_deepseek_v3(const text::JsonView& config, const BuildOptions& options);
Result<Graph> build_deepseek_v32(const text::JsonView& config, const BuildOptions& options);

}  // namespace headroom::model
