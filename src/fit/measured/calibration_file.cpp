#include "fit/measured/calibration_file.h"
#include "text/json_parts.h"
#include "timing/calibration.h"

#include <set>

namespace headroom::fit {

namespace {

using text::Json;
using text::JsonView;

constexpr std::string_view kSchema = "headroom.calibration/1";
constexpr int64_t kMostCount = int64_t{1} << 60;
constexpr size_t kMostLaws = 64;
constexpr size_t kMostPoints = 100'000;
constexpr size_t kMostDevices = 1024;
constexpr text::JsonLimits kFileLimits{.bytes = Bytes(64 * kMiB), .values = 2'000'000};

Json strings(const std::set<std::string>& words) {
  Json array = Json::array();
  for (const std::string& word : words) {
    if (!word.empty()) array.push_back(word);
  }
  return array;
}

Json identity_json(const Calibration& calibration) {
  std::set<std::string> devices;
  std::set<std::string> models;
  std::set<std::string> torch;
  std::set<std::string> transformers;
  for (const CalibrationPoint& point : calibration.points) {
    devices.insert(point.device);
    models.insert(point.model);
    torch.insert(point.torch);
    transformers.insert(point.transformers);
  }
  return Json::object()
      .set("learned_from", calibration.learned_from)
      .set("headroom", calibration.version)
      .set("points", static_cast<int64_t>(calibration.points.size()))
      .set("devices", strings(devices))
      .set("models", strings(models))
      .set("torch", strings(torch))
      .set("transformers", strings(transformers));
}

Json law_json(const CalibrationLaw& law) {
  return Json::object()
      .set("metric", name_of(law.metric))
      .set("law", name_of(law.kind))
      .set("offset_bytes", law.offset)
      .set("ratio", law.ratio)
      .set("rows", law.rows)
      .set("models", law.models)
      .set("devices", text::json_array(law.devices))
      .set("error_before_pct", law.error_before_pct)
      .set("error_after_pct", law.error_after_pct)
      .set("basis", law.basis);
}

Json point_json(const CalibrationPoint& point) {
  return Json::object()
      .set("id", point.id)
      .set("source", point.source)
      .set("model", point.model)
      .set("device", point.device)
      .set("torch", point.torch)
      .set("transformers", point.transformers)
      .set("metric", name_of(point.metric))
      .set("predicted_bytes", point.predicted)
      .set("measured_bytes", point.measured);
}

Result<Metric> read_metric(const JsonView& view) {
  HEADROOM_ASSIGN(const std::string name, view.get_string("metric"));
  for (const Metric metric : kMetrics) {
    if (name == name_of(metric)) return metric;
  }
  return view.error_at("metric", "'" + name.substr(0, 80) + "' is not a metric",
                       "peak_allocated, after_step, peak_reserved or device_used");
}

Result<LawKind> read_kind(const JsonView& view) {
  HEADROOM_ASSIGN(const std::string name, view.get_string("law"));
  for (const LawKind kind : {LawKind::none, LawKind::offset, LawKind::ratio}) {
    if (name == name_of(kind)) return kind;
  }
  return view.error_at("law", "'" + name.substr(0, 80) + "' is not a law", "none, offset or ratio");
}

Result<CalibrationLaw> read_law(const JsonView& view) {
  CalibrationLaw law;
  HEADROOM_ASSIGN(law.metric, read_metric(view));
  HEADROOM_ASSIGN(law.kind, read_kind(view));
  HEADROOM_ASSIGN(const int64_t offset,
                  view.get_int("offset_bytes", -kMostOffset.count, kMostOffset.count));
  law.offset = Bytes(offset);
  HEADROOM_ASSIGN(law.ratio, view.get_double("ratio", 1.0 / kMostRatio, kMostRatio));
  HEADROOM_ASSIGN(law.rows, view.get_int("rows", 0, kMostCount));
  HEADROOM_ASSIGN(law.models, view.get_int("models", 0, kMostCount));
  HEADROOM_ASSIGN(law.error_before_pct, view.get_double("error_before_pct", 0, 1e300));
  HEADROOM_ASSIGN(law.error_after_pct, view.get_double("error_after_pct", 0, 1e300));
  HEADROOM_ASSIGN(law.basis, view.get_string("basis"));
  HEADROOM_ASSIGN(const auto devices, view.get_array("devices", kMostDevices));
  for (const JsonView& device : devices) {
    HEADROOM_ASSIGN(std::string name, device.to_string());
    law.devices.push_back(std::move(name));
  }
  return law;
}

Result<CalibrationPoint> read_point(const JsonView& view) {
  CalibrationPoint point;
  for (const auto& [key, field] :
       {std::pair{"id", &point.id}, std::pair{"source", &point.source},
        std::pair{"model", &point.model}, std::pair{"device", &point.device},
        std::pair{"torch", &point.torch}, std::pair{"transformers", &point.transformers}}) {
    HEADROOM_ASSIGN(auto words, view.optional_string(key));
    *field = words.value_or("");
  }
  HEADROOM_ASSIGN(point.metric, read_metric(view));
  HEADROOM_ASSIGN(const int64_t predicted, view.get_int("predicted_bytes", 0, kMostCount));
  HEADROOM_ASSIGN(const int64_t measured, view.get_int("measured_bytes", 0, kMostCount));
  point.predicted = Bytes(predicted);
  point.measured = Bytes(measured);
  return point;
}

Result<void> read_identity(const JsonView& root, Calibration& calibration) {
  HEADROOM_ASSIGN(const auto identity, root.optional_object("identity"));
  if (!identity) return {};
  HEADROOM_ASSIGN(auto learned_from, identity->optional_string("learned_from"));
  HEADROOM_ASSIGN(auto version, identity->optional_string("headroom"));
  calibration.learned_from = learned_from.value_or("");
  calibration.version = version.value_or("");
  return {};
}

}  // namespace

text::Json calibration_json(const Calibration& calibration) {
  Json laws = Json::array();
  for (const CalibrationLaw& law : calibration.laws) laws.push_back(law_json(law));
  Json points = Json::array();
  for (const CalibrationPoint& point : calibration.points) points.push_back(point_json(point));
  return Json::object()
      .set("schema", kSchema)
      .set("identity", identity_json(calibration))
      .set("memory", Json::object().set("laws", std::move(laws)).set("points", std::move(points)));
}

Result<Calibration> read_calibration(const JsonView& root) {
  HEADROOM_ASSIGN(const std::string schema, root.get_string("schema"));
  if (schema != kSchema) {
    return root.error_at("schema", "'" + schema.substr(0, 80) + "' is not a calibration",
                         "expected " + std::string(kSchema) +
                             ", which fit --against FILE.csv --save-calibration writes");
  }
  Calibration calibration;
  HEADROOM_TRY(read_identity(root, calibration));
  HEADROOM_ASSIGN(const auto memory, root.optional_object("memory"));
  if (!memory) return calibration;
  HEADROOM_ASSIGN(const auto laws, memory->get_array("laws", kMostLaws));
  std::set<Metric> seen;
  for (const JsonView& view : laws) {
    HEADROOM_ASSIGN(CalibrationLaw law, read_law(view));
    if (!seen.insert(law.metric).second) return view.error("a second law of one metric");
    calibration.laws.push_back(std::move(law));
  }
  HEADROOM_ASSIGN(const auto points, memory->optional_array("points", kMostPoints));
  for (const JsonView& view : points.value_or(std::vector<JsonView>{})) {
    HEADROOM_ASSIGN(CalibrationPoint point, read_point(view));
    calibration.points.push_back(std::move(point));
  }
  return calibration;
}

Result<Calibration> load_calibration(const std::string& path) {
  HEADROOM_ASSIGN(const Json json, text::read_json_file(path, kFileLimits));
  HEADROOM_ASSIGN(Calibration calibration, read_calibration(JsonView(json, path)));
  calibration.name = path;
  return calibration;
}

Result<Calibration> load_correction(const std::string& path) {
  HEADROOM_ASSIGN(Calibration calibration, load_calibration(path));
  if (!calibration.laws.empty()) return calibration;
  HEADROOM_ASSIGN(const auto times, timing::find_calibration(path));
  if (times) return calibration;
  return Error{ErrorCode::bad_input, "corrects nothing: no law of memory, no times of operators",
               path,
               "`headroom fit --against FILE.csv --save-calibration` and `headroom bench device` "
               "write such files"};
}

}  // namespace headroom::fit
