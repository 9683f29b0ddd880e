#include "study/study.h"

#include "batch/batch.h"
#include "device/catalogue.h"
#include "fit/fit.h"
#include "fit/prediction.h"
#include "model/builtin.h"
#include "pack/step.h"
#include "timing/calibration.h"

namespace headroom::study {
namespace {

// Twice the time between tokens at 32 in flight: the target of the memory-gap paper's advisor.
constexpr batch::ItlTarget kUsualTarget{.multiple = 2, .at_batch = 32};

op::DType serving_type(fit::Dtype dtype) {
  switch (dtype) {
    case fit::Dtype::bf16:
      return op::DType::bf16;
    case fit::Dtype::fp16:
      return op::DType::f16;
    case fit::Dtype::fp32:
      return op::DType::f32;
  }
  return op::DType::bf16;
}

Result<batch::BatchAnswer> serving(const fit::FitQuestion& question) {
  if (model::is_python_function(question.model)) {
    return Error{ErrorCode::unavailable, "decode steps are predicted from a configuration", {}, {}};
  }
  HEADROOM_ASSIGN(const model::ResolvedModel model, model::resolve_model(question.model));
  HEADROOM_ASSIGN(device::DeviceCatalogue catalogue, device::DeviceCatalogue::load());
  HEADROOM_ASSIGN(timing::TimingModel timing_model, timing::TimingModel::load());
  if (!question.calibration.empty()) {
    HEADROOM_ASSIGN(const auto measured, timing::find_calibration(question.calibration));
    if (measured) HEADROOM_TRY(timing::adopt(*measured, catalogue, timing_model));
  }
  batch::BatchQuestion asked;
  asked.model = model.name;
  HEADROOM_ASSIGN(asked.device, catalogue.find(question.device));
  asked.weights = serving_type(question.dtype);
  asked.slo = kUsualTarget;
  const text::JsonView config = model.view();
  return batch::answer(asked, &config, timing_model);
}

// One step of the same question, under the default settings whatever it asked for: those are among
// what it is compared with.
Result<pack::PackAnswer> packed(const fit::FitQuestion& question) {
  fit::FitQuestion asked = question;
  asked.allocator.clear();
  asked.search = false;
  HEADROOM_ASSIGN(const fit::Scenario scenario, fit::resolve(asked));
  HEADROOM_ASSIGN(const fit::DetailedPrediction detail, fit::predict_in_detail(scenario, 0));
  return pack::answer_step({.file = "a training step of " + question.model}, detail.trace);
}

}  // namespace

Result<StudyAnswer> study(const fit::FitQuestion& question) {
  StudyAnswer answer;
  HEADROOM_ASSIGN(answer.fit, fit::answer(question));
  auto step = packed(question);
  if (step) {
    answer.pack = *std::move(step);
  } else {
    answer.missing.push_back({"pack", step.error().message});
  }
  auto served = serving(question);
  if (served) {
    answer.batch = *std::move(served);
  } else {
    answer.missing.push_back({"batch", served.error().message});
  }
  return answer;
}

}  // namespace headroom::study
