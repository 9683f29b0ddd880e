#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "base/suggest.h"
#include "text/number.h"

namespace headroom::cli {
namespace {

Error usage(std::string message, std::string hint = {}) {
  return Error{ErrorCode::usage, std::move(message), {}, std::move(hint)};
}

Error unknown_flag(std::string_view word, std::span<const Flag> flags) {
  const std::string_view given = word.substr(0, word.find('='));
  std::string_view bare = given;
  bare.remove_prefix(std::min(bare.find_first_not_of('-'), bare.size()));
  std::vector<std::string_view> names;
  for (const Flag& flag : flags) names.push_back(flag.name);
  const std::string_view nearest = nearest_word(bare, names);
  return usage("there is no flag '" + std::string(given.substr(0, 80)) + "'",
               nearest.empty() ? "" : "did you mean --" + std::string(nearest) + "?");
}

// CLI11 names flags as "-o,--output".
std::string spelling(const Flag& flag) {
  std::string words = "--" + std::string(flag.name);
  if (flag.letter != 0) words = std::string("-") + flag.letter + "," + words;
  return words;
}

}  // namespace

Error not_a_number(std::string_view word, std::string_view flag, std::optional<NumberRange> range) {
  std::string hint;
  if (range) {
    hint = text::formatted("%.15g ", range->least);
    hint += std::isinf(range->most) ? "or more" : text::formatted("to %.15g", range->most);
  }
  return usage("'" + std::string(word.substr(0, 80)) + "' is not a number that --" +
                   std::string(flag) + " takes",
               std::move(hint));
}

Error one_word_too_many(std::string_view word) {
  return usage("one word too many: '" + std::string(word.substr(0, 80)) + "'");
}

bool Words::has(std::string_view name) const {
  return std::any_of(flags.begin(), flags.end(),
                     [&](const auto& flag) { return flag.first == name; });
}

std::string Words::value(std::string_view name) const {
  const auto flag = std::find_if(flags.rbegin(), flags.rend(),
                                 [&](const auto& entry) { return entry.first == name; });
  return flag == flags.rend() ? "" : flag->second;
}

std::vector<std::string> Words::values(std::string_view name) const {
  std::vector<std::string> all;
  for (const auto& [flag, value] : flags) {
    if (flag == name) all.push_back(value);
  }
  return all;
}

Result<Words> read_words(std::span<const Flag> flags, size_t most_operands,
                         std::span<const std::string> arguments) {
  Words words;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  for (const Flag& flag : flags) {
    const std::string name(flag.name);
    if (flag.value.empty()) {
      app.add_flag_callback(spelling(flag),
                            [&words, name] { words.flags.emplace_back(name, "true"); });
    } else {
      const std::function<void(const std::vector<std::string>&)> keep =
          [&words, name](const std::vector<std::string>& values) {
            for (const std::string& value : values) words.flags.emplace_back(name, value);
          };
      app.add_option_function(spelling(flag), keep)->allow_extra_args(false);
    }
  }
  // CLI11 takes the words from the back of the vector.
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string_view what = error.what();  // "--batch: 1 required TEXT missing"
    return usage(std::string(what.substr(0, what.find(':'))) + " needs a value");
  } catch (const CLI::Error& error) {
    return usage(error.what());
  }
  for (const Flag& flag : flags) {
    const std::vector<std::string> values = words.values(flag.name);
    const auto other =
        std::ranges::find_if(values, [&](const auto& value) { return value != values.back(); });
    if (flag.repeats || other == values.end()) continue;
    words.remarks.push_back("--" + std::string(flag.name) + " is given twice: " + values.back() +
                            " counts, not " + *other);
  }
  for (const std::string& word : app.remaining()) {
    const bool flag_like = word.size() > 1 && word.front() == '-';
    if (flag_like) return unknown_flag(word, flags);
    words.operands.push_back(word);
  }
  if (words.operands.size() > most_operands) {
    return one_word_too_many(words.operands[most_operands]);
  }
  return words;
}

size_t words_before_command(std::span<const Flag> flags, std::span<const std::string> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--") return i + 1;
    if (word.size() < 2 || word.front() != '-') return i;
    const bool has_value = word.find('=') != std::string::npos;
    for (const Flag& flag : flags) {
      const bool is_it = word == "--" + std::string(flag.name) ||
                         (flag.letter != 0 && word == std::string("-") + flag.letter);
      if (is_it && !flag.value.empty() && !has_value) ++i;
    }
  }
  return arguments.size();
}

}  // namespace headroom::cli
