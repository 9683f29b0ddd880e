#include "timing/features.h"

#include <algorithm>
#include <cmath>

namespace headroom::timing {

namespace {

constexpr std::array<std::string_view, kFeatures> kNames{
    "traffic_us", "l2",    "intensity", "waves",   "wave_fill", "m",
    "n",          "k",     "m_fill",    "context", "sequences", "sharing",
    "head_dim",   "width", "rows",      "message", "group",     "density"};

constexpr double kTile = 128;            // results a thread block makes along an axis
constexpr double kSubtile = 64;          // its grain
constexpr double kLeastCompute = 1e-12;  // seconds; for calls that compute nothing

void set(Features& features, Feature feature, double value) {
  features.values[static_cast<size_t>(feature)] = value;
}

void add_shape(Features& features, const GemmShape& shape, double sm) {
  const double m = static_cast<double>(shape.m);
  const double n = static_cast<double>(shape.n);
  const double waves =
      static_cast<double>(shape.batch) * std::ceil(m / kTile) * std::ceil(n / kTile) / sm;
  set(features, Feature::waves, std::log(waves));
  set(features, Feature::wave_fill, waves > 1 ? std::log(waves / std::ceil(waves)) : 0);
  set(features, Feature::m, std::log(m));
  set(features, Feature::n, std::log(n));
  set(features, Feature::k, std::log(static_cast<double>(shape.k)));
  const double filled = m > kSubtile ? m / (kSubtile * std::ceil(m / kSubtile)) : 1;
  set(features, Feature::m_fill, std::log(filled));
}

void add_shape(Features& features, const AttentionShape& shape, double sm) {
  const double batch = static_cast<double>(shape.batch);
  const double heads = static_cast<double>(shape.heads);
  const double kv_heads = static_cast<double>(shape.kv_heads);
  const double tiles = batch * heads * std::ceil(static_cast<double>(shape.queries) / kTile);
  set(features, Feature::context, std::log(static_cast<double>(shape.context)));
  set(features, Feature::sequences, std::log(batch * kv_heads / sm));
  set(features, Feature::waves, std::log(tiles / sm));
  set(features, Feature::sharing, std::log(heads / kv_heads));
  set(features, Feature::head_dim, std::log(static_cast<double>(shape.head_dim)));
}

// A kernel that goes in blocks computes pairs, too, that a causal mask takes away.
double density_of(const AttentionShape& shape, double flops) {
  const double pairs = static_cast<double>(shape.queries) * static_cast<double>(shape.context);
  const double heads = static_cast<double>(shape.batch) * static_cast<double>(shape.heads);
  return flops / (4 * heads * static_cast<double>(shape.head_dim) * pairs);
}

void add_shape(Features& features, const CollectiveShape& shape, double) {
  set(features, Feature::message, std::log(static_cast<double>(shape.message)));
  set(features, Feature::group, std::log(static_cast<double>(shape.group)));
}

void add_shape(Features& features, const RowsShape& shape, double sm) {
  set(features, Feature::width, std::log(static_cast<double>(shape.width)));
  set(features, Feature::rows, std::log(static_cast<double>(shape.rows) / sm));
}

Error missing(const device::Device& device, std::string_view figure) {
  return Error{ErrorCode::unavailable,
               "the " + std::string(figure) + " of " + device.name +
                   " is not known, so that operators cannot be timed on it",
               {},
               "give it: --device " + device.name + "," + std::string(figure) + "=..."};
}

// Devices from before bfloat16 compute in the other half precision.
Error missing_rate(const device::Device& device, device::Rate rate) {
  Error error = missing(device, "rate of " + std::string(name_of(rate)));
  error.hint = "give it: --device " + device.name + "," + std::string(name_of(rate)) + "=...";
  if (rate == device::Rate::bf16 && device.rate(device::Rate::fp16).known()) {
    error.hint = "--dtype float16, which it has; or " + error.hint;
  }
  return error;
}

}  // namespace

std::string_view name_of(Feature feature) { return kNames[static_cast<size_t>(feature)]; }

std::optional<Feature> parse_feature(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Feature>(i);
  }
  return std::nullopt;
}

bool has_feature(OperatorClass kind, Feature feature) {
  switch (feature) {
    case Feature::traffic_us:
    case Feature::l2:
    case Feature::intensity:
      return true;
    case Feature::wave_fill:
    case Feature::m:
    case Feature::n:
    case Feature::k:
    case Feature::m_fill:
      return kind == OperatorClass::gemm || kind == OperatorClass::gemm_fp32 ||
             kind == OperatorClass::linear_int8;
    case Feature::context:
    case Feature::sequences:
    case Feature::sharing:
    case Feature::head_dim:
      return kind == OperatorClass::attention_decode || kind == OperatorClass::attention_prefill;
    case Feature::waves:
      return has_feature(kind, Feature::k) || has_feature(kind, Feature::context);
    case Feature::density:
      return kind == OperatorClass::attention_prefill;
    case Feature::message:
    case Feature::group:
      return kind == OperatorClass::all_reduce || kind == OperatorClass::all_reduce_graph;
    case Feature::width:
    case Feature::rows:
      return !has_feature(kind, Feature::waves) && !has_feature(kind, Feature::message);
  }
  return false;
}

Result<Features> features_of(const Call& call, const device::Device& device) {
  const auto& rate = device.rate(call.rate);
  if (call.flops > 0 && !(rate.known() && rate.value.value > 0)) {
    return missing_rate(device, call.rate);
  }
  if (!(device.bandwidth.known() && device.bandwidth.value.value > 0)) {
    return missing(device, "bandwidth");
  }
  if (!(device.l2.known() && device.l2.value > Bytes(0))) return missing(device, "l2");
  if (!(device.sm_count.known() && device.sm_count.value > 0)) return missing(device, "sm_count");

  const auto* collective = std::get_if<CollectiveShape>(&call.shape);
  if (collective != nullptr && !(device.link.known() && device.link.value.value > 0)) {
    return missing(device, "link");
  }
  const BytesPerSecond path = collective != nullptr ? device.link.value : device.bandwidth.value;

  Features features;
  features.roofline.compute_seconds = call.flops > 0 ? call.flops / rate.value.value : 0;
  features.roofline.traffic_seconds = call.bytes / path.value;
  const double caches = call.bytes / static_cast<double>(device.l2.value.count);
  features.large =
      collective != nullptr ? collective->message >= kLargeMessage.count : caches >= kLargeOperands;
  set(features, Feature::traffic_us, std::log(features.roofline.traffic_seconds * 1e6));
  set(features, Feature::l2, std::log(caches));
  set(features, Feature::intensity,
      std::log(std::max(features.roofline.compute_seconds, kLeastCompute) /
               features.roofline.traffic_seconds));
  const double sm = static_cast<double>(device.sm_count.value);
  std::visit([&](const auto& shape) { add_shape(features, shape, sm); }, call.shape);
  const auto* attention = std::get_if<AttentionShape>(&call.shape);
  if (attention != nullptr && call.flops > 0 && has_feature(call.kind, Feature::density)) {
    set(features, Feature::density, std::log(density_of(*attention, call.flops)));
  }
  return features;
}

}  // namespace headroom::timing
