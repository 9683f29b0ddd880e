// torchtitan's registry and arguments, as data: configurations whose step is modelled, with what
// they say; arguments that change no memory, and those that change it in a way that is not
// modelled.
//
// Sources: torchtitan 0.3.0, models/{llama3,qwen3}/config_registry.py, config/configs.py,
// trainer.py, distributed/pipeline_parallel.py.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engines/training_setup.h"

namespace headroom::engines {

struct TorchtitanConfig {
  std::string_view module;  // --module
  std::string_view name;    // --config
  std::string_view model;   // by Hugging Face's id
  int64_t batch;
  int64_t sequence;
  int64_t tensor_ranks;
  int64_t layers;
  bool ties_ends;           // the head is the embedding, which torchtitan's pipelines refuse
  bool checkpoints_layers;  // whole ones; else half of the products are kept
};
[[nodiscard]] std::span<const TorchtitanConfig> torchtitan_configs();
// Of --parallelism.pipeline_parallel_schedule, those that are modelled.
struct TorchtitanSchedule {
  std::string_view name;
  StageSchedule schedule;
  int64_t chunks;       // on a rank, where nobody says how many layers each has: the fewest
  int64_t most_chunks;  // where somebody does
};
[[nodiscard]] std::span<const TorchtitanSchedule> torchtitan_schedules();
[[nodiscard]] std::span<const std::string_view> torchtitan_not_modelled();  // switches
[[nodiscard]] bool is_harmless_to_torchtitan(std::string_view name);

}  // namespace headroom::engines
