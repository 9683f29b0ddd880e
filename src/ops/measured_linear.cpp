#include "ops/measured_linear.h"

#include <cmath>

#include "ops/calibration_notes.h"
#include "ops/operator_work.h"

namespace headroom::ops {
namespace {

using timing::GemmShape;
using timing::PredictedTime;
using timing::Quotient;

// Half of the interval, as a logarithm.
double half_width(const PredictedTime& time) { return std::log(time.seconds_high / time.seconds); }

// Of two laws, which err apart from each other.
std::optional<Quotient> quotient_of(const GemmShape& linear, const device::Device& processor,
                                    const timing::TimingModel& laws) {
  constexpr double kFloat = 4;
  const auto before =
      laws.predict(timing::gemm_call(linear, device::Rate::fp32, kFloat), processor);
  const auto after = laws.predict(timing::linear_int8_call(linear, kFloat), processor);
  if (!before || !after || before->seconds <= 0) return std::nullopt;
  const double middle = after->seconds / before->seconds;
  const double width = std::hypot(half_width(*before), half_width(*after));
  return Quotient{middle * std::exp(-width), middle, middle * std::exp(width)};
}

}  // namespace

std::optional<Scenario> measured_int8(const Recording& recording, const RecordedRun& run,
                                      const device::Device& processor,
                                      const timing::TimingModel& laws,
                                      const timing::Int8Quotient* quotient) {
  const timing::Law* law = laws.law_for(timing::OperatorClass::linear_int8, processor.name);
  if (law == nullptr) return std::nullopt;
  Scenario made{"gemm_int8_fused",
                "linear layers in int8, as measured on " + std::string(measured_product(processor)),
                {},
                {},
                0};
  const std::vector<timing::ReplayKernel>& kernels = recording.program.kernels;
  made.made.kernel_factors.assign(kernels.size(), 1.0);
  timing::ReplayChange slower = made.made;
  timing::ReplayChange faster = made.made;
  OperatorCounts counts(run.trace);
  bool has_linear = false;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const auto& work = counts.of(recording.events[i]);
    if (!work || !work->linear || work->dtype != op::DType::f32) continue;
    const std::optional<Quotient> factor = quotient != nullptr
                                               ? quotient->of(*work->linear)
                                               : quotient_of(*work->linear, processor, laws);
    if (!factor) continue;
    has_linear = true;
    made.made.kernel_factors[i] = factor->middle;
    slower.kernel_factors[i] = factor->high;
    faster.kernel_factors[i] = factor->low;
    made.saved_ms += static_cast<double>(kernels[i].duration_ns) / 1e6 * (1 - factor->middle);
  }
  if (!has_linear) return std::nullopt;
  made.spanned = {std::move(slower), std::move(faster)};
  return made;
}

}  // namespace headroom::ops
