// Requests of a trace: any bytes give a trace or an Error, and a trace a workload whose figures are
// finite, times in order and hashes that belong to prompts.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "batch/workload.h"
#include "formats/request_lengths.h"

namespace {

void check_times(const headroom::formats::RequestTrace& trace) {
  const headroom::formats::RequestTimes& times = trace.times;
  const size_t requests = trace.requests.size();
  double before = 0;
  for (const double seconds : times.arrived_seconds) {
    HEADROOM_CHECK(std::isfinite(seconds) && seconds >= before, "times in order");
    before = seconds;
  }
  HEADROOM_CHECK(times.arrived_seconds.empty() || times.arrived_seconds.size() == requests,
                 "a time for each request");
  HEADROOM_CHECK(times.arrived_seconds.empty() || before > 0, "times that differ");
  if (times.first_hash.empty()) {
    HEADROOM_CHECK(times.hashes.empty(), "hashes of no request");
    return;
  }
  HEADROOM_CHECK(times.first_hash.size() == requests + 1 && times.first_hash.front() == 0 &&
                     times.first_hash.back() == times.hashes.size(),
                 "hashes from the first request to the last");
  for (size_t i = 0; i < requests; ++i) {
    const auto tokens =
        static_cast<int64_t>(times.first_hash[i + 1] - times.first_hash[i]) * times.hash_tokens;
    HEADROOM_CHECK(tokens >= trace.requests[i].input_tokens &&
                       tokens < trace.requests[i].input_tokens + times.hash_tokens,
                   "a hash for each block");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto trace = headroom::formats::parse_request_lengths(text, "fuzz");
  if (!trace) {
    HEADROOM_CHECK(!trace.error().message.empty(), "an error without words");
    return 0;
  }
  check_times(*trace);
  const auto workload = headroom::batch::workload_of(trace->requests);
  HEADROOM_CHECK(std::isfinite(workload.context_mean) && std::isfinite(workload.context_deviation),
                 "a context that is a number");
  HEADROOM_CHECK(workload.context_mean >= 0 && workload.output_mean >= 1, "tokens in flight");
  return 0;
}
