#include "text/block_yaml.h"

#include <optional>
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

  static std::string_view without_comment(std::string_view words) {
    char quote = 0;
    for (size_t i = 0; i < words.size(); ++i) {
      const char c = words[i];
      if (quote != 0) {
        if (c == quote) quote = 0;
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == '#' && (i == 0 || words[i - 1] == ' ')) {
        words = words.substr(0, i);
        break;
      }
    }
    const size_t last = words.find_last_not_of(" \r");
    return words.substr(0, last == std::string_view::npos ? 0 : last + 1);
  }

  Result<Json> mapping(size_t indent, size_t depth) {
    if (depth > kMostYamlDepth) return error("more levels than settings have");
    Json object = Json::object();
    while (line_ && line_->indent == indent) {
      const std::string_view words = line_->words;
      if (is_item(words)) return error("is an item of no list");
      const size_t colon = words.find(':');
      const bool is_member = colon != std::string_view::npos && colon > 0 &&
                             (colon + 1 == words.size() || words[colon + 1] == ' ');
      if (!is_member) return error("is no `name: value`");
      HEADROOM_ASSIGN(const Json key, scalar(words.substr(0, colon)));
      const std::string name =
          key.is_string() ? key.as_string() : std::string(words.substr(0, colon));
      const size_t begin = std::min(words.find_first_not_of(' ', colon + 1), words.size());
      const std::string_view value = words.substr(begin);
      if (!value.empty()) {
        HEADROOM_ASSIGN(Json made, scalar(value));
        HEADROOM_TRY(next());
        object.set(name, std::move(made));
        continue;
      }
      HEADROOM_TRY(next());
      // A list may stand as far left as its name.
      if (line_ && line_->indent >= indent && is_item(line_->words)) {
        HEADROOM_ASSIGN(Json items, list(line_->indent));
        object.set(name, std::move(items));
        continue;
      }
      if (!line_ || line_->indent <= indent) {
        object.set(name, nullptr);
        continue;
      }
      HEADROOM_ASSIGN(Json inner, mapping(line_->indent, depth + 1));
      object.set(name, std::move(inner));
    }
    return object;
  }

  static bool is_item(std::string_view words) { return words.starts_with("- ") || words == "-"; }

  Result<Json> list(size_t indent) {
    Json::Array items;
    while (line_ && line_->indent == indent && is_item(line_->words)) {
      const std::string_view words = line_->words;
      const size_t begin = std::min(words.find_first_not_of(' ', 1), words.size());
      const std::string_view item = words.substr(begin);
      const bool is_mapping = item.find(": ") != std::string_view::npos || item.ends_with(':');
      if (item.empty() || is_item(item) || is_mapping) {
        return error("is an item that is no single word or number");
      }
      HEADROOM_ASSIGN(Json made, scalar(item));
      items.push_back(std::move(made));
      HEADROOM_TRY(next());
    }
    return Json::array(std::move(items));
  }

  // "[q_proj, 'v_proj']"; a comma within quotation marks is not read here.
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
    }
    return Json::array(std::move(items));
  }

  [[nodiscard]] Result<Json> scalar(std::string_view words) const {
    if (words.front() == '"' || words.front() == '\'') {
      const char quote = words.front();
      const bool is_whole = words.size() >= 2 && words.back() == quote &&
                            words.find(quote, 1) == words.size() - 1 &&
                            words.find('\\') == std::string_view::npos;
      if (!is_whole) return error("has quotation marks or escapes that are not read here");
      return Json(words.substr(1, words.size() - 2));
    }
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
