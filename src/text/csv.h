// CSV (RFC 4180) with a header: rows by column name, and a writer.
//
// CsvReader goes row by row over text that is in memory and copies only fields with doubled
// quotation marks, for tables with millions of rows; read_csv() makes a table of strings for small
// ones. Line ends may be LF or CRLF, a byte order mark is skipped, blank lines are skipped. Not
// synchronised. About 200 MB/s.
#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace headroom::text {

struct CsvLimits {
  size_t columns = 4096;
  Bytes field{kMiB};
  int64_t rows = 100'000'000;
};

class CsvReader {
 public:
  // Reads the header. `text` must outlive the reader; `file` is only used in errors, whose place is
  // "file:line". No header, or two columns of one name, is an Error.
  static Result<CsvReader> open(std::string_view text, std::string file,
                                const CsvLimits& limits = {});

  [[nodiscard]] const std::vector<std::string>& header() const { return header_; }
  [[nodiscard]] std::optional<size_t> find_column(std::string_view name) const;
  // The same, where a missing column is an Error.
  [[nodiscard]] Result<size_t> column(std::string_view name) const;

  // Goes to the next row; false at the end. A row with another number of fields than the header is
  // an Error, and so is a quotation mark out of place; after an Error the reader is at the end.
  Result<bool> next();

  // Of the row that next() went to. REQUIRES: column < header().size(). Valid until next().
  [[nodiscard]] std::string_view field(size_t column) const;
  [[nodiscard]] Result<int64_t> get_int(size_t column, int64_t min, int64_t max) const;
  // NaN is an Error, infinities where the range excludes them.
  [[nodiscard]] Result<double> get_double(size_t column, double min, double max) const;
  // The line on which the row begins, counted from 1.
  [[nodiscard]] int64_t line() const { return row_line_; }
  // An Error at this row, or at a field of it.
  [[nodiscard]] Error error(std::string message) const;
  [[nodiscard]] Error error_at(size_t column, const std::string& message) const;

 private:
  CsvReader(std::string_view text, std::string file, const CsvLimits& limits)
      : rest_(text), file_(std::move(file)), limits_(limits) {}
  Result<bool> read_fields();
  Result<void> read_field();
  Result<void> read_quoted();
  bool take_line_end();
  void take(size_t bytes);

  std::string_view rest_;
  std::string file_;
  CsvLimits limits_;
  std::vector<std::string> header_;
  std::vector<std::string_view> fields_;
  std::deque<std::string> unquoted_;  // fields that needed a copy; a deque keeps views valid
  int64_t line_ = 1;
  int64_t row_line_ = 1;
  int64_t rows_ = 0;
};

struct CsvTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // each as long as the header
  std::vector<int64_t> lines;                  // where each row begins

  [[nodiscard]] std::optional<size_t> find_column(std::string_view name) const;
  // The field of a row, "" where the table has no such column. REQUIRES: row < rows.size().
  [[nodiscard]] const std::string& at(size_t row, std::string_view name) const;
};

Result<CsvTable> read_csv(std::string_view text, const std::string& file,
                          const CsvLimits& limits = {});

// Collects CSV text; fields are quoted where they must be, lines end in LF.
class CsvWriter {
 public:
  explicit CsvWriter(std::initializer_list<std::string_view> header);
  explicit CsvWriter(std::span<const std::string> header);
  // REQUIRES: as many fields as the header has.
  void row(std::span<const std::string> fields);
  void row(std::initializer_list<std::string_view> fields);
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void field(std::string_view value, bool first);
  size_t columns_;
  std::string text_;
};

}  // namespace headroom::text
