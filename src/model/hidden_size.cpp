#include "model/hidden_size.h"

#include "model/language_part.h"

namespace headroom::model {

Result<std::optional<int64_t>> hidden_size_of(const text::JsonView& config) {
  constexpr int64_t kMost = int64_t{1} << 24;
  HEADROOM_ASSIGN(const text::JsonView language, language_part(config));
  for (const text::JsonView* part : {&config, &language}) {
    for (const char* key : {"hidden_size", "n_embd", "n_embed", "d_model", "dim"}) {
      HEADROOM_ASSIGN(const auto size, part->optional_int(key, 1, kMost));
      if (size) return size;
    }
  }
  return std::optional<int64_t>();
}

}  // namespace headroom::model
