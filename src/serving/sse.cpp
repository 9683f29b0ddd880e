#include "serving/sse.h"

#include "text/json_bytes.h"

namespace headroom::serving {

bool SseParser::take_line(std::string_view& bytes, std::string_view& line) {
  if (is_too_long_) return false;
  if (skips_newline_ && bytes.front() == '\n') bytes.remove_prefix(1);
  skips_newline_ = false;
  const size_t end = text::find_line_end(bytes.data(), 0, bytes.size());
  const std::string_view part = bytes.substr(0, end);
  if (held_.size() + part.size() + data_.size() > kMostBytes) {
    is_too_long_ = true;
    return false;
  }
  if (end == bytes.size()) {
    held_ += part;
    bytes = {};
    return false;
  }
  skips_newline_ = bytes[end] == '\r';
  bytes.remove_prefix(end + 1);
  if (held_.empty()) {
    line = part;
  } else {
    held_ += part;
    line = held_;
  }
  return true;
}

bool SseParser::take_field(std::string_view line) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (is_first_line_ && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  is_first_line_ = false;
  if (line.empty()) return has_data_;
  constexpr std::string_view kField = "data";
  if (!line.starts_with(kField)) return false;
  line.remove_prefix(kField.size());
  if (!line.empty() && line.front() != ':') return false;  // a longer name, "database:"
  if (!line.empty()) line.remove_prefix(1);
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
  return false;
}

}  // namespace headroom::serving
