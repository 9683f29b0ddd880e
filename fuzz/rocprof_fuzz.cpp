// rocprofv3 JSON: any bytes give a trace or an Error with its place, and any trace can be counted.
#include "formats/rocprof.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trace_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static_cast<void>(formats::is_rocprof(bytes));
  fuzz::check_trace(formats::read_rocprof(text::ByteFeed(bytes, "fuzz")));
  return 0;
}
