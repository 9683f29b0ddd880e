#include "timing/measured_point.h"

#include <algorithm>
#include <string>
#include <utility>

namespace headroom::timing {

namespace {

using text::Json;
using text::JsonView;

// The product of two of them is within int64_t.
constexpr int64_t kMostDimension = int64_t{1} << 31;
constexpr double kMostDrift = 50;
constexpr int64_t kMostSamples = int64_t{1} << 40;
constexpr double kMostBytes = 1e18;
constexpr double kLeastSeconds = 1e-10;
constexpr double kMostSeconds = 1e6;
constexpr double kMostUncertainty = 1e3;
constexpr size_t kMostPoints = 100'000;

std::string shown(const std::string& name) { return "'" + name.substr(0, 80) + "'"; }

template <typename Shape>
using Members = std::vector<std::pair<std::string_view, int64_t Shape::*>>;

const Members<GemmShape>& members_of(const GemmShape&) {
  static const Members<GemmShape> list{{"batch", &GemmShape::batch},
                                       {"m", &GemmShape::m},
                                       {"n", &GemmShape::n},
                                       {"k", &GemmShape::k}};
  return list;
}
const Members<AttentionShape>& members_of(const AttentionShape&) {
  static const Members<AttentionShape> list{
      {"batch", &AttentionShape::batch},       {"heads", &AttentionShape::heads},
      {"kv_heads", &AttentionShape::kv_heads}, {"head_dim", &AttentionShape::head_dim},
      {"queries", &AttentionShape::queries},   {"context", &AttentionShape::context}};
  return list;
}
const Members<RowsShape>& members_of(const RowsShape&) {
  static const Members<RowsShape> list{{"rows", &RowsShape::rows}, {"width", &RowsShape::width}};
  return list;
}
const Members<CollectiveShape>& members_of(const CollectiveShape&) {
  static const Members<CollectiveShape> list{{"group", &CollectiveShape::group},
                                             {"message", &CollectiveShape::message}};
  return list;
}

template <typename Shape>
Json shape_json(const Shape& shape) {
  Json json = Json::object();
  for (const auto& [name, member] : members_of(shape)) json.set(name, shape.*member);
  return json;
}

Json shape_json(const AttentionShape& shape) {
  Json json = shape_json<AttentionShape>(shape);
  if (!shape.is_causal) json.set("is_causal", false);
  return json;
}

template <typename Shape>
Result<Shape> read_shape(const JsonView& view) {
  Shape shape;
  for (const auto& [name, member] : members_of(shape)) {
    HEADROOM_ASSIGN(shape.*member, view.get_int(name, 1, kMostDimension));
  }
  return shape;
}

Result<device::Rate> read_rate(const JsonView& view) {
  HEADROOM_ASSIGN(const std::string name, view.get_string("rate"));
  for (const device::Rate rate : device::kRates) {
    if (name == device::name_of(rate)) return rate;
  }
  return view.error_at("rate", shown(name) + " is not a type of arithmetic");
}

// The call with its work counted, and no bytes yet.
Result<Call> read_call(const JsonView& view) {
  HEADROOM_ASSIGN(const std::string name, view.get_string("class"));
  const std::optional<OperatorClass> kind = parse_operator_class(name);
  if (!kind) return view.error_at("class", shown(name) + " is not a class of operators");
  HEADROOM_ASSIGN(const device::Rate rate, read_rate(view));
  HEADROOM_ASSIGN(const JsonView shape, view.get_object("shape"));
  Call call;
  switch (*kind) {
    case OperatorClass::gemm:
    case OperatorClass::gemm_fp32: {
      HEADROOM_ASSIGN(const GemmShape gemm, read_shape<GemmShape>(shape));
      call = gemm_call(gemm, rate, 1);
      break;
    }
    case OperatorClass::linear_int8: {
      HEADROOM_ASSIGN(const GemmShape gemm, read_shape<GemmShape>(shape));
      call = linear_int8_call(gemm, 4);
      break;
    }
    case OperatorClass::attention_decode:
    case OperatorClass::attention_prefill: {
      HEADROOM_ASSIGN(AttentionShape attention, read_shape<AttentionShape>(shape));
      HEADROOM_ASSIGN(const auto is_causal, shape.optional_bool("is_causal"));
      attention.is_causal = is_causal.value_or(true);
      if (attention.queries > attention.context) {
        return shape.error("has more queries than its context has tokens");
      }
      call = attention_call(attention, rate, 1);
      break;
    }
    case OperatorClass::all_reduce:
    case OperatorClass::all_reduce_graph: {
      HEADROOM_ASSIGN(const CollectiveShape collective, read_shape<CollectiveShape>(shape));
      if (collective.group < 2) return shape.error_at("group", "is of one device");
      call = all_reduce_call(*kind, collective);
      break;
    }
    default: {
      HEADROOM_ASSIGN(const RowsShape rows, read_shape<RowsShape>(shape));
      call = rows_call(*kind, rows, 1);
      break;
    }
  }
  if (call.kind != *kind) return view.error_at("class", "does not agree with the shape");
  call.rate = rate;
  return call;
}

}  // namespace

Json point_json(const MeasuredPoint& point) {
  Json json = Json::object();
  if (point.drift_log > 0) json.set("drift_log", point.drift_log);
  return json.set("class", name_of(point.call.kind))
      .set("rate", device::name_of(point.call.rate))
      .set("shape",
           std::visit([](const auto& shape) { return shape_json(shape); }, point.call.shape))
      .set("bytes", point.call.bytes)
      .set("seconds", point.seconds)
      .set("uncertainty", point.uncertainty)
      .set("samples", point.samples);
}

Result<MeasuredPoint> read_point(const JsonView& view) {
  MeasuredPoint point;
  HEADROOM_ASSIGN(point.call, read_call(view));
  HEADROOM_ASSIGN(point.call.bytes, view.get_double("bytes", 1, kMostBytes));
  HEADROOM_ASSIGN(point.seconds, view.get_double("seconds", kLeastSeconds, kMostSeconds));
  HEADROOM_ASSIGN(const auto uncertainty, view.optional_double("uncertainty", 0, kMostUncertainty));
  point.uncertainty = uncertainty.value_or(0);
  HEADROOM_ASSIGN(const auto samples, view.optional_int("samples", 0, kMostSamples));
  point.samples = samples.value_or(0);
  HEADROOM_ASSIGN(const auto drift, view.optional_double("drift_log", 0, kMostDrift));
  point.drift_log = drift.value_or(0);
  return point;
}

Result<std::vector<MeasuredPoint>> read_points(const JsonView& root, std::string_view key) {
  HEADROOM_ASSIGN(const auto items, root.get_array(key, kMostPoints));
  std::vector<MeasuredPoint> points;
  points.reserve(items.size());
  for (const JsonView& item : items) {
    HEADROOM_ASSIGN(MeasuredPoint point, read_point(item));
    points.push_back(std::move(point));
  }
  return points;
}

}  // namespace headroom::timing
