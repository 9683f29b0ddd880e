// Megatron-LM's words for what each part of a pipeline holds (--pipeline-model-parallel-layout):
// "Et*3|(tt|)*6L" is the embedding and three layers, six times two layers, and the loss.
//
// Source: megatron/core/transformer/pipeline_parallel_layer_layout.py at d98e8a64.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headroom::engines {

// Layers by part, in the model's order. The Error names what is no layout: other letters than E, t
// and L, an embedding that is not the first or a loss that is not the last, more than 4,096 parts
// or layers.
Result<std::vector<int64_t>> read_pipeline_layout(std::string_view words, const std::string& file);

// The words for them. REQUIRES: a part is there.
[[nodiscard]] std::string pipeline_layout_words(const std::vector<int64_t>& layers);

}  // namespace headroom::engines
