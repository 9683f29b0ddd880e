#include "engines/shell_arguments.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "text/parse_number.h"

namespace headroom::engines {

namespace {

constexpr int64_t kMost = int64_t{1} << 31;
constexpr size_t kMostPutIn = size_t{1} << 20;  // bytes, of all that is handed on

// What stands behind all arguments: a redirection, a pipe, and those of the script itself.
bool ends_values(const ShellWord& word) {
  if (word.text == "$@" || word.text == "$*") return true;
  const size_t at = word.text.find_first_not_of("0123456789");
  return !word.is_quoted && at != std::string::npos &&
         std::string_view("<>|&").find(word.text[at]) != std::string_view::npos;
}

// More than names that are put in.
bool needs_a_shell(std::string_view value) {
  return value.starts_with('~') || value.ends_with(',') ||
         value.find_first_of("$`*?[{<>|&();\\") != std::string_view::npos;
}

std::vector<std::string> words_in(const std::string& value) {
  std::istringstream in(value);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(std::move(word));
  return words;
}

// Of an argument.
bool is_name(std::string_view word) {
  return !word.empty() && word.find_first_not_of(
                              "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") ==
                              std::string_view::npos;
}

// "$NAME" of $NAME, ${NAME} and ${NAME:?}; nothing of what is no name of the environment's.
std::string of_the_environment(std::string_view word) {
  std::string_view name = word.substr(1);
  if (name.starts_with('{') && name.ends_with('}')) name = name.substr(1, name.size() - 2);
  if (name.ends_with(":?")) name.remove_suffix(2);
  return is_shell_name(name) && (name[0] < '0' || name[0] > '9') ? "$" + std::string(name) : "";
}

}  // namespace

ShellArguments::ShellArguments(ShellWords script, std::string file)
    : script_(std::move(script)), file_(std::move(file)) {}

Result<std::optional<std::string>> ShellArguments::words(std::string_view name) {
  seen_.emplace_back(name);
  const auto written = script_.written(name);
  if (!written) return std::optional<std::string>();
  auto resolved = script_.resolved(*written);
  if (resolved) return resolved;
  return Error{ErrorCode::bad_input,
               "--" + std::string(name) + " is '" + written->substr(0, 60) +
                   "', which the file does not give",
               file_, "write the number"};
}

Result<std::optional<std::string>> ShellArguments::list(std::string_view name) {
  HEADROOM_ASSIGN(auto first, words(name));
  const auto more = script_.more_of(name);
  if (!first || !more) return first;
  return std::optional(*first + " " + *more);
}

Result<std::optional<int64_t>> ShellArguments::number(std::string_view name, int64_t least) {
  HEADROOM_ASSIGN(const auto value, words(name));
  if (!value) return std::optional<int64_t>();
  const auto parsed = text::parse_number<int64_t>(*value);
  if (!parsed || *parsed < least || *parsed > kMost) {
    return Error{ErrorCode::bad_input,
                 "--" + std::string(name) + " is '" + value->substr(0, 60) + "'", file_,
                 "a whole number from " + std::to_string(least) + " on"};
  }
  return parsed;
}

std::optional<int64_t> ShellArguments::number_if_any(std::string_view name) {
  const auto value = number(name);
  return value ? *value : std::nullopt;
}

Result<void> ShellArguments::take(std::string_view name, int64_t& to, int64_t least) {
  HEADROOM_ASSIGN(const auto value, number(name, least));
  if (value) to = *value;
  return {};
}

Result<void> ShellArguments::take(std::string_view name, double& to) {
  HEADROOM_ASSIGN(const auto value, words(name));
  if (!value) return {};
  const auto parsed = text::parse_number<double>(*value);
  if (!parsed || !(*parsed >= 0) || !(*parsed < 1)) {
    return Error{ErrorCode::bad_input,
                 "--" + std::string(name) + " is '" + value->substr(0, 60) + "'", file_,
                 "from 0 to below 1"};
  }
  to = *parsed;
  return {};
}

bool ShellArguments::is_on(std::string_view name) {
  seen_.emplace_back(name);
  const auto written = script_.written(name);
  return written && *written != "false" && *written != "False";
}

std::string ShellArguments::allocator() {
  for (const char* name : {"$PYTORCH_CUDA_ALLOC_CONF", "$PYTORCH_ALLOC_CONF"}) {
    if (auto said = script_.resolved(name)) return *said;
  }
  return "";
}

// What a shell makes of a word: none of a name that holds other arguments; nothing where that
// needs more of a shell.
std::optional<std::vector<std::string>> ShellArguments::handed_on(const ShellWord& word) {
  if (word.is_torn || word.is_of_phrase || word.list > 0) return std::nullopt;
  const bool is_literal = word.text.find_first_of("$`") == std::string::npos;
  if (word.is_quoted && is_literal) return std::vector{word.text};
  const auto value = script_.resolved(word.text);
  if (!value) {
    std::string name = of_the_environment(word.text);
    return name.empty() ? std::nullopt : std::optional(std::vector{std::move(name)});
  }
  if (value->starts_with("--")) return std::vector<std::string>();
  // What is put in would give a name where it is written out.
  const bool gives_name = *value != word.text && value->find('=') != std::string::npos;
  put_in_ += value->size();
  if (gives_name || value->empty() || put_in_ > kMostPutIn || needs_a_shell(*value))
    return std::nullopt;
  std::vector<std::string> words = words_in(*value);
  const bool is_one = word.is_quoted && !word.text.ends_with("[@]}");
  return is_one && words.size() > 1 ? std::nullopt : std::optional(std::move(words));
}

std::optional<OtherArgument> ShellArguments::other(const std::string& name) {
  OtherArgument argument{name, {}, is_name(name)};
  if (!argument.is_given) return argument;
  const bool is_mapped = script_.is_mapped(name);
  for (const ShellWord& word : script_.words_of(name)) {
    if (ends_values(word)) break;
    if (is_mapped && (word.text == "false" || word.text == "False")) return std::nullopt;
    if (is_mapped && (word.text == "true" || word.text == "True")) break;
    const auto words = handed_on(word);
    if (!words) return OtherArgument{name, {}, false};
    if (words->empty()) break;
    argument.words.insert(argument.words.end(), words->begin(), words->end());
  }
  return argument;
}

bool ShellArguments::was_asked(const std::string& name) const {
  return std::ranges::find(seen_, name) != seen_.end();
}

}  // namespace headroom::engines
