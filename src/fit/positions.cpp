#include "fit/positions.h"

namespace headroom::fit {

namespace {

constexpr int64_t kPositionsMax = int64_t{1} << 30;

}  // namespace

Result<std::optional<int64_t>> positions_of(const Scenario& scenario) {
  if (scenario.traced || scenario.task == model::Task::seq2seq_lm) return std::optional<int64_t>();
  if (const auto& megatron = scenario.question.megatron) {
    const int64_t positions = megatron->stage.model.positions;
    return positions > 0 ? std::optional(positions) : std::nullopt;
  }
  const text::JsonView config = scenario.model->view();
  for (const char* key : {"n_positions", "max_position_embeddings", "n_ctx"}) {
    HEADROOM_ASSIGN(const auto positions, config.optional_int(key, 1, kPositionsMax));
    if (positions) return positions;
  }
  return std::optional<int64_t>();
}

Result<std::string> beyond_positions(const Scenario& scenario) {
  HEADROOM_ASSIGN(const auto positions, positions_of(scenario));
  if (!positions || scenario.question.seq <= *positions) return std::string();
  return "the model was made for " + std::to_string(*positions) +
         " positions; a longer sequence runs all the same";
}

}  // namespace headroom::fit
