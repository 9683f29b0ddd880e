// How torchtitan (0.3.0) says which parts of a model the ranks of a pipeline have: a schedule's
// name, whose kind has one part on a rank or several, and, where several are not two, how many
// layers each part has. Embedding and head count as one layer each; what is left over is the first
// parts'.
//
// Sources: torchtitan/distributed/pipeline_parallel.py, _get_pipeline_metadata;
// models/common/decoder.py, update_from_config.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "engines/torchtitan_names.h"
#include "engines/training_setup.h"

namespace headroom::engines {

struct TorchtitanStages {
  std::string_view schedule;
  std::optional<int64_t> layers_per_stage;  // nothing where the schedule's own number of parts is
};

// Of a model of its registry. The Error says why it has no words for the setup's pipeline.
// REQUIRES: setup.stages > 1.
Result<TorchtitanStages> torchtitan_stages(const TrainingSetup& setup,
                                           const TorchtitanConfig& config);

// How many parts a rank has, by how many layers each has. The Error is torchtitan's own.
Result<int64_t> chunks_by_layers(const TorchtitanSchedule& schedule, int64_t stages, int64_t layers,
                                 int64_t layers_per_stage);

}  // namespace headroom::engines
