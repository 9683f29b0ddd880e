// Which layers the stages of a pipeline have: as somebody says, or as torchtitan shares them out,
// where the embedding and the head count as a layer each, and what does not come out even goes to
// the first stages.
// Source: torchtitan/distributed/pipeline_parallel.py (generate_llm_fqn_per_model_part).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/options.h"

namespace headroom::step {

// Of `parts` in all, in the order in which a micro-batch goes through them. Nothing where one would
// have neither a layer nor more than an end of the model. REQUIRES: both at least 1.
[[nodiscard]] std::optional<std::vector<model::ModelPart>> model_parts(int64_t layers,
                                                                       int64_t parts);

// Of so many layers each. REQUIRES: there is a part.
[[nodiscard]] std::vector<model::ModelPart> model_parts(std::span<const int64_t> layers);

// Which of the parts is a rank's chunk: those that lie so many apart from its own on; of a mirrored
// pipeline's two a rank, the second one as far from the end as the first from the beginning.
[[nodiscard]] int64_t part_of(int64_t ranks, int64_t rank, int64_t chunk, bool is_mirrored);
// Those that a rank has. REQUIRES: of a mirrored pipeline's, two a rank.
[[nodiscard]] std::vector<model::ModelPart> parts_of_rank(const std::vector<model::ModelPart>& all,
                                                          int64_t ranks, int64_t rank,
                                                          bool is_mirrored = false);

}  // namespace headroom::step
