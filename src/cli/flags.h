// Flags as data: a verb lists what it takes, and the words of a command line are read by that list.
//
// The only file that knows the library behind it is flags.cpp. Pure, thread-safe, microseconds.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/parse_number.h"

namespace headroom::cli {

// The numbers that a flag takes; `most` may be infinite.
struct NumberRange {
  double least = 0;
  double most = std::numeric_limits<double>::infinity();
};
[[nodiscard]] Error not_a_number(std::string_view word, std::string_view flag,
                                 std::optional<NumberRange> range = std::nullopt);

[[nodiscard]] Error one_word_too_many(std::string_view word);

struct Flag {
  std::string_view name;   // without dashes
  std::string_view value;  // what stands behind it, "FILE"; empty for a switch
  std::string_view help;
  char letter = 0;       // "-o"; 0: none
  bool repeats = false;  // may be given more than once, each time with a value of its own
};

// What was said, in the order in which it was said.
struct Words {
  std::vector<std::string> operands;
  std::vector<std::pair<std::string, std::string>> flags;  // name and value; "true" for a switch
  std::vector<std::string> remarks;                        // on what was said and does not count
  std::vector<std::string> command;  // of a verb that takes one: its words, as they are

  [[nodiscard]] bool has(std::string_view name) const;
  // The last value of that flag, or "".
  [[nodiscard]] std::string value(std::string_view name) const;
  // Of a flag that may be given more than once, in the order of the command line.
  [[nodiscard]] std::vector<std::string> values(std::string_view name) const;
};

// The number behind a flag; else a usage error that names it.
template <typename T>
Result<T> number_of(std::string_view word, std::string_view flag,
                    T least = std::numeric_limits<T>::lowest(),
                    T most = std::numeric_limits<T>::max()) {
  const std::optional<T> value = text::parse_number<T>(word);
  if (value && *value >= least && *value <= most) return *value;
  if (least == std::numeric_limits<T>::lowest()) return not_a_number(word, flag);
  NumberRange range{static_cast<double>(least)};
  if (most < std::numeric_limits<T>::max()) range.most = static_cast<double>(most);
  return not_a_number(word, flag, range);
}

// The words of `arguments` by `flags`. A flag that is not in the list is a usage error that names
// the nearest one; so is a value that is missing, and more than `most_operands` operands. Of a flag
// that counts once the last value does, so that words can be put behind those of a script.
Result<Words> read_words(std::span<const Flag> flags, size_t most_operands,
                         std::span<const std::string> arguments);

// How many of the words are ours before another program's command begins: behind the first "--",
// or at the first word that is neither a flag of `flags` nor its value. "--" itself is counted.
[[nodiscard]] size_t words_before_command(std::span<const Flag> flags,
                                          std::span<const std::string> arguments);

}  // namespace headroom::cli
