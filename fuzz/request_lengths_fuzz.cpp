// Lengths of requests: any bytes give a trace or an Error, and a trace a workload whose figures are
// finite.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "batch/workload.h"
#include "formats/request_lengths.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto trace = headroom::formats::parse_request_lengths(text, "fuzz");
  if (!trace) {
    HEADROOM_CHECK(!trace.error().message.empty(), "an error without words");
    return 0;
  }
  const auto workload = headroom::batch::workload_of(trace->requests);
  HEADROOM_CHECK(std::isfinite(workload.context_mean) && std::isfinite(workload.context_deviation),
                 "a context that is a number");
  HEADROOM_CHECK(workload.context_mean >= 0 && workload.output_mean >= 1, "tokens in flight");
  return 0;
}
