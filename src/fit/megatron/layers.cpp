#include "fit/megatron/layers.h"

#include <algorithm>
#include <numeric>

namespace headroom::fit {

namespace {

using Stages = std::vector<std::vector<int64_t>>;

constexpr int64_t kMostStages = 1024;
constexpr int64_t kMostLayers = 1024;
// Of all stages: each is run on its own, with about as many micro-batches as stages, each of which
// passes through all of its chunks and their layers.
constexpr int64_t kMostRuns = 32'768;

Error undivided(const std::string& what, const std::string& file) {
  return Error{ErrorCode::bad_input, what, file, ""};
}

// Part c * stages + s is chunk c of stage s.
Result<Stages> stages_of_layout(const engines::MegatronArguments& from, const std::string& file) {
  const std::vector<int64_t>& layout = from.layout;
  const auto stages = static_cast<size_t>(from.stages);
  const int64_t layers = std::accumulate(layout.begin(), layout.end(), int64_t{0});
  if (layout.size() % stages != 0 || layers != from.layers) {
    return undivided("the pipeline's layout has " + std::to_string(layout.size()) + " parts and " +
                         std::to_string(layers) + " layers, for " + std::to_string(stages) +
                         " stages and " + std::to_string(from.layers) + " layers",
                     file);
  }
  Stages by_stage(stages);
  for (size_t i = 0; i < layout.size(); ++i) by_stage[i % stages].push_back(layout[i]);
  return by_stage;
}

// Layers of each stage where nobody says which; embedding and loss may count as layers.
Result<std::vector<int64_t>> layers_of_stages(const engines::MegatronArguments& from,
                                              const std::string& file) {
  int64_t layers = from.layers + (from.embedding_is_layer ? 1 : 0) + (from.loss_is_layer ? 1 : 0);
  int64_t stages = from.stages;
  for (const auto& given : {from.first_layers, from.last_layers}) {
    if (!given) continue;
    layers -= *given;
    --stages;
  }
  const bool counts_twice =
      (from.first_layers || from.last_layers) && (from.embedding_is_layer || from.loss_is_layer);
  const bool divides = stages > 0 ? layers >= 0 && layers % stages == 0 : layers == 0;
  if (stages < 0 || !divides || counts_twice) {
    return undivided(std::to_string(from.layers) + " layers cannot be divided among " +
                         std::to_string(from.stages) + " stages",
                     file);
  }
  std::vector<int64_t> all(static_cast<size_t>(from.stages), stages > 0 ? layers / stages : 0);
  if (from.first_layers) all.front() = *from.first_layers;
  if (from.last_layers) all.back() = *from.last_layers;
  return all;
}

Result<int64_t> chunks_of(const engines::MegatronArguments& from, int64_t stage_layers,
                          const std::string& file) {
  if (from.chunks) return *from.chunks;
  if (!from.chunk_layers) return 1;
  if (stage_layers % *from.chunk_layers == 0 && !from.first_layers && !from.last_layers) {
    return std::max<int64_t>(stage_layers / *from.chunk_layers, 1);
  }
  return undivided(
      "a stage's layers cannot be divided into chunks of " + std::to_string(*from.chunk_layers),
      file);
}

}  // namespace

namespace {

Result<Stages> divided_layers(const engines::MegatronArguments& from, const std::string& file) {
  if (from.stages > kMostStages || from.layers > kMostLayers) {
    return undivided("more than " + std::to_string(kMostStages) + " stages or " +
                         std::to_string(kMostLayers) + " layers",
                     file);
  }
  if (!from.layout.empty()) return stages_of_layout(from, file);
  HEADROOM_ASSIGN(const auto layers, layers_of_stages(from, file));
  HEADROOM_ASSIGN(const int64_t chunks, chunks_of(from, layers.front(), file));
  Stages by_stage;
  for (const int64_t stage_layers : layers) {
    if (chunks > kMostLayers || stage_layers % chunks != 0) {
      return undivided(std::to_string(stage_layers) + " layers of a stage cannot be divided into " +
                           std::to_string(chunks) + " chunks",
                       file);
    }
    by_stage.emplace_back(static_cast<size_t>(chunks), stage_layers / chunks);
  }
  if (from.embedding_is_layer) --by_stage.front().front();
  if (from.loss_is_layer) --by_stage.back().back();
  if (by_stage.front().front() >= 0 && by_stage.back().back() >= 0) return by_stage;
  return undivided("the first or the last chunk would have less than no layer", file);
}

}  // namespace

Result<void> check_passes(int64_t stages, int64_t chunks, int64_t layers) {
  const bool is_small = stages <= kMostStages && chunks <= kMostLayers && layers <= kMostLayers;
  if (is_small && stages * stages * (chunks + layers) <= kMostRuns) return {};
  return undivided(std::to_string(stages) + " stages of " + std::to_string(chunks) +
                       " chunks and " + std::to_string(layers) +
                       " layers are more than can be gone through",
                   "");
}

Result<Stages> layers_by_stage(const engines::MegatronArguments& from, const std::string& file) {
  HEADROOM_ASSIGN(Stages stages, divided_layers(from, file));
  int64_t most = 0;
  for (const std::vector<int64_t>& chunks : stages) {
    most = std::max(most, std::accumulate(chunks.begin(), chunks.end(), int64_t{0}));
  }
  const auto bounded = check_passes(from.stages, static_cast<int64_t>(stages[0].size()), most);
  if (!bounded) return undivided(bounded.error().message, file);
  return stages;
}

}  // namespace headroom::fit
