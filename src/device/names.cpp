#include "device/names.h"

#include <algorithm>
#include <array>
#include <utility>

namespace headroom::device {
namespace {

constexpr size_t kMaxBytes = 200;
constexpr size_t kMaxWords = 16;

constexpr std::array<std::string_view, 7> kIdleWords{"nvidia", "amd",      "tesla", "geforce",
                                                     "radeon", "instinct", "gpu"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "4070ti" for "ti": digits, then the ending.
bool is_number_with(std::string_view word, std::string_view ending) {
  if (!word.ends_with(ending) || word.size() == ending.size()) return false;
  word.remove_suffix(ending.size());
  return std::all_of(word.begin(), word.end(), is_digit);
}

std::vector<std::string> split(std::string_view name) {
  std::vector<std::string> words;
  std::string word;
  for (char c : name.substr(0, kMaxBytes)) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool inside = is_digit(c) || (c >= 'a' && c <= 'z');
    if (inside) word += c;
    if (!inside && !word.empty()) words.push_back(std::exchange(word, {}));
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

// "rtx3090" -> "rtx", "3090"; "4070ti" -> "4070", "ti"; "4080super" -> "4080", "super"; "sxm4" ->
// "sxm"; "80g" -> "80gb".
void append_normal(std::vector<std::string>& words, const std::string& word) {
  if (word.starts_with("rtx") && word.size() > 3) {
    words.emplace_back("rtx");
    append_normal(words, word.substr(3));
  } else if (is_number_with(word, "ti")) {
    words.push_back(word.substr(0, word.size() - 2));
    words.emplace_back("ti");
  } else if (is_number_with(word, "super")) {
    words.push_back(word.substr(0, word.size() - 5));
    words.emplace_back("super");
  } else if (word.starts_with("sxm") && word.size() == 4 && is_digit(word[3])) {
    words.emplace_back("sxm");
  } else if (is_number_with(word, "gib")) {
    words.push_back(word.substr(0, word.size() - 3) + "gb");
  } else if (is_number_with(word, "g")) {
    words.push_back(word + "b");
  } else if ((word == "gb" || word == "gib") && !words.empty() &&
             is_number_with(words.back(), "")) {
    words.back() += "gb";
  } else if (std::find(kIdleWords.begin(), kIdleWords.end(), word) == kIdleWords.end()) {
    words.push_back(word);
  }
}

std::vector<std::string> finish(std::vector<std::string> words) {
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  if (words.size() > kMaxWords) words.resize(kMaxWords);
  return words;
}

}  // namespace

std::vector<std::string> name_words(std::string_view name) {
  std::vector<std::string> words;
  for (const std::string& word : split(name)) append_normal(words, word);
  return finish(std::move(words));
}

std::vector<std::string> measurement_words(std::string_view text) {
  std::vector<std::string> words;
  for (const std::string& word : split(text.substr(0, text.find('(')))) {
    if (is_number_with(word, "x")) continue;
    append_normal(words, word == "nvlink" ? "sxm" : word);
  }
  return finish(std::move(words));
}

}  // namespace headroom::device
