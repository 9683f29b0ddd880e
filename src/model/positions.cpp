#include "model/positions.h"

namespace headroom::model {

Result<std::optional<int64_t>> positions_of(const text::JsonView& config) {
  constexpr int64_t kMost = int64_t{1} << 30;
  HEADROOM_ASSIGN(const auto inner, config.optional_object("text_config"));
  for (const text::JsonView* part : {&config, inner ? &*inner : nullptr}) {
    if (part == nullptr) continue;
    for (const char* key : {"n_positions", "max_position_embeddings", "n_ctx"}) {
      HEADROOM_ASSIGN(const auto positions, part->optional_int(key, 1, kMost));
      if (positions) return positions;
    }
  }
  return std::optional<int64_t>();
}

Result<std::optional<int64_t>> served_positions_of(const text::JsonView& config) {
  constexpr double kMostFactor = 1e6;
  HEADROOM_ASSIGN(auto positions, positions_of(config));
  if (!positions) return positions;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    HEADROOM_ASSIGN(const auto rope, config.optional_object(key));
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
