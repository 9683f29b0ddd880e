#include "text/block_yaml.h"

#include <optional>
#include <string>
#include <vector>

#include "text/parse_number.h"

namespace headroom::text {

namespace {

struct Line {
  size_t number = 0;
  size_t indent = 0;
  std::string_view words;  // without indent, comment and spaces at the end
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : rest_(text), file_(file) {}

  Result<Json> read() {
    HEADROOM_TRY(next());
    if (line_ && line_->words == "---") HEADROOM_TRY(next());
    HEADROOM_ASSIGN(Json root, mapping(0, 0));
    if (line_) return error("is indented more than what it stands under");
    return root;
  }

 private:
  [[nodiscard]] Error error(std::string message) const {
    return {ErrorCode::bad_input, std::move(message),
            file_ + ":" + std::to_string(line_ ? line_->number : number_),
            "settings are one `name: value` a line; the file may be cut off"};
  }

  // The next line that says something; nothing at the end.
  Result<void> next() {
    line_.reset();
    while (!rest_.empty()) {
      const size_t end = std::min(rest_.find('\n'), rest_.size());
      std::string_view words = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      if (++number_ > kMostYamlLines) return error("more lines than settings have");
      const size_t indent = std::min(words.find_first_not_of(' '), words.size());
      words = without_comment(words.substr(indent));
      if (words.empty()) continue;
      line_ = Line{number_, indent, words};
      if (words.front() == '\t') return error("is indented by a tab");
      return {};
    }
    return {};
  }

  // A quotation mark within a word is part of it: it's.
  static bool opens_quote(std::string_view words, size_t at) {
    const bool is_mark = words[at] == '"' || words[at] == '\'';
    return is_mark &&
           (at == 0 || std::string_view(" [{,:").find(words[at - 1]) != std::string_view::npos);
  }

  // Behind the quoted word that begins at `at`; npos where it does not end.
  static size_t end_of_quote(std::string_view words, size_t at) {
    const char quote = words[at];
    for (size_t i = at + 1; i < words.size(); ++i) {
      if (quote == '"' && words[i] == '\\') {
        ++i;
      } else if (words[i] == quote) {
        const bool is_doubled = quote == '\'' && i + 1 < words.size() && words[i + 1] == quote;
        if (!is_doubled) return i + 1;
        ++i;
      }
    }
    return std::string_view::npos;
  }

  static std::string_view without_comment(std::string_view words) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (opens_quote(words, i)) {
        i = std::min(end_of_quote(words, i), words.size()) - 1;
      } else if (words[i] == '#' && (i == 0 || words[i - 1] == ' ' || words[i - 1] == '\t')) {
        words = words.substr(0, i);
        break;
      }
    }
    const size_t last = words.find_last_not_of(" \t\r");
    return words.substr(0, last == std::string_view::npos ? 0 : last + 1);
  }

  // Of "name: value" or "name:"; npos where the line is neither.
  static size_t colon_of(std::string_view words) {
    size_t from = 0;
    if (opens_quote(words, 0)) {
      from = end_of_quote(words, 0);
      if (from == std::string_view::npos || from >= words.size() || words[from] != ':') {
        return std::string_view::npos;
      }
    }
    for (size_t colon = words.find(':', from); colon != std::string_view::npos;
         colon = words.find(':', colon + 1)) {
      const bool ends = colon + 1 == words.size() || words[colon + 1] == ' ';
      if (ends) return colon == 0 ? std::string_view::npos : colon;
    }
    return std::string_view::npos;
  }

  Result<Json> mapping(size_t indent, size_t depth) {
    if (depth > kMostYamlDepth) return error("more levels than settings have");
    Json object = Json::object();
    while (line_ && line_->indent == indent) {
      const std::string_view words = line_->words;
      if (is_item(words)) return error("is an item of no list");
      const size_t colon = colon_of(words);
      if (colon == std::string_view::npos) return error("is no `name: value`");
      HEADROOM_ASSIGN(const Json key, scalar(words.substr(0, colon)));
      const std::string name =
          key.is_string() ? key.as_string() : std::string(words.substr(0, colon));
      const size_t begin = std::min(words.find_first_not_of(' ', colon + 1), words.size());
      HEADROOM_ASSIGN(Json value, value_of(words.substr(begin), indent, depth));
      object.set(name, std::move(value));
    }
    return object;
  }

  // Of the member or item whose line this is, and the lines below it.
  Result<Json> value_of(std::string_view words, size_t indent, size_t depth) {
    if (is_text_block(words)) return text_block(words.front() == '>' ? ' ' : '\n', indent);
    if (words.starts_with('[') && !words.ends_with(']')) return flow_list_over_lines(words);
    if (!words.empty()) {
      HEADROOM_ASSIGN(Json made, scalar(words));
      HEADROOM_TRY(next());
      return made;
    }
    HEADROOM_TRY(next());
    // A list may stand as far left as its name.
    if (line_ && line_->indent >= indent && is_item(line_->words)) {
      return list(line_->indent, depth + 1);
    }
    if (!line_ || line_->indent <= indent) return Json(nullptr);
    return mapping(line_->indent, depth + 1);
  }

  static bool is_item(std::string_view words) { return words.starts_with("- ") || words == "-"; }

  Result<Json> list(size_t indent, size_t depth) {
    if (depth > kMostYamlDepth) return error("more levels than settings have");
    Json::Array items;
    while (line_ && line_->indent == indent && is_item(line_->words)) {
      HEADROOM_ASSIGN(Json made, item(indent, depth));
      items.push_back(std::move(made));
    }
    return Json::array(std::move(items));
  }

  // What stands behind the dash begins a mapping or a list of its own, as if it were alone there.
  Result<Json> item(size_t indent, size_t depth) {
    const std::string_view words = line_->words;
    const size_t begin = words.find_first_not_of(' ', 1);
    if (begin == std::string_view::npos) {
      HEADROOM_TRY(next());
      if (!line_ || line_->indent <= indent) return Json(nullptr);
      if (is_item(line_->words)) return list(line_->indent, depth + 1);
      return mapping(line_->indent, depth + 1);
    }
    const std::string_view rest = words.substr(begin);
    const bool is_list = is_item(rest);
    if (is_list || colon_of(rest) != std::string_view::npos) {
      line_->indent += begin;
      line_->words = rest;
      return is_list ? list(line_->indent, depth + 1) : mapping(line_->indent, depth + 1);
    }
    return value_of(rest, indent, depth);
  }

  static bool is_text_block(std::string_view words) {
    for (const char* const mark : {"|", "|-", "|+", ">", ">-", ">+"}) {
      if (words == mark) return true;
    }
    return false;
  }

  // All lines that are indented more, comments and empty ones too.
  Result<Json> text_block(char between, size_t indent) {
    std::string text;
    size_t margin = std::string_view::npos;
    while (!rest_.empty()) {
      const size_t end = std::min(rest_.find('\n'), rest_.size());
      std::string_view words = rest_.substr(0, end);
      const size_t last = words.find_last_not_of(" \r");
      words = words.substr(0, last == std::string_view::npos ? 0 : last + 1);
      const size_t first = std::min(words.find_first_not_of(' '), words.size());
      if (!words.empty() && first <= indent) break;
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      if (++number_ > kMostYamlLines) return error("more lines than settings have");
      if (margin == std::string_view::npos && !words.empty()) margin = first;
      if (!text.empty()) text += between;
      text += words.substr(std::min(std::min(first, margin), words.size()));
    }
    HEADROOM_TRY(next());
    return Json(std::move(text));
  }

  Result<Json> flow_list_over_lines(std::string_view words) {
    std::string text(words);
    while (!text.ends_with(']')) {
      HEADROOM_TRY(next());
      if (!line_) return error("has a list that does not end");
      text += ' ';
      text += line_->words;
    }
    HEADROOM_ASSIGN(Json made, scalar(text));
    HEADROOM_TRY(next());
    return made;
  }

  // "[q_proj, 'v_proj']", and with a comma behind the last one; a comma within quotation marks is
  // not read here.
  [[nodiscard]] Result<Json> flow_list(std::string_view words) const {
    Json::Array items;
    std::string_view inner = words.substr(1, words.size() - 2);
    while (!inner.empty()) {
      const size_t end = std::min(inner.find(','), inner.size());
      std::string_view item = inner.substr(0, end);
      const size_t first = std::min(item.find_first_not_of(' '), item.size());
      item = item.substr(first, item.find_last_not_of(' ') + 1 - first);
      if (item.empty() || item.find_first_of("[]{}") != std::string_view::npos) {
        return error("has a list of what is no single word or number");
      }
      HEADROOM_ASSIGN(Json made, scalar(item));
      items.push_back(std::move(made));
      inner.remove_prefix(std::min(end + 1, inner.size()));
      if (inner.find_first_not_of(' ') == std::string_view::npos) break;
    }
    return Json::array(std::move(items));
  }

  [[nodiscard]] Result<Json> quoted(std::string_view words) const {
    const char quote = words.front();
    if (end_of_quote(words, 0) != words.size()) {
      return error("has quotation marks that are not read here");
    }
    std::string text;
    for (size_t i = 1; i + 1 < words.size(); ++i) {
      char c = words[i];
      if (quote == '\'' && c == '\'') {
        ++i;  // it is doubled
      } else if (c == '\\' && quote == '"') {
        c = words[++i];
        const size_t known = std::string_view("nt\"\\/").find(c);
        if (known == std::string_view::npos) return error("has escapes that are not read here");
        c = "\n\t\"\\/"[known];
      }
      text += c;
    }
    return Json(std::move(text));
  }

  [[nodiscard]] Result<Json> scalar(std::string_view words) const {
    if (words.front() == '"' || words.front() == '\'') return quoted(words);
    if (words == "{}") return Json::object();
    if (words == "[]") return Json::array();
    if (words.front() == '[' && words.back() == ']') return flow_list(words);
    if (std::string_view("[{&*!|>%@`,?").find(words.front()) != std::string_view::npos) {
      return error("begins with what is more YAML than is read here");
    }
    if (words == "null" || words == "~" || words == "Null") return Json(nullptr);
    if (words == "true" || words == "True") return Json(true);
    if (words == "false" || words == "False") return Json(false);
    if (const auto integer = parse_number<int64_t>(words)) return Json(*integer);
    if (const auto number = parse_number<double>(words)) return Json(*number);
    return Json(words);
  }

  std::string_view rest_;
  std::string file_;
  size_t number_ = 0;
  std::optional<Line> line_;
};

}  // namespace

Result<Json> parse_block_yaml(std::string_view text, const std::string& file) {
  return Reader(text, file).read();
}

}  // namespace headroom::text
