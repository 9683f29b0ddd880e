// Files of timing laws: any bytes give laws whose times are finite and positive, or an Error.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "device/catalogue.h"
#include "timing/timing_model.h"

namespace {

using namespace headroom;

void predict_all(const timing::TimingModel& model, const device::Device& device) {
  using timing::OperatorClass;
  const std::vector<timing::Call> calls = {
      timing::gemm_call({.m = 4096, .n = 4096, .k = 4096}, device::Rate::bf16, 2),
      timing::gemm_call({.batch = 32, .m = 1, .n = 7, .k = 1 << 20}, device::Rate::fp32, 4),
      timing::attention_call(
          {.batch = 64, .heads = 32, .kv_heads = 8, .head_dim = 128, .context = 4096},
          device::Rate::bf16, 2),
      timing::attention_call(
          {.heads = 32, .kv_heads = 32, .head_dim = 80, .queries = 9, .context = 9},
          device::Rate::bf16, 2),
      timing::all_reduce_call(OperatorClass::all_reduce, {.group = 8, .message = 1}),
      timing::rows_call(OperatorClass::softmax, {.rows = 1, .width = 1}, 8),
      timing::rows_call(OperatorClass::elementwise, {.rows = 1 << 20, .width = 1 << 20}, 1e13)};
  std::vector<timing::MeasuredPoint> points;
  for (const timing::Call& call : calls) {
    const auto time = model.predict(call, device);
    if (!time) continue;
    HEADROOM_CHECK(std::isfinite(time->seconds) && time->seconds > 0, "no time");
    HEADROOM_CHECK(time->seconds_low <= time->seconds && time->seconds <= time->seconds_high,
                   "interval beside its middle");
    points.push_back({call, time->seconds * 1.5});
  }
  timing::TimingModel corrected = model;
  for (const timing::MeasuredPoint& point : points) {
    if (!corrected.correct(device, {point, point})) continue;
    const auto time = corrected.predict(point.call, device);
    HEADROOM_CHECK(time && std::isfinite(time->seconds) && time->seconds > 0, "no corrected time");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const device::Device h100 = *device::DeviceCatalogue::built_in().find("h100-sxm-80gb");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  timing::TimingModel model;
  if (model.merge(text, "fuzz")) predict_all(model, h100);
  return 0;
}
