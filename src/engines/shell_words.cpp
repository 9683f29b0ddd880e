#include "engines/shell_words.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace headroom::engines {

namespace {

constexpr size_t kMostWords = 100'000;
constexpr size_t kDeepest = 16;                // names within names
constexpr size_t kLongest = size_t{64} << 10;  // bytes of what a name is given

// A value that only a shell knows.
constexpr std::string_view kOfAShell = "$...";

// NAME of $NAME, ${NAME} and ${NAME[@]}.
std::string_view name_in(std::string_view word) {
  if (!word.starts_with('$')) return {};
  word.remove_prefix(1);
  if (word.starts_with('{') && word.ends_with('}')) word = word.substr(1, word.size() - 2);
  for (const std::string_view all : {"[@]", "[*]"}) {
    if (word.ends_with(all)) word.remove_suffix(all.size());
  }
  return word;
}

// Before the command begins in which a program is.
bool ends_command(const ShellWord& word) {
  constexpr std::array<std::string_view, 6> kEnds{"&&", "||", "|", "then", "else", "do"};
  return !word.is_quoted && std::ranges::find(kEnds, word.text) != kEnds.end();
}

void add_once(std::vector<std::string>& values, std::string value) {
  std::erase(values, value);  // the last one counts
  values.push_back(std::move(value));
}

}  // namespace

Result<ShellWords> ShellWords::read(std::string_view content, const std::string& file) {
  ShellCutter cutter;
  for (const char c : content) {
    cutter.take(c);
    if (cutter.count() > kMostWords) {
      return Error{ErrorCode::bad_input, "has more than 100,000 words", file, ""};
    }
  }
  ShellWords script;
  script.cut_ = cutter.finish();
  script.take_names();
  script.take_arguments();
  return script;
}

void ShellWords::take_names() {
  for (size_t i = 0; i < cut_.words.size(); ++i) {
    const std::string& word = cut_.words[i].text;
    const size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    const bool adds = word[std::max<size_t>(equals, 1) - 1] == '+';  // NAME+=
    const std::string name = word.substr(0, equals - (adds ? 1 : 0));
    if (!is_shell_name(name)) continue;
    std::string value = word.substr(equals + 1);
    bool is_of_shell = adds || cut_.words[i].is_torn;
    for (size_t k = i + 1; k <= i + cut_.words[i].list; ++k) {
      const ShellWord& more = cut_.words[k];
      value += (value.empty() ? "" : " ") + more.text;
      is_of_shell = is_of_shell || more.is_torn || more.is_of_phrase || more.text.empty();
    }
    is_of_shell = is_of_shell || value.size() > kLongest;
    if (is_of_shell) value = value.starts_with("--") ? "--" : kOfAShell;
    if (name_in(value) == name) continue;  // it says nothing
    add_once(names_[name], std::move(value));
  }
}

void ShellWords::take_arguments() {
  const std::vector<ShellWord>& words = cut_.words;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].text.starts_with("--") || words[i].text.size() < 3) continue;
    std::string name = words[i].text.substr(2);
    std::string value;
    const auto end = std::ranges::upper_bound(cut_.ends, i);
    const size_t last = end == cut_.ends.end() ? words.size() : *end;
    const size_t equals = name.find('=');
    size_t at = i + 1;  // of what stands behind
    while (at < last && !words[at].text.starts_with("--")) ++at;
    if (equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (at > i + 1) {
      value = words[i + 1].text;
    }
    if (name.ends_with(':')) name.pop_back();  // YAML
    std::ranges::replace(name, '_', '-');
    places_[name] = {i, at};
    add_once(arguments_[std::move(name)], std::move(value));
  }
}

std::optional<std::string> ShellWords::written(std::string_view argument) const {
  const auto at = arguments_.find(argument);
  if (at == arguments_.end()) return std::nullopt;
  return at->second.back();
}

std::vector<ShellWord> ShellWords::words_of(std::string_view argument) const {
  const auto place = places_.find(argument);
  if (place == places_.end()) return {};
  const auto [at, end] = place->second;
  std::vector<ShellWord> words(cut_.words.begin() + static_cast<ptrdiff_t>(at) + 1,
                               cut_.words.begin() + static_cast<ptrdiff_t>(end));
  ShellWord first = cut_.words[at];
  const size_t equals = first.text.find('=');
  if (equals == std::string::npos) return words;
  first.text.erase(0, equals + 1);
  words.insert(words.begin(), std::move(first));
  return words;
}

std::optional<std::string> ShellWords::more_of(std::string_view argument) const {
  std::string more;
  const std::vector<ShellWord> words = words_of(argument);
  for (size_t i = 1; i < words.size(); ++i) more += (i == 1 ? "" : " ") + words[i].text;
  return more.empty() ? std::nullopt : std::optional(std::move(more));
}

bool ShellWords::is_mapped(std::string_view argument) const {
  const auto place = places_.find(argument);
  return place != places_.end() && cut_.words[place->second.at].text.ends_with(':');
}

bool ShellWords::is_program(const ShellWord& word, std::string_view program) const {
  const size_t equals = word.text.find('=');
  if (equals != std::string::npos && is_shell_name(word.text.substr(0, equals))) return false;
  if (word.text.ends_with(program)) return true;
  const auto named = names_.find(name_in(word.text));
  return named != names_.end() && named->second.back().ends_with(program);
}

std::set<std::string, std::less<>> ShellWords::before(std::string_view program) const {
  const std::vector<ShellWord>& words = cut_.words;
  std::set<size_t> places;
  std::set<std::string_view> lists;
  auto line = cut_.commands.begin();
  size_t from = 0;  // of the command
  bool has_program = false;
  for (size_t at = 0; at < words.size(); ++at) {
    bool is_begun = ends_command(words[at]);
    for (; line != cut_.commands.end() && *line <= at; ++line) is_begun = true;
    if (is_begun) from = at;
    has_program = has_program && !is_begun;
    if (has_program || !is_program(words[at], program)) continue;
    has_program = true;
    for (size_t i = from; i < at; ++i) {
      if (i + words[i].list < at) i += words[i].list;  // given, not said
      places.insert(i);
      lists.insert(name_in(words[i].text));
    }
  }
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view name =
        std::string_view(words[i].text).substr(0, words[i].text.find('='));
    if (!lists.contains(name)) continue;
    for (size_t k = 1; k <= words[i].list; ++k) places.insert(i + k);
  }
  std::set<std::string, std::less<>> names;
  for (const auto& [name, place] : places_) {
    if (places.contains(place.at)) names.insert(name);
  }
  return names;
}

std::optional<std::string> ShellWords::resolved(const std::string& value) {
  std::vector<std::string> within;
  return resolved(value, within);
}

std::optional<std::string> ShellWords::resolved(const std::string& value,
                                                std::vector<std::string>& within) {
  if (!value.starts_with('$')) return value;
  if (within.size() > kDeepest) return std::nullopt;
  std::string name(name_in(value));
  std::optional<std::string> otherwise;
  const size_t colon = name.find(":-");
  if (colon != std::string::npos && value.starts_with("${")) {
    otherwise = name.substr(colon + 2);
    name.resize(colon);
  }
  const auto at = names_.find(name);
  // NAME=${NAME:-else} asks for what the script was started with.
  const bool is_known = at != names_.end() && std::ranges::find(within, name) == within.end();
  within.push_back(name);
  if (is_known) {
    put_in_.push_back(name);
    return resolved(at->second.back(), within);
  }
  if (otherwise) return resolved(*otherwise, within);
  return std::nullopt;
}

std::vector<std::string> ShellWords::arguments() const {
  std::vector<std::string> all;
  for (const auto& [name, values] : arguments_) all.push_back(name);
  return all;
}

std::vector<std::string> ShellWords::contradictions() const {
  std::vector<std::string> all;
  const auto note = [&](const std::string& name, const Values& values) {
    if (values.size() < 2) return;
    std::string sentence = name + " (";
    for (size_t i = 0; i < values.size(); ++i) {
      sentence += (i == 0 ? "" : ", then ") + values[i].substr(0, 40);
    }
    all.push_back(sentence + ")");
  };
  for (const auto& [name, values] : arguments_) note("--" + name, values);
  for (const auto& [name, values] : names_) {
    if (std::ranges::find(put_in_, name) != put_in_.end()) note(name, values);
  }
  return all;
}

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace headroom::engines
