// Words of settings as the flags take them: tables of choices, and the refusal of other words.
#pragma once

#include <array>
#include <charconv>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/suggest.h"
#include "text/parse_number.h"

namespace headroom::fit {

// The words of a choice. Each table is the one place where its enumerators have names.
template <typename T>
struct Word {
  std::string_view word;
  T value;
};

// "'words' is not EXPECTED", with the nearest of what would do.
inline Error refuse(std::string_view name, std::string_view words, std::string expected,
                    std::string_view nearest = {}) {
  Error error;
  error.code = ErrorCode::usage;
  error.where = "--" + std::string(name);
  error.message = "'" + std::string(words.substr(0, 80)) + "' is not " + std::move(expected);
  if (!nearest.empty()) error.hint = "did you mean '" + std::string(nearest) + "'?";
  return error;
}

// The refusal of a word that is none of these.
inline Error refuse_choice(std::string_view name, std::string_view words,
                           std::span<const std::string_view> choices) {
  std::string expected = "one of ";
  for (const std::string_view choice : choices) {
    expected += (choice == choices.front() ? "" : ", ") + std::string(choice);
  }
  return refuse(name, words, std::move(expected), nearest_word(words, choices));
}

// A whole number from 1 to `most`.
inline Result<void> count(std::string_view name, std::string_view words, int64_t most,
                          int64_t& field) {
  const std::optional<int64_t> value = text::parse_number<int64_t>(words);
  if (!value || *value < 1 || *value > most) {
    return refuse(name, words, "a whole number from 1 to " + std::to_string(most));
  }
  field = *value;
  return {};
}

template <typename T, size_t N>
Result<void> choose(std::string_view name, std::string_view words,
                    const std::array<Word<T>, N>& table, T& field) {
  std::array<std::string_view, N> choices;
  for (size_t i = 0; i < N; ++i) {
    if (table[i].word == words) {
      field = table[i].value;
      return {};
    }
    choices[i] = table[i].word;
  }
  return refuse_choice(name, words, choices);
}

template <typename T, size_t N>
std::string word_of(const std::array<Word<T>, N>& table, T value) {
  for (const Word<T>& entry : table) {
    if (entry.value == value) return std::string(entry.word);
  }
  return {};
}

// The shortest that reads back the same.
inline std::string number_words(double number) {
  std::array<char, 32> digits{};
  const auto [end, code] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  return code == std::errc() ? std::string(digits.data(), end) : std::string();
}

}  // namespace headroom::fit
