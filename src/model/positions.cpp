#include "model/positions.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "model/language_part.h"

namespace headroom::model {

namespace {

// RoBERTa's and its like's positions begin behind that of padding, which is a row of the table as
// well.
Result<int64_t> rows_before_the_first(const text::JsonView& config) {
  HEADROOM_ASSIGN(const auto type, config.optional_string("model_type"));
  constexpr std::array<std::string_view, 4> kThese{"camembert", "mpnet", "roberta", "xlm-roberta"};
  if (!type || std::ranges::find(kThese, *type) == kThese.end()) return int64_t{0};
  constexpr int64_t kMost = int64_t{1} << 30;
  HEADROOM_ASSIGN(const auto padding, config.optional_int("pad_token_id", 0, kMost));
  return padding.value_or(1) + 1;
}

// Gemma 3 counts positions with the factor that its rotary embedding is stretched by, and does not
// say how many there were before; vLLM makes an exception of it as well.
Result<bool> counts_stretched_positions(const text::JsonView& language) {
  HEADROOM_ASSIGN(const auto type, language.optional_string("model_type"));
  return type && type->starts_with("gemma3");
}

}  // namespace

Result<std::optional<int64_t>> positions_of(const text::JsonView& config) {
  constexpr int64_t kMost = int64_t{1} << 30;
  HEADROOM_ASSIGN(const int64_t before, rows_before_the_first(config));
  HEADROOM_ASSIGN(const text::JsonView language, language_part(config));
  for (const text::JsonView* part : {&config, &language}) {
    for (const char* key : {"n_positions", "max_position_embeddings", "n_ctx"}) {
      HEADROOM_ASSIGN(const auto positions, part->optional_int(key, 1, kMost));
      if (positions) return std::optional(std::max<int64_t>(*positions - before, 1));
    }
  }
  return std::optional<int64_t>();
}

Result<std::optional<int64_t>> served_positions_of(const text::JsonView& config) {
  constexpr double kMostFactor = 1e6;
  HEADROOM_ASSIGN(auto positions, positions_of(config));
  if (!positions) return positions;
  HEADROOM_ASSIGN(const text::JsonView language, language_part(config));
  HEADROOM_ASSIGN(const bool is_stretched, counts_stretched_positions(language));
  if (is_stretched) return positions;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    HEADROOM_ASSIGN(const auto rope, language.optional_object(key));
    if (!rope) continue;
    HEADROOM_ASSIGN(const auto factor, rope->optional_double("factor", 0, kMostFactor));
    constexpr int64_t kMost = int64_t{1} << 53;
    HEADROOM_ASSIGN(const auto before,
                    rope->optional_int("original_max_position_embeddings", 0, kMost));
    if (before || !factor || *factor <= 1) continue;
    positions = static_cast<int64_t>(static_cast<double>(*positions) * *factor);
    break;
  }
  return positions;
}

}  // namespace headroom::model
