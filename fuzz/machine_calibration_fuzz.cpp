// Calibrations of machines: any bytes give one whose predictions are finite, or an Error; what was
// read is written as it was read.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "timing/calibration.h"

namespace {

using namespace headroom;

// Of other shapes than what was measured: between points, and beside them.
void predict_beside(const timing::TimingModel& model, const device::Device& device) {
  std::vector<timing::Call> calls;
  for (int64_t size = 1; size <= int64_t{1} << 18; size *= 2) {
    for (const device::Rate rate : {device::Rate::fp32, device::Rate::bf16}) {
      calls.push_back(timing::gemm_call({.m = 64, .n = 1024, .k = size}, rate, 4));
      calls.push_back(timing::gemm_call({.m = size, .n = 1024, .k = 1024}, rate, 4));
      calls.push_back(timing::attention_call(
          {.batch = 8, .heads = 8, .kv_heads = 8, .head_dim = 64, .context = size}, rate, 4));
    }
    const auto bytes = static_cast<double>(size) * 8192;
    calls.push_back(
        timing::rows_call(timing::OperatorClass::softmax, {.rows = size, .width = 1024}, bytes));
    calls.push_back(timing::rows_call(timing::OperatorClass::elementwise,
                                      {.rows = size, .width = 1024}, bytes));
  }
  for (const timing::Call& call : calls) {
    const auto time = model.predict(call, device);
    if (!time) continue;  // for want of a law, or of a figure of the device
    HEADROOM_CHECK(time->seconds > 0 && std::isfinite(time->seconds_high), "no finite time");
    HEADROOM_CHECK(time->seconds_low <= time->seconds && time->seconds <= time->seconds_high,
                   "interval beside its middle");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = text::parse_json(text, "fuzz");
  if (!json) return 0;
  const auto read = timing::read_calibration(text::JsonView(*json, "fuzz"));
  if (!read) return 0;
  const text::Json written = timing::calibration_json(*read);
  const auto again = timing::read_calibration(text::JsonView(written, "again"));
  HEADROOM_CHECK(again.has_value(), "cannot read what was written");
  HEADROOM_CHECK(timing::calibration_json(*again).dump() == written.dump(), "changed by writing");
  if (read->points.size() > 64) return 0;  // solving for them is cubic, and bounded elsewhere
  auto catalogue = device::DeviceCatalogue::built_in();
  auto model = timing::TimingModel::built_in();
  if (!timing::adopt(*read, catalogue, model)) return 0;
  const auto device = catalogue.find(read->device);
  HEADROOM_CHECK(device.has_value(), "adopted without its device");
  for (const timing::MeasuredPoint& point : read->points) {
    const auto time = model.predict(point.call, *device);
    HEADROOM_CHECK(time && std::isfinite(time->seconds) && time->seconds > 0, "no time");
  }
  predict_beside(model, *device);
  return 0;
}
