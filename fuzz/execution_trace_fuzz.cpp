// Execution traces: any bytes give one or an Error with its place, and it can be joined.
#include "formats/execution_trace.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const auto execution = formats::read_execution_trace(
      text::ByteFeed(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz"));
  if (!execution) {
    HEADROOM_CHECK(!execution.error().where.empty(), "an error without a place");
    return 0;
  }
  formats::Trace trace;
  for (const auto& [id, operation] : execution->operators) {
    formats::TraceEvent event;
    event.correlation = id;
    event.name = trace.names.intern(execution->names.at(operation.name));
    trace.events.push_back(event);
  }
  const formats::Joined joined = formats::join(trace, *execution);
  HEADROOM_CHECK(joined.joined == joined.operators, "an operator that does not find itself");
  return 0;
}
