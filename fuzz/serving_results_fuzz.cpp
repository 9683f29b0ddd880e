// Load generators' results: any bytes give points within their bounds or an Error.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "formats/serving_results.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using headroom::formats::ServingPoint;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto results = headroom::formats::parse_serving_results(text, "fuzz");
  if (!results) {
    HEADROOM_CHECK(!results.error().message.empty(), "an error without words");
    return 0;
  }
  HEADROOM_CHECK(!results->points.empty(), "results without a point are an error");
  for (const ServingPoint& point : results->points) {
    HEADROOM_CHECK(point.batch >= 1 && point.batch <= headroom::formats::kMostServingBatch,
                   "a batch within its bounds");
    HEADROOM_CHECK(std::isfinite(point.itl_seconds) && point.itl_seconds > 0, "a time");
    HEADROOM_CHECK(point.throughput_tokens_per_second > 0, "a rate");
    HEADROOM_CHECK(!point.running_mean || *point.running_mean > 0, "what is in flight");
  }
  return 0;
}
