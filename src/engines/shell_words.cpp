#include "engines/shell_words.h"

#include <algorithm>
#include <utility>

namespace headroom::engines {

namespace {

constexpr size_t kMostWords = 100'000;
constexpr size_t kDeepest = 16;  // names within names

bool is_of_name(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_name(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, is_of_name);
}

bool ends_word(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '"' || c == '\'' || c == '\\' ||
         c == ';';
}

// A terminal is not to obey what a file says.
char printable(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c; }

// Cuts a script into words; what ${...} holds stays in one, and so do brackets within a word. And
// notes where a list of words ends: with its array, its quotation or its line.
class Cutter {
 public:
  Cutter(std::vector<std::string>& words, std::vector<size_t>& ends) : words_(words), ends_(ends) {}

  void take(char c) {
    if (c == '\n') in_comment_ = false;
    if (in_comment_) return;
    if (braces_ > 0 && c != '\n') return take_within(c);
    if (c == '#' && word_.empty()) {
      in_comment_ = true;
    } else if (ends_word(c) || is_bracket_between(c)) {
      end();
      if (ends_list(c)) ends_.push_back(words_.size());
    } else {
      is_escaped_ = false;
      if (c == '{' && word_.ends_with('$')) ++braces_;
      word_ += printable(c);
    }
  }

  void end() {
    while (word_.ends_with(',')) word_.pop_back();
    if (!word_.empty()) words_.push_back(std::move(word_));
    word_.clear();
    braces_ = 0;
    brackets_ = 0;
  }

 private:
  // Of an array, NAME=(one two), but not of a layout, E|(tt|)*6L.
  bool is_bracket_between(char c) {
    if (c == '(') {
      if (word_.empty() || word_.ends_with('=')) return true;
      ++brackets_;
    } else if (c == ')') {
      if (brackets_ == 0) return true;
      --brackets_;
    }
    return false;
  }

  // Of what ends a word.
  bool ends_list(char c) {
    const bool is_escaped = is_escaped_;
    is_escaped_ = c == '\\';
    if (c == '"' || c == '\'') {
      if (quote_ != 0 && quote_ != c) return false;
      const bool is_closed = quote_ == c;
      quote_ = is_closed ? '\0' : c;
      return is_closed && std::exchange(is_list_quoted_, false);
    }
    if (quote_ != 0) {
      is_list_quoted_ = is_list_quoted_ || c == ' ' || c == '\n';
      return false;
    }
    if (c == '(') ++arrays_;
    if (c == ')') arrays_ = std::max(0, arrays_ - 1);
    return c == ')' || c == ';' || (c == '\n' && !is_escaped && arrays_ == 0);
  }

  void take_within(char c) {
    if (c == '}') --braces_;
    if (c == '"' || c == '\'') return;
    word_ += printable(c);
  }

  std::vector<std::string>& words_;
  std::vector<size_t>& ends_;
  std::string word_;
  bool in_comment_ = false;
  int braces_ = 0;
  int brackets_ = 0;
  int arrays_ = 0;
  char quote_ = 0;               // that is open
  bool is_list_quoted_ = false;  // it has a blank in it
  bool is_escaped_ = false;      // by a backslash just before
};

void add_once(std::vector<std::string>& values, std::string value) {
  std::erase(values, value);  // the last one counts
  values.push_back(std::move(value));
}

}  // namespace

Result<ShellWords> ShellWords::read(std::string_view content, const std::string& file) {
  ShellWords script;
  std::vector<size_t> ends;  // so many words before the end of a list
  Cutter cutter(script.words_, ends);
  for (const char c : content) {
    cutter.take(c);
    if (script.words_.size() > kMostWords) {
      return Error{ErrorCode::bad_input, "has more than 100,000 words", file, ""};
    }
  }
  cutter.end();
  script.take_names();
  script.take_arguments(ends);
  return script;
}

void ShellWords::take_names() {
  for (const std::string& word : words_) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || !is_name(std::string_view(word).substr(0, equals))) continue;
    add_once(names_[word.substr(0, equals)], word.substr(equals + 1));
  }
}

void ShellWords::take_arguments(const std::vector<size_t>& ends) {
  for (size_t i = 0; i < words_.size(); ++i) {
    if (!words_[i].starts_with("--") || words_[i].size() < 3) continue;
    std::string name = words_[i].substr(2);
    std::string value;
    const auto end = std::ranges::upper_bound(ends, i);
    const size_t last = end == ends.end() ? words_.size() : *end;
    const size_t equals = name.find('=');
    size_t at = i + 1;  // of what stands behind
    if (equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (at < last && !words_[at].starts_with("--")) {
      value = words_[at++];
    }
    std::string more;
    for (; at < last && !words_[at].starts_with("--"); ++at) {
      more += (more.empty() ? "" : " ") + words_[at];
    }
    if (name.ends_with(':')) name.pop_back();  // YAML
    std::ranges::replace(name, '_', '-');
    more_[name] = std::move(more);
    add_once(arguments_[std::move(name)], std::move(value));
  }
}

std::optional<std::string> ShellWords::written(std::string_view argument) const {
  const auto at = arguments_.find(argument);
  if (at == arguments_.end()) return std::nullopt;
  return at->second.back();
}

std::optional<std::string> ShellWords::more_of(std::string_view argument) const {
  const auto at = more_.find(argument);
  if (at == more_.end() || at->second.empty()) return std::nullopt;
  return at->second;
}

std::optional<std::string> ShellWords::resolved(const std::string& value) {
  std::vector<std::string> within;
  return resolved(value, within);
}

std::optional<std::string> ShellWords::resolved(const std::string& value,
                                                std::vector<std::string>& within) {
  if (!value.starts_with('$')) return value;
  if (within.size() > kDeepest) return std::nullopt;
  std::string name = value.substr(1);
  std::optional<std::string> otherwise;
  if (name.starts_with('{') && name.ends_with('}')) {
    name = name.substr(1, name.size() - 2);
    if (const size_t colon = name.find(":-"); colon != std::string::npos) {
      otherwise = name.substr(colon + 2);
      name.resize(colon);
    }
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
