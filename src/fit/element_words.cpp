#include "fit/element_words.h"

#include <string>

#include "fit/question.h"
#include "fit/words.h"
#include "text/parse_number.h"

namespace headroom::fit {

namespace {

constexpr int64_t kElementsMax = 1'000'000'000'000;
constexpr std::string_view kAuto = "auto";

}  // namespace

Result<void> set_elements(std::string_view name, std::string_view words, int64_t least,
                          int64_t& field) {
  const std::optional<int64_t> value = text::parse_number<int64_t>(words);
  if (!value || *value < least || *value > kElementsMax) {
    return refuse(
        name, words,
        "a whole number from " + std::to_string(least) + " to " + std::to_string(kElementsMax));
  }
  field = *value;
  return {};
}

Result<void> set_elements_or_auto(std::string_view name, std::string_view words, int64_t least,
                                  int64_t& field) {
  if (words == kAuto) {
    field = kOfHiddenSize;
    return {};
  }
  Result<void> read = set_elements(name, words, least, field);
  return read ? read
              : refuse(name, words,
                       "a number of elements from " + std::to_string(least) + " on, or auto");
}

std::string elements_words(int64_t elements) {
  return elements == kOfHiddenSize ? std::string(kAuto) : std::to_string(elements);
}

}  // namespace headroom::fit
