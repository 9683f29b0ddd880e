#include "fit/compile_words.h"

#include <algorithm>
#include <array>

#include "fit/words.h"

namespace headroom::fit {

Result<void> set_compile(std::string_view words, step::CompiledParts& parts) {
  constexpr std::array<std::string_view, 4> kParts{"none", "layers", "loss", "model"};
  parts = {};
  if (words == kParts[0]) return {};
  for (size_t begin = 0; begin <= words.size();) {
    const size_t end = std::min(words.find(',', begin), words.size());
    const std::string_view part = words.substr(begin, end - begin);
    if (part == kParts[1]) {
      parts.layers = true;
    } else if (part == kParts[2]) {
      parts.loss = true;
    } else if (part == kParts[3]) {
      parts.model = true;
    } else {
      return refuse_choice("compile", part, kParts);
    }
    begin = end + 1;
  }
  if (parts.model && (parts.layers || parts.loss)) {
    return Error{ErrorCode::usage, "the whole model has its layers and its loss in it", "--compile",
                 "--compile model"};
  }
  return {};
}

std::string compile_word(const step::CompiledParts& parts) {
  if (!parts.any()) return "none";
  if (parts.model) return "model";
  return std::string(parts.layers ? "layers" : "") + (parts.layers && parts.loss ? "," : "") +
         (parts.loss ? "loss" : "");
}

}  // namespace headroom::fit
