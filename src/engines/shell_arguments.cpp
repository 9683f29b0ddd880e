#include "engines/shell_arguments.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "text/parse_number.h"

namespace headroom::engines {

namespace {

constexpr int64_t kMost = int64_t{1} << 31;

// What a shell does itself: pipes, redirections, what an array or the script's own words hold. And
// the program behind its launcher's last switch.
bool ends_values(std::string_view word) {
  return word.find_first_of("<>|&") != std::string_view::npos || word.ends_with("[@]}") ||
         word.ends_with("[*]}") || word == "$@" || word == "$*" || word.ends_with(".py");
}

// Of an argument, or of an environment's.
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
  return is_name(name) && (name[0] < '0' || name[0] > '9') ? "$" + std::string(name) : "";
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

std::optional<OtherArgument> ShellArguments::other(const std::string& name) {
  OtherArgument argument{name, {}, is_name(name)};
  if (!argument.is_given) return argument;
  std::istringstream words(*script_.written(name) + " " + script_.more_of(name).value_or(""));
  for (std::string word; words >> word && !ends_values(word);) {
    if (word == "false" || word == "False") return std::nullopt;
    if (word == "true" || word == "True") break;
    const auto value = script_.resolved(word);
    if (value && value->empty()) break;  // a name that holds other arguments
    const std::string said = value.value_or(of_the_environment(word));
    argument.is_given = !said.empty() && !said.starts_with("--") &&
                        (!value || said.find_first_of("$`") == said.npos);
    if (!argument.is_given) return OtherArgument{name, {}, false};
    argument.words.push_back(said);
  }
  return argument;
}

bool ShellArguments::was_asked(const std::string& name) const {
  return std::ranges::find(seen_, name) != seen_.end();
}

}  // namespace headroom::engines
