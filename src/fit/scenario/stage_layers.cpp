#include "fit/scenario/stage_layers.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "fit/scenario/errors.h"
#include "model/language_part.h"
#include "step/model_parts.h"

namespace headroom::fit {

namespace {

constexpr int64_t kMostLayers = 1024;

std::string words(int64_t number) { return std::to_string(number); }

Result<int64_t> layers_of_model(const Scenario& s) {
  HEADROOM_ASSIGN(const text::JsonView language, model::language_part(s.model->view()));
  HEADROOM_ASSIGN(const auto layers, language.optional_int("num_hidden_layers", 1, kMostLayers));
  if (layers) return *layers;
  return unsupported("method", "a pipeline of this architecture",
                     "llama, mistral, mixtral, qwen2, qwen3, gemma, phi3 and others are");
}

// Embedding and head may be a part each; one in between that only hands on is none.
Result<void> check_said(const std::vector<int64_t>& said, int64_t layers, int64_t parts) {
  const auto count = static_cast<int64_t>(said.size());
  if (count != parts) {
    return contradiction("stage-layers",
                         words(count) + " parts, and the method has " + words(parts),
                         "a number for each of " + words(parts));
  }
  const int64_t sum = std::accumulate(said.begin(), said.end(), int64_t{0});
  if (sum != layers) {
    return contradiction(
        "stage-layers",
        "these come to " + words(sum) + " layers, and the model has " + words(layers),
        "numbers that come to " + words(layers));
  }
  if (count > 2 && std::find(said.begin() + 1, said.end() - 1, 0) != said.end() - 1) {
    return contradiction("stage-layers", "a part between the first and the last has no layers",
                         "at least one layer for each of those");
  }
  return {};
}

size_t part_of(int64_t stage, int64_t chunk, const FitQuestion& q) {
  return static_cast<size_t>(step::part_of(q.stages, stage, chunk, step::is_mirrored(q.schedule)));
}

}  // namespace

Result<std::vector<int64_t>> layers_by_part(const Scenario& s) {
  const FitQuestion& q = s.question;
  HEADROOM_ASSIGN(const int64_t layers, layers_of_model(s));
  const int64_t parts = q.stages * parts_of_stage(q);
  if (!q.stage_layers.empty()) {
    HEADROOM_TRY(check_said(q.stage_layers, layers, parts));
    return q.stage_layers;
  }
  const auto all = step::model_parts(layers, parts);
  if (!all) {
    return contradiction("method",
                         words(layers) + " layers are too few for " + words(parts) + " parts",
                         "fewer stages, or fewer chunks of each");
  }
  std::vector<int64_t> shared;
  for (const model::ModelPart& part : *all) shared.push_back(part.layers);
  return shared;
}

std::vector<std::vector<int64_t>> by_stage(const std::vector<int64_t>& by_part,
                                           const FitQuestion& question) {
  std::vector<std::vector<int64_t>> stages(static_cast<size_t>(question.stages));
  for (int64_t stage = 0; stage < question.stages; ++stage) {
    for (int64_t chunk = 0; chunk < parts_of_stage(question); ++chunk) {
      stages[static_cast<size_t>(stage)].push_back(by_part[part_of(stage, chunk, question)]);
    }
  }
  return stages;
}

std::vector<int64_t> by_part(const std::vector<std::vector<int64_t>>& by_stage,
                             const FitQuestion& question) {
  std::vector<int64_t> parts(by_stage.size() * by_stage.front().size());
  for (size_t stage = 0; stage < by_stage.size(); ++stage) {
    for (size_t chunk = 0; chunk < by_stage[stage].size(); ++chunk) {
      parts[part_of(static_cast<int64_t>(stage), static_cast<int64_t>(chunk), question)] =
          by_stage[stage][chunk];
    }
  }
  return parts;
}

}  // namespace headroom::fit
