#include "timing/int8_quotient.h"

#include <cmath>
#include <map>
#include <tuple>

#include "timing/device_law.h"

namespace headroom::timing {

namespace {

// The quotient goes for seconds. A roofline that no quotient reaches leaves the law nothing to take
// for the start of a call.
constexpr double kRoofSeconds = 1e4;
constexpr BytesPerSecond kBandwidth{1e9};

using Sizes = std::tuple<int64_t, int64_t, int64_t, int64_t>;

Call unit_call(const GemmShape& shape) {
  Call call = linear_int8_call(shape, 4);
  call.flops = 0;
  call.bytes = kRoofSeconds * kBandwidth.value;
  return call;
}

std::map<Sizes, const MeasuredPoint*> points_of(OperatorClass kind,
                                                const std::vector<MeasuredPoint>& points) {
  std::map<Sizes, const MeasuredPoint*> found;
  for (const MeasuredPoint& point : points) {
    const auto* shape = std::get_if<GemmShape>(&point.call.shape);
    if (point.call.kind != kind || shape == nullptr) continue;
    found.emplace(Sizes(shape->batch, shape->m, shape->n, shape->k), &point);
  }
  return found;
}

std::vector<MeasuredPoint> quotients(const std::vector<MeasuredPoint>& points) {
  const auto floats = points_of(OperatorClass::gemm_fp32, points);
  std::vector<MeasuredPoint> found;
  for (const auto& [sizes, int8] : points_of(OperatorClass::linear_int8, points)) {
    const auto other = floats.find(sizes);
    if (other == floats.end() || !(other->second->seconds > 0)) continue;
    MeasuredPoint point = *int8;
    point.call = unit_call(std::get<GemmShape>(int8->call.shape));
    point.seconds = int8->seconds / other->second->seconds;
    point.uncertainty = std::hypot(int8->uncertainty, other->second->uncertainty);
    point.drift_log = 0;  // of one of the two alone
    if (std::isfinite(point.seconds) && point.seconds > 0) found.push_back(point);
  }
  return found;
}

}  // namespace

std::optional<Int8Quotient> Int8Quotient::fit(const device::Device& processor,
                                              const std::vector<MeasuredPoint>& points) {
  Int8Quotient made;
  made.processor_ = processor;
  made.processor_.bandwidth = {kBandwidth, Provenance::measured, "a quotient"};
  const auto pairs = undisturbed(made.processor_, quotients(points));
  if (!pairs || pairs->size() > TimingModel::kMostPoints) return std::nullopt;
  const Result<Law> law = fit_device_law(made.processor_, *pairs);
  if (!law) return std::nullopt;
  made.model_.merge(LawFile{{}, {}, {}, {*law}});
  if (!made.model_.correct(made.processor_, *pairs)) return std::nullopt;
  return made;
}

std::optional<Quotient> Int8Quotient::of(const GemmShape& shape) const {
  const Result<PredictedTime> found = model_.predict(unit_call(shape), processor_);
  if (!found || !(found->seconds > 0)) return std::nullopt;
  return Quotient{found->seconds_low, found->seconds, found->seconds_high};
}

}  // namespace headroom::timing
