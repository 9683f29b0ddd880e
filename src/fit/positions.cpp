#include "fit/positions.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace headroom::fit {

namespace {

constexpr int64_t kPositionsMax = int64_t{1} << 30;

// Families that look positions up in a table, learned or made once; read in transformers 5.23.
constexpr std::array<std::string_view, 7> kWithTable = {"biogpt",  "codegen", "gpt2", "gpt_bigcode",
                                                        "gpt_neo", "gptj",    "opt"};

}  // namespace

Result<std::optional<int64_t>> positions_of(const Scenario& scenario) {
  if (scenario.traced) return std::optional<int64_t>();
  const text::JsonView config = scenario.model->view();
  for (const char* key : {"max_position_embeddings", "n_positions", "n_ctx"}) {
    HEADROOM_ASSIGN(const auto positions, config.optional_int(key, 1, kPositionsMax));
    if (positions) return positions;
  }
  return std::optional<int64_t>();
}

Result<std::string> check_positions(const Scenario& scenario) {
  if (scenario.task != model::Task::causal_lm) return std::string();
  HEADROOM_ASSIGN(const auto positions, positions_of(scenario));
  if (!positions || scenario.question.seq <= *positions) return std::string();
  HEADROOM_ASSIGN(const std::string model_type, model_type_of(scenario));
  const std::string count = std::to_string(*positions);
  if (std::find(kWithTable.begin(), kWithTable.end(), model_type) != kWithTable.end()) {
    return Error{ErrorCode::usage,
                 std::to_string(scenario.question.seq) + " tokens, and " + scenario.model->name +
                     " has " + count + " positions",
                 "--seq", "--seq " + count + " or less"};
  }
  return "the model was made for " + count + " positions; a longer sequence runs all the same";
}

}  // namespace headroom::fit
