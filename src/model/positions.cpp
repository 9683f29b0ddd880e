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

}  // namespace headroom::model
