#include "fit/positions.h"

#include "model/positions.h"

namespace headroom::fit {

Result<std::optional<int64_t>> positions_of(const Scenario& scenario) {
  if (scenario.traced || scenario.task == model::Task::seq2seq_lm) return std::optional<int64_t>();
  if (const auto& megatron = scenario.question.megatron) {
    const int64_t positions = megatron->stage.model.positions;
    return positions > 0 ? std::optional(positions) : std::nullopt;
  }
  return model::positions_of(scenario.model->view());
}

Result<std::string> beyond_positions(const Scenario& scenario) {
  HEADROOM_ASSIGN(const auto positions, positions_of(scenario));
  if (!positions || scenario.question.seq <= *positions) return std::string();
  return "the model was made for " + std::to_string(*positions) +
         " positions; a longer sequence runs all the same";
}

}  // namespace headroom::fit
