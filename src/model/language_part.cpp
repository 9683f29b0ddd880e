#include "model/language_part.h"

namespace headroom::model {

Result<text::JsonView> language_part(const text::JsonView& config) {
  HEADROOM_ASSIGN(const auto part, config.optional_object(kLanguagePartKey));
  return part ? *part : config;
}

}  // namespace headroom::model
