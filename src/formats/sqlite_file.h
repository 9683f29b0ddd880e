// SqliteFile: the tables of somebody else's SQLite database, row by row.
//
// The file is opened read-only and immutable: nothing is written beside it, no journal is played
// back. It is hostile: views, triggers, virtual tables, extensions and pragmas are refused (an
// authorizer allows reading columns and nothing else); so are functions, but for those of a
// generated column, whose time and lengths are bounded like the rest: a query that runs longer than
// a file of that size can need is stopped. Memory: some megabytes, whatever the file. A damaged
// file gives the rows before the damage, and fault() says where. For one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headroom::formats {

class SqliteRows;

class SqliteFile {
 public:
  static Result<SqliteFile> open(const std::string& path);
  // `bytes` must outlive the file.
  static Result<SqliteFile> from_bytes(std::string_view bytes, const std::string& name);

  SqliteFile(SqliteFile&&) noexcept;
  SqliteFile& operator=(SqliteFile&&) noexcept;
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;
  ~SqliteFile();

  // Real tables, in the order of the file.
  [[nodiscard]] const std::vector<std::string>& tables() const;
  [[nodiscard]] bool has(std::string_view table) const;
  [[nodiscard]] const std::string& name() const;

  // The rows of a table, of each the columns named; one that the table lacks is null. The file must
  // outlive the rows. REQUIRES: has(table).
  [[nodiscard]] Result<SqliteRows> rows(const std::string& table,
                                        const std::vector<std::string>& columns) const;
  [[nodiscard]] bool has_column(const std::string& table, std::string_view column) const;

 private:
  friend class SqliteRows;
  struct State;
  explicit SqliteFile(std::unique_ptr<State> state);
  static Result<SqliteFile> prepared(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class SqliteRows {
 public:
  SqliteRows(SqliteRows&&) noexcept;
  SqliteRows& operator=(SqliteRows&&) noexcept;
  SqliteRows(const SqliteRows&) = delete;
  SqliteRows& operator=(const SqliteRows&) = delete;
  ~SqliteRows();

  // False behind the last row that can be read.
  bool next();
  [[nodiscard]] int64_t number() const;  // of this row, from 1
  // Of this row; nothing where the column is null or of another kind.
  [[nodiscard]] std::optional<int64_t> integer(size_t column) const;
  [[nodiscard]] int64_t integer_or(size_t column, int64_t otherwise) const {
    return integer(column).value_or(otherwise);
  }
  [[nodiscard]] std::string_view text(size_t column) const;  // valid until next()
  // What ended the rows early.
  [[nodiscard]] const std::optional<std::string>& fault() const;

 private:
  friend class SqliteFile;
  struct State;
  explicit SqliteRows(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Whether these are the first bytes of an SQLite database.
[[nodiscard]] bool is_sqlite(std::string_view begin);

}  // namespace headroom::formats
