// Goes through the rows of a database's table for a reader of traces; damage is noted with its row.
#pragma once

#include <string>
#include <vector>

#include "formats/sqlite_file.h"
#include "formats/trace_builder.h"

namespace headroom::formats {

// Calls `take(row, place)`, which gives a Result<void>, with each row of `table`, where that is
// there. `called` names it in places, and must outlive the builder.
template <typename Take>
Result<void> each_row(const SqliteFile& file, const std::string& table, std::string_view called,
                      const std::vector<std::string>& columns, TraceBuilder& builder,
                      const Take& take) {
  if (!file.has(table)) return {};
  HEADROOM_ASSIGN(SqliteRows rows, file.rows(table, columns));
  while (rows.next()) {
    const Result<void> taken = take(rows, TracePlace{rows.number(), called});
    if (!taken) return taken;
  }
  if (!rows.fault()) return {};
  builder.note({rows.number(), called}, *rows.fault());
  builder.trace().is_cut = true;
  return {};
}

}  // namespace headroom::formats
