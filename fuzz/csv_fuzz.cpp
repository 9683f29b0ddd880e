// CSV text: any bytes give rows or an Error, and rows survive being written and read.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/csv.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using headroom::text::CsvTable;
  using headroom::text::CsvWriter;
  using headroom::text::read_csv;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const headroom::Result<CsvTable> table = read_csv(text, "fuzz");
  if (!table) {
    HEADROOM_CHECK(!table.error().message.empty(), "an error without words");
    return 0;
  }
  CsvWriter writer(table->header);
  for (const auto& row : table->rows) writer.row(row);
  const headroom::Result<CsvTable> again = read_csv(writer.text(), "again");
  HEADROOM_CHECK(again && again->header == table->header && again->rows == table->rows,
                 "rows changed by being written and read");
  return 0;
}
