// Serving points: any bytes give points or an Error, and points give an answer or an Error, whose
// figures are finite.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "batch/batch.h"
#include "formats/serving_points.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using headroom::batch::BatchQuestion;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto points = headroom::formats::parse_serving_points(text, "fuzz");
  if (!points) {
    HEADROOM_CHECK(!points.error().message.empty(), "an error without words");
    return 0;
  }
  BatchQuestion question;
  question.points = *points;
  question.host_gap = 0.3;
  static const auto model = headroom::timing::TimingModel::built_in();
  const auto answer = headroom::batch::answer(question, nullptr, model);
  if (!answer) return 0;
  for (const auto& row : answer->curve) {
    HEADROOM_CHECK(std::isfinite(row.point.throughput_tokens_per_second.expected),
                   "a throughput that is a number");
    HEADROOM_CHECK(row.point.itl_seconds.low <= row.point.itl_seconds.expected &&
                       row.point.itl_seconds.expected <= row.point.itl_seconds.high,
                   "an interval around its figure");
  }
  return 0;
}
