// Chakra's execution traces: any bytes give a trace that holds together or an Error with its place,
// and what they are told by never crashes.
#include "formats/chakra.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/execution_trace.h"
#include "trace_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static_cast<void>(formats::is_chakra(bytes));
  fuzz::check_trace(formats::read_chakra(text::ByteFeed(bytes, "fuzz")));
  const auto execution = formats::read_execution_trace(text::ByteFeed(bytes, "fuzz"));
  HEADROOM_CHECK(execution || !execution.error().where.empty(), "an error without a place");
  return 0;
}
