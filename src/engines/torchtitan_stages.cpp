#include "engines/torchtitan_stages.h"

#include <string>

namespace headroom::engines {

namespace {

constexpr int64_t kEnds = 2;  // embedding and head, a layer each

// REQUIRES: number > 0. `by` may be anything that a script says.
int64_t rounded_up(int64_t number, int64_t by) { return (number - 1) / by + 1; }

// Nothing where no number of layers makes so many parts.
std::optional<int64_t> layers_of_each(int64_t layers, int64_t parts) {
  const int64_t each = rounded_up(layers + kEnds, parts);
  if (rounded_up(layers + kEnds, each) != parts) return std::nullopt;
  return each;
}

// "vpp:2, vpp:3, vpp:6": what it has words for.
std::string sayable_chunks(const TorchtitanSchedule& schedule, int64_t stages, int64_t layers) {
  std::string words;
  for (int64_t chunks = schedule.chunks; chunks <= (layers + kEnds) / stages; ++chunks) {
    if (chunks != schedule.chunks && !layers_of_each(layers, stages * chunks)) continue;
    words += (words.empty() ? "vpp:" : ", vpp:") + std::to_string(chunks);
  }
  return words;
}

Error refuse(const std::string& what, const std::string& hint) {
  return Error{ErrorCode::usage, what, "--emit torchtitan", hint};
}

}  // namespace

Result<TorchtitanStages> torchtitan_stages(const TrainingSetup& setup,
                                           const TorchtitanConfig& config) {
  if (config.ties_ends) {
    return refuse("torchtitan's pipelines refuse a model whose head is the embedding",
                  "--method fsdp2:N");
  }
  const int64_t layers = config.layers;
  const TorchtitanSchedule* of_others = nullptr;  // the schedule, with other parts on a rank
  for (const TorchtitanSchedule& known : torchtitan_schedules()) {
    if (known.schedule != setup.schedule) continue;
    of_others = &known;
    if (setup.stage_chunks < known.chunks || setup.stage_chunks > known.most_chunks) continue;
    if (setup.stage_chunks == known.chunks) return TorchtitanStages{known.name, std::nullopt};
    const auto each = layers_of_each(layers, setup.stages * setup.stage_chunks);
    if (each) return TorchtitanStages{known.name, each};
    return refuse("no number of layers a part (pipeline_parallel_layers_per_stage) cuts " +
                      std::to_string(layers) + ", embedding and head into " +
                      std::to_string(setup.stages * setup.stage_chunks) + " parts",
                  "pp:" + std::to_string(setup.stages) + " with " +
                      sayable_chunks(known, setup.stages, layers));
  }
  if (of_others == nullptr) return refuse("torchtitan has no such schedule", "");
  const std::string parts = of_others->chunks == 1 ? "one part" : "two parts or more";
  return refuse(
      "torchtitan's " + std::string(of_others->name) + " has " + parts + " of the model on a rank",
      of_others->chunks == 1 ? "leave vpp:N out" : "vpp:2 beside pp:N");
}

Result<int64_t> chunks_by_layers(const TorchtitanSchedule& schedule, int64_t stages, int64_t layers,
                                 int64_t layers_per_stage) {
  const int64_t parts = rounded_up(layers + kEnds, layers_per_stage);
  const int64_t chunks = parts / stages;
  if (parts % stages == 0 && chunks >= schedule.chunks && chunks <= schedule.most_chunks) {
    return chunks;
  }
  const std::string ranks = " on " + std::to_string(stages) + " ranks";
  return Error{ErrorCode::bad_input,
               std::to_string(layers_per_stage) + " layers a part make " + std::to_string(parts) +
                   " parts of the model" + ranks + ", which " + std::string(schedule.name) +
                   " does not take",
               "", "torchtitan refuses it, too"};
}

}  // namespace headroom::engines
