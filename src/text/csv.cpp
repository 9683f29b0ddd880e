#include "text/csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace headroom::text {
namespace {

std::string show(std::string_view field) {
  const std::string cut(field.substr(0, 40));
  return "'" + cut + (field.size() > 40 ? "...'" : "'");
}

std::string show_double(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::optional<size_t> index_of(const std::vector<std::string>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<size_t>(found - names.begin());
}

}  // namespace

Result<CsvReader> CsvReader::open(std::string_view text, std::string file,
                                  const CsvLimits& limits) {
  CsvReader reader(text, std::move(file), limits);
  if (reader.rest_.starts_with("\xEF\xBB\xBF")) reader.rest_.remove_prefix(3);
  HEADROOM_ASSIGN(const bool any, reader.read_fields());
  if (!any) return reader.error("is empty, expected a line with column names");
  reader.header_.assign(reader.fields_.begin(), reader.fields_.end());
  std::vector<std::string_view> sorted(reader.header_.begin(), reader.header_.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) return reader.error("two columns are named " + show(*twice));
  return reader;
}

std::optional<size_t> CsvReader::find_column(std::string_view name) const {
  return index_of(header_, name);
}

Result<size_t> CsvReader::column(std::string_view name) const {
  if (const std::optional<size_t> found = find_column(name)) return *found;
  std::string names;
  for (size_t i = 0; i < std::min<size_t>(header_.size(), 20); ++i) {
    names += (i > 0 ? ", " : "") + header_[i].substr(0, 40);
  }
  return Error{ErrorCode::bad_input, "has no column " + show(name), file_, "it has: " + names};
}

Error CsvReader::error(std::string message) const {
  return Error{
      ErrorCode::bad_input, std::move(message), file_ + ":" + std::to_string(row_line_), {}};
}

Error CsvReader::error_at(size_t column, const std::string& message) const {
  return error("column " + show(header_[column]) + ": " + message);
}

void CsvReader::take(size_t bytes) {
  line_ += std::count(rest_.begin(), rest_.begin() + static_cast<ptrdiff_t>(bytes), '\n');
  rest_.remove_prefix(bytes);
}

bool CsvReader::take_line_end() {
  if (rest_.starts_with("\r\n")) {
    take(2);
  } else if (rest_.starts_with("\n")) {
    take(1);
  } else {
    return rest_.empty();
  }
  return true;
}

Result<void> CsvReader::read_quoted() {
  size_t end = 1;
  bool doubled = false;
  for (;;) {
    end = rest_.find('"', end);
    if (end == std::string_view::npos || static_cast<int64_t>(end) - 1 > limits_.field.count) {
      const bool open = end == std::string_view::npos;
      return error(open ? "a quoted field has no closing quotation mark"
                        : "a field is larger than the limit of " + format_bytes(limits_.field));
    }
    if (rest_.substr(end + 1, 1) != "\"") break;
    doubled = true;
    end += 2;
  }
  const std::string_view inside = rest_.substr(1, end - 1);
  if (doubled) {
    std::string& copy = unquoted_.emplace_back();
    copy.reserve(inside.size());
    for (size_t i = 0; i < inside.size(); ++i) {
      copy += inside[i];
      if (inside[i] == '"') ++i;
    }
    fields_.emplace_back(copy);
  } else {
    fields_.push_back(inside);
  }
  take(end + 1);
  const bool ends = rest_.empty() || rest_.starts_with(",") || rest_.starts_with("\n") ||
                    rest_.starts_with("\r\n");
  if (!ends) return error("expected a comma or the end of the line after a quoted field");
  return {};
}

Result<void> CsvReader::read_field() {
  if (fields_.size() >= limits_.columns) {
    return error("has more than " + std::to_string(limits_.columns) + " fields");
  }
  if (rest_.starts_with("\"")) return read_quoted();
  const size_t end = std::min(rest_.find_first_of(",\n\""), rest_.size());
  std::string_view value = rest_.substr(0, end);
  if (end < rest_.size() && rest_[end] == '"') {
    return error("a quotation mark inside a field that is not quoted");
  }
  if (value.ends_with("\r") && (end == rest_.size() || rest_[end] == '\n')) {
    value.remove_suffix(1);
  }
  if (static_cast<int64_t>(value.size()) > limits_.field.count) {
    return error("a field is larger than the limit of " + format_bytes(limits_.field));
  }
  fields_.push_back(value);
  take(value.size());
  if (rest_ == "\r") take(1);
  return {};
}

Result<bool> CsvReader::read_fields() {
  fields_.clear();
  unquoted_.clear();
  while (!rest_.empty() && take_line_end()) {
  }
  row_line_ = line_;
  if (rest_.empty()) return false;
  for (;;) {
    HEADROOM_TRY(read_field());
    if (take_line_end()) return true;
    take(1);  // the comma
  }
}

Result<bool> CsvReader::next() {
  Result<bool> any = read_fields();
  if (any && *any && fields_.size() != header_.size()) {
    any = error("has " + std::to_string(fields_.size()) + " fields, the header has " +
                std::to_string(header_.size()));
  } else if (any && *any && ++rows_ > limits_.rows) {
    any = error("has more than " + std::to_string(limits_.rows) + " rows");
  }
  if (!any) rest_ = {};
  return any;
}

std::string_view CsvReader::field(size_t column) const {
  HEADROOM_CHECK(column < fields_.size(), "CSV column out of range");
  return fields_[column];
}

Result<int64_t> CsvReader::get_int(size_t column, int64_t min, int64_t max) const {
  const std::string_view text = field(column);
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status == std::errc::result_out_of_range && end == text.data() + text.size()) {
    return error_at(column, show(text) + " is out of range");
  }
  if (status != std::errc() || end != text.data() + text.size()) {
    return error_at(column, "expected an integer, found " + show(text));
  }
  if (value < min || value > max) {
    return error_at(
        column, show(text) + " is outside " + std::to_string(min) + " to " + std::to_string(max));
  }
  return value;
}

Result<double> CsvReader::get_double(size_t column, double min, double max) const {
  const std::string_view text = field(column);
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || std::isnan(value)) {
    return error_at(column, "expected a number, found " + show(text));
  }
  if (value < min || value > max) {
    return error_at(column,
                    show(text) + " is outside " + show_double(min) + " to " + show_double(max));
  }
  return value;
}

std::optional<size_t> CsvTable::find_column(std::string_view name) const {
  return index_of(header, name);
}

const std::string& CsvTable::at(size_t row, std::string_view name) const {
  static const std::string kEmpty;
  HEADROOM_CHECK(row < rows.size(), "CSV row out of range");
  const std::optional<size_t> column = find_column(name);
  return column ? rows[row][*column] : kEmpty;
}

Result<CsvTable> read_csv(std::string_view text, const std::string& file, const CsvLimits& limits) {
  HEADROOM_ASSIGN(CsvReader reader, CsvReader::open(text, file, limits));
  CsvTable table;
  table.header = reader.header();
  for (;;) {
    HEADROOM_ASSIGN(const bool any, reader.next());
    if (!any) return table;
    std::vector<std::string>& row = table.rows.emplace_back();
    row.reserve(table.header.size());
    for (size_t i = 0; i < table.header.size(); ++i) row.emplace_back(reader.field(i));
    table.lines.push_back(reader.line());
  }
}

CsvWriter::CsvWriter(std::initializer_list<std::string_view> header) : columns_(header.size()) {
  row(header);
}

CsvWriter::CsvWriter(std::span<const std::string> header) : columns_(header.size()) { row(header); }

void CsvWriter::field(std::string_view value, bool first) {
  if (!first) text_ += ',';
  // A lone empty field would be a blank line and a leading byte order mark no text: readers skip
  // both.
  const bool quote = value.find_first_of(",\"\r\n") != std::string_view::npos ||
                     (value.empty() && columns_ == 1) || value.starts_with("\xEF\xBB\xBF");
  if (!quote) {
    text_ += value;
    return;
  }
  text_ += '"';
  for (const char c : value) {
    if (c == '"') text_ += '"';
    text_ += c;
  }
  text_ += '"';
}

void CsvWriter::row(std::span<const std::string> fields) {
  HEADROOM_CHECK(fields.size() == columns_, "CSV row of another length than the header");
  for (size_t i = 0; i < fields.size(); ++i) field(fields[i], i == 0);
  text_ += '\n';
}

void CsvWriter::row(std::initializer_list<std::string_view> fields) {
  HEADROOM_CHECK(fields.size() == columns_, "CSV row of another length than the header");
  bool first = true;
  for (const std::string_view value : fields) {
    field(value, first);
    first = false;
  }
  text_ += '\n';
}

}  // namespace headroom::text
