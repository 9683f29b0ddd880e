// ONNX Runtime profiles: any bytes give a trace or an Error with its place, and any trace can be
// counted.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "formats/ort_profile.h"
#include "ops/ops.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  static const ops::OperatorRules rules = *ops::OperatorRules::load("");
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static_cast<void>(formats::is_ort_profile(bytes));
  const auto trace = formats::read_ort_profile(text::ByteFeed(bytes, "fuzz"));
  if (!trace) {
    HEADROOM_CHECK(!trace.error().where.empty(), "an error without a place");
    return 0;
  }
  for (size_t i = 1; i < trace->events.size(); ++i) {
    HEADROOM_CHECK(trace->events[i - 1].start_ns <= trace->events[i].start_ns, "out of order");
  }
  static_cast<void>(ops::answer(*trace, rules));
  return 0;
}
