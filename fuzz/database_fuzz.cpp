// Databases of Nsight Systems and rocpd: any bytes give a trace or an Error with its place, and any
// trace can be counted.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/read_trace.h"
#include "trace_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const auto file = formats::SqliteFile::from_bytes(
      std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!file) {
    HEADROOM_CHECK(!file.error().where.empty(), "an error without a place");
    return 0;
  }
  fuzz::check_trace(formats::read_database_trace(*file));
  return 0;
}
