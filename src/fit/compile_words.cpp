#include "fit/compile_words.h"

#include <algorithm>
#include <array>

#include "fit/words.h"

namespace headroom::fit {

Result<void> set_compile(std::string_view words, step::CompiledParts& parts) {
  constexpr std::array<std::string_view, 3> kParts{"none", "layers", "loss"};
  parts = {};
  if (words == kParts[0]) return {};
  for (size_t begin = 0; begin <= words.size();) {
    const size_t end = std::min(words.find(',', begin), words.size());
    const std::string_view part = words.substr(begin, end - begin);
    if (part == kParts[1]) {
      parts.layers = true;
    } else if (part == kParts[2]) {
      parts.loss = true;
    } else {
      return refuse_choice("compile", part, kParts);
    }
    begin = end + 1;
  }
  return {};
}

std::string compile_word(const step::CompiledParts& parts) {
  if (!parts.any()) return "none";
  return std::string(parts.layers ? "layers" : "") + (parts.layers && parts.loss ? "," : "") +
         (parts.loss ? "loss" : "");
}

}  // namespace headroom::fit
