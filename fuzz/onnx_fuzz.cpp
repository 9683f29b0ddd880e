// An ONNX file, a run of its graph, and the prediction of that on a device, plain and quantized:
// any bytes give figures that make sense or an Error.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "device/catalogue.h"
#include "model/onnx_run.h"
#include "ops/onnx_step.h"

namespace {

using namespace headroom;

void check_run(const model::OnnxRun& run) {
  for (const model::OnnxWork& work : run.work) {
    HEADROOM_CHECK(std::isfinite(work.flops) && work.flops >= 0, "work that is no number");
    HEADROOM_CHECK(work.bytes_read >= 0 && work.bytes_written >= 0, "negative traffic");
    HEADROOM_CHECK(std::isfinite(work.bytes_read) && std::isfinite(work.bytes_written),
                   "traffic that is no number");
    HEADROOM_CHECK(work.m >= 0 && work.n >= 0 && work.k >= 0 && work.count >= 0, "negative sizes");
  }
}

void check_predicted(const ops::OnnxStep& step, ops::Quantize quantize, bool fuse) {
  static const device::DeviceCatalogue catalogue = device::DeviceCatalogue::built_in();
  static const timing::TimingModel laws = timing::TimingModel::built_in();
  static const device::Device h100 = *catalogue.find("h100-sxm-80gb");
  ops::StepQuestion question;
  question.phase = "run";
  question.device = h100;
  question.batch = step.batch;
  question.shape = step.shape;
  question.quantize = quantize;
  question.fuse = fuse;
  const auto run = ops::predict_step(step.calls, question, laws);
  if (!run) {
    HEADROOM_CHECK(!run.error().message.empty(), "an error without words");
    return;
  }
  HEADROOM_CHECK(std::isfinite(run->step_ms) && run->step_ms > 0, "a time that is no number");
  double parts_ms = 0;
  for (const ops::PredictedPart& part : run->parts) {
    HEADROOM_CHECK(part.ms_low <= part.ms && part.ms <= part.ms_high, "an interval around nothing");
    parts_ms += part.ms;
  }
  HEADROOM_CHECK(std::abs(parts_ms - run->step_ms) <= 1e-6 * run->step_ms, "time in no part");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model =
      model::parse_onnx(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!model) {
    HEADROOM_CHECK(!model.error().where.empty(), "an error without a place");
    return 0;
  }
  const auto run = model::run_onnx(*model, {2, 7});
  if (!run) {
    HEADROOM_CHECK(!run.error().message.empty(), "an error without words");
    return 0;
  }
  check_run(*run);
  static const ops::OperatorRules rules = *ops::OperatorRules::load("");
  ops::StepSetting setting;
  const auto step = ops::step_of_onnx(*model, setting, rules);
  if (!step) return 0;
  check_predicted(*step, ops::Quantize::none, false);
  check_predicted(*step, ops::Quantize::int8, false);
  check_predicted(*step, ops::Quantize::w4a16, true);
  return 0;
}
