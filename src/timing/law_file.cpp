#include "timing/law_file.h"

#include <algorithm>

#include "text/json_parts.h"

namespace headroom::timing {

namespace {

using text::Json;
using text::JsonView;

constexpr std::string_view kSchema = "headroom.timing/1";
constexpr size_t kMostLaws = 2000;
constexpr size_t kMostEngines = 64;
constexpr size_t kMostSteps = 64;
constexpr double kMostRatio = 1000;
constexpr size_t kMostTables = 32;
constexpr size_t kMostKnots = 64;
constexpr size_t kMostNames = 256;
constexpr double kMostLog = 50;       // of a feature: e^50 is beyond any shape
constexpr double kMostLogRatio = 10;  // of a table's value: a factor of 22,000
constexpr double kMostHalfWidth = 10;
constexpr double kMostStartSeconds = 1;
constexpr int64_t kMostRows = int64_t{1} << 40;

std::string shown(const std::string& name) { return "'" + name.substr(0, 80) + "'"; }

Result<std::vector<std::string>> read_names(const JsonView& view, std::string_view key) {
  std::vector<std::string> names;
  HEADROOM_ASSIGN(const auto items, view.optional_array(key, kMostNames));
  for (const JsonView& item : items.value_or(std::vector<JsonView>{})) {
    HEADROOM_ASSIGN(std::string name, item.to_string());
    names.push_back(std::move(name));
  }
  return names;
}

Result<std::vector<double>> read_numbers(const std::vector<JsonView>& items, double most) {
  std::vector<double> numbers;
  numbers.reserve(items.size());
  for (const JsonView& item : items) {
    HEADROOM_ASSIGN(const double number, item.to_double(-most, most));
    numbers.push_back(number);
  }
  return numbers;
}

Result<std::vector<Feature>> read_features(const JsonView& view, OperatorClass kind, size_t most) {
  HEADROOM_ASSIGN(const auto items, view.get_array("features", most));
  if (items.empty()) return view.error_at("features", "no feature is named");
  std::vector<Feature> features;
  for (const JsonView& item : items) {
    HEADROOM_ASSIGN(const std::string name, item.to_string());
    const std::optional<Feature> feature = parse_feature(name);
    if (!feature) return item.error(shown(name) + " is not a feature");
    if (!has_feature(kind, *feature)) {
      return item.error("calls of class " + std::string(name_of(kind)) + " have no " + shown(name));
    }
    features.push_back(*feature);
  }
  return features;
}

Result<std::vector<double>> read_knots(const JsonView& axis) {
  HEADROOM_ASSIGN(const auto items, axis.to_array(kMostKnots));
  if (items.size() < 2) return axis.error("an axis has at least 2 knots");
  std::vector<double> knots;
  for (const JsonView& item : items) {
    HEADROOM_ASSIGN(const double knot, item.to_double(-kMostLog, kMostLog));
    if (!knots.empty() && !(knot > knots.back())) return axis.error("knots must ascend");
    knots.push_back(knot);
  }
  return knots;
}

Result<Table> read_table(const JsonView& view, OperatorClass kind) {
  Table table;
  HEADROOM_ASSIGN(table.features, read_features(view, kind, 2));
  HEADROOM_ASSIGN(const auto axes, view.get_array("knots", 2));
  if (axes.size() != table.features.size()) {
    return view.error_at("knots", "expected one list of knots for each feature");
  }
  size_t nodes = 1;
  for (const JsonView& axis : axes) {
    HEADROOM_ASSIGN(std::vector<double> knots, read_knots(axis));
    nodes *= knots.size();
    table.knots.push_back(std::move(knots));
  }
  HEADROOM_ASSIGN(const auto values, view.get_array("values", kMostKnots * kMostKnots));
  if (values.size() != nodes) {
    return view.error_at("values", "expected " + std::to_string(nodes) +
                                       " values, one a node, found " +
                                       std::to_string(values.size()));
  }
  HEADROOM_ASSIGN(table.values, read_numbers(values, kMostLogRatio));
  return table;
}

Result<HeldOutError> read_error(const JsonView& view, std::string_view size) {
  HeldOutError error;
  HEADROOM_ASSIGN(const JsonView member, view.get_object(size));
  HEADROOM_ASSIGN(error.rows, member.get_int("rows", 0, kMostRows));
  HEADROOM_ASSIGN(const auto median, member.optional_double("median_error_pct", 0, 1e9));
  error.median_error_pct = median.value_or(0);
  HEADROOM_ASSIGN(error.half_width_log, member.get_double("half_width_log", 0, kMostHalfWidth));
  return error;
}

Result<Correction> read_correction(const JsonView& view, OperatorClass kind) {
  Correction correction;
  HEADROOM_ASSIGN(correction.features, read_features(view, kind, kFeatures));
  HEADROOM_ASSIGN(const auto center, view.get_array("center", kFeatures));
  HEADROOM_ASSIGN(const auto scale, view.get_array("scale", kFeatures));
  HEADROOM_ASSIGN(correction.center, read_numbers(center, kMostLog));
  HEADROOM_ASSIGN(correction.scale, read_numbers(scale, kMostLog));
  const size_t count = correction.features.size();
  if (correction.center.size() != count || correction.scale.size() != count) {
    return view.error("center and scale have one number for each feature");
  }
  if (std::any_of(correction.scale.begin(), correction.scale.end(),
                  [](double unit) { return !(unit >= 1e-6); })) {
    return view.error_at("scale", "a scale is positive");
  }
  // The noise keeps the equations of kriging solvable, so it may not vanish.
  HEADROOM_ASSIGN(correction.offset_sd, view.get_double("offset_sd", 0, 10));
  HEADROOM_ASSIGN(correction.local_sd, view.get_double("local_sd", 0, 10));
  HEADROOM_ASSIGN(correction.noise_sd, view.get_double("noise_sd", 1e-3, 10));
  HEADROOM_ASSIGN(const JsonView widths, view.get_object("half_width_log"));
  HEADROOM_ASSIGN(correction.half_width_log_large, widths.get_double("large", 0, kMostHalfWidth));
  HEADROOM_ASSIGN(correction.half_width_log_small, widths.get_double("small", 0, kMostHalfWidth));
  return correction;
}

Result<std::vector<device::Rate>> read_rates(const JsonView& view, std::string_view key) {
  std::vector<device::Rate> rates;
  HEADROOM_ASSIGN(const auto items, view.optional_array(key, device::kRates.size()));
  for (const JsonView& item : items.value_or(std::vector<JsonView>{})) {
    HEADROOM_ASSIGN(const std::string name, item.to_string());
    const auto* const found = std::ranges::find(device::kRateNames, name);
    if (found == device::kRateNames.end()) {
      return item.error(shown(name) + " is not a rate of arithmetic");
    }
    rates.push_back(static_cast<device::Rate>(found - device::kRateNames.begin()));
  }
  return rates;
}

Result<Law> read_law(const JsonView& view) {
  Law law;
  HEADROOM_ASSIGN(const std::string name, view.get_string("class"));
  const std::optional<OperatorClass> kind = parse_operator_class(name);
  if (!kind) return view.error_at("class", shown(name) + " is not a class of operators");
  law.kind = *kind;
  HEADROOM_ASSIGN(auto device, view.optional_string("device"));
  law.device = device.value_or("");
  HEADROOM_ASSIGN(law.devices, read_names(view, "devices"));
  HEADROOM_ASSIGN(law.sources, read_names(view, "sources"));
  HEADROOM_ASSIGN(law.rates, read_rates(view, "rates"));
  HEADROOM_ASSIGN(law.start_seconds, view.get_double("start_seconds", 0, kMostStartSeconds));
  HEADROOM_ASSIGN(law.intercept, view.get_double("intercept", -kMostLogRatio, kMostLogRatio));
  HEADROOM_ASSIGN(const JsonView errors, view.get_object("errors"));
  HEADROOM_ASSIGN(law.large, read_error(errors, "large"));
  HEADROOM_ASSIGN(law.small, read_error(errors, "small"));
  HEADROOM_ASSIGN(const auto tables, view.get_array("tables", kMostTables));
  for (const JsonView& item : tables) {
    HEADROOM_ASSIGN(Table table, read_table(item, law.kind));
    law.tables.push_back(std::move(table));
  }
  HEADROOM_ASSIGN(const auto correction, view.optional_object("correction"));
  if (correction) {
    HEADROOM_ASSIGN(law.correction, read_correction(*correction, law.kind));
    law.can_correct = true;
  }
  return law;
}

Result<std::vector<std::pair<std::string, double>>> read_ratios(const JsonView& view) {
  std::vector<std::pair<std::string, double>> ratios;
  HEADROOM_ASSIGN(const auto items, view.optional_array("ratios", kMostNames));
  for (const JsonView& item : items.value_or(std::vector<JsonView>{})) {
    HEADROOM_ASSIGN(std::string device, item.get_string("device"));
    HEADROOM_ASSIGN(const double ratio, item.get_double("ratio", 1 / kMostRatio, kMostRatio));
    ratios.emplace_back(std::move(device), ratio);
  }
  return ratios;
}

Result<std::optional<WholeSteps>> read_whole_steps(const JsonView& view) {
  HEADROOM_ASSIGN(const auto member, view.optional_object("whole_steps"));
  if (!member) return std::optional<WholeSteps>();
  WholeSteps steps;
  HEADROOM_ASSIGN(steps.learned, member->get_int("learned", 1, kMostRows));
  HEADROOM_ASSIGN(steps.aside, member->get_int("aside", 0, kMostRows));
  HEADROOM_ASSIGN(steps.inside, member->get_int("inside", 0, steps.aside));
  return std::optional(steps);
}

Result<InStep> read_step(const JsonView& view) {
  InStep step;
  HEADROOM_ASSIGN(step.name, view.get_string("name"));
  HEADROOM_ASSIGN(step.source, view.get_string("source"));
  HEADROOM_ASSIGN(step.devices, read_names(view, "devices"));
  HEADROOM_ASSIGN(step.ratio, view.get_double("ratio", 1 / kMostRatio, kMostRatio));
  HEADROOM_ASSIGN(const auto dequantize,
                  view.optional_double("dequantize_ratio", 1 / kMostRatio, kMostRatio));
  step.dequantize_ratio = dequantize.value_or(1);
  for (const auto& [key, field] :
       {std::pair{"half_width_log", &step.half_width_log},
        std::pair{"half_width_log_elsewhere", &step.half_width_log_elsewhere}}) {
    HEADROOM_ASSIGN(*field, view.get_double(key, 0, kMostHalfWidth));
  }
  HEADROOM_ASSIGN(step.median_error_pct, view.get_double("median_error_pct", 0, 1e9));
  for (const auto& [key, field] : {std::pair{"host_launch_seconds", &step.host_launch_seconds},
                                   std::pair{"host_unit_seconds", &step.host_unit_seconds}}) {
    HEADROOM_ASSIGN(const auto seconds, view.optional_double(key, 0, kMostStartSeconds));
    *field = seconds.value_or(0);
  }
  HEADROOM_ASSIGN(step.ratios, read_ratios(view));
  HEADROOM_ASSIGN(step.whole_steps, read_whole_steps(view));
  return step;
}

// Whose versions an engine's law is of, and how whole steps judge it.
Result<void> read_generation(const JsonView& view, Engine& engine) {
  HEADROOM_ASSIGN(const auto serves, view.optional_string("serves"));
  HEADROOM_ASSIGN(const auto before, view.optional_string("before"));
  if (serves.has_value() != before.has_value()) {
    return view.error_at("before", "'serves' and 'before' stand together",
                         "\"serves\": \"vllm\", \"before\": \"0.8\"");
  }
  engine.serves = serves.value_or("");
  engine.before = before.value_or("");
  HEADROOM_ASSIGN(const auto least, view.optional_double("least_step_seconds", 0, 1));
  engine.least_step_seconds = least.value_or(0);
  HEADROOM_ASSIGN(const auto widths, view.optional_object("step_half_width_log"));
  if (!widths) return {};
  StepHalfWidth& width = engine.step_half_width.emplace();
  HEADROOM_ASSIGN(width.dense_log, widths->get_double("dense", 0, kMostHalfWidth));
  HEADROOM_ASSIGN(width.experts_log, widths->get_double("experts", 0, kMostHalfWidth));
  HEADROOM_ASSIGN(width.devices, read_names(*widths, "devices"));
  HEADROOM_ASSIGN(width.weights, read_rates(*widths, "weights"));
  return {};
}

Result<Engine> read_engine(const JsonView& view) {
  Engine engine;
  HEADROOM_ASSIGN(engine.name, view.get_string("name"));
  HEADROOM_ASSIGN(engine.source, view.get_string("source"));
  for (const auto& [key, field] :
       {std::pair{"host_base_seconds", &engine.host_base_seconds},
        std::pair{"host_seconds_per_sequence", &engine.host_seconds_per_sequence},
        std::pair{"sampling_seconds_per_logit", &engine.sampling_seconds_per_logit}}) {
    HEADROOM_ASSIGN(*field, view.get_double(key, 0, kMostStartSeconds));
  }
  HEADROOM_ASSIGN(const auto device, view.optional_string("device"));
  engine.device = device.value_or("");
  HEADROOM_ASSIGN(const auto is_eager, view.optional_bool("eager"));
  engine.is_eager = is_eager.value_or(false);
  HEADROOM_ASSIGN(const auto is_whole, view.optional_bool("prompts_whole"));
  engine.reads_prompts_whole = is_whole.value_or(false);
  HEADROOM_ASSIGN(const auto by_operator,
                  view.optional_double("host_seconds_per_operator", 0, kMostStartSeconds));
  engine.host_seconds_per_operator = by_operator.value_or(0);
  HEADROOM_ASSIGN(engine.half_width_log, view.get_double("half_width_log", 0, kMostHalfWidth));
  HEADROOM_ASSIGN(engine.median_error_pct, view.get_double("median_error_pct", 0, 1e9));
  HEADROOM_TRY(read_generation(view, engine));
  return engine;
}

// ---- writing

Json features_json(const std::vector<Feature>& features) {
  return text::json_array(features, [](Feature feature) { return Json(name_of(feature)); });
}

Json table_json(const Table& table) {
  return Json::object()
      .set("features", features_json(table.features))
      .set("knots", text::json_array(table.knots, text::json_array<std::vector<double>>))
      .set("values", text::json_array(table.values));
}

Json error_json(const HeldOutError& error) {
  return Json::object()
      .set("rows", error.rows)
      .set("median_error_pct", error.median_error_pct)
      .set("half_width_log", error.half_width_log);
}

Json correction_json(const Correction& correction) {
  return Json::object()
      .set("features", features_json(correction.features))
      .set("center", text::json_array(correction.center))
      .set("scale", text::json_array(correction.scale))
      .set("offset_sd", correction.offset_sd)
      .set("local_sd", correction.local_sd)
      .set("noise_sd", correction.noise_sd)
      .set("half_width_log", Json::object()
                                 .set("large", correction.half_width_log_large)
                                 .set("small", correction.half_width_log_small));
}

Json step_json(const InStep& step) {
  Json json = Json::object()
                  .set("name", step.name)
                  .set("source", step.source)
                  .set("devices", text::json_array(step.devices))
                  .set("ratio", step.ratio)
                  .set("dequantize_ratio", step.dequantize_ratio)
                  .set("half_width_log", step.half_width_log)
                  .set("half_width_log_elsewhere", step.half_width_log_elsewhere)
                  .set("median_error_pct", step.median_error_pct)
                  .set("host_launch_seconds", step.host_launch_seconds)
                  .set("host_unit_seconds", step.host_unit_seconds);
  if (!step.ratios.empty()) {
    json.set("ratios", text::json_array(step.ratios, [](const auto& one) {
               return Json::object().set("device", one.first).set("ratio", one.second);
             }));
  }
  if (step.whole_steps) {
    json.set("whole_steps", Json::object()
                                .set("learned", step.whole_steps->learned)
                                .set("aside", step.whole_steps->aside)
                                .set("inside", step.whole_steps->inside));
  }
  return json;
}

Json rates_json(const std::vector<device::Rate>& rates) {
  return text::json_array(rates, [](device::Rate rate) { return Json(device::name_of(rate)); });
}

Json engine_json(const Engine& engine) {
  Json json = Json::object().set("name", engine.name).set("source", engine.source);
  if (!engine.device.empty()) json.set("device", engine.device);
  if (engine.reads_prompts_whole) json.set("prompts_whole", true);
  if (engine.is_former()) json.set("serves", engine.serves).set("before", engine.before);
  if (const auto& width = engine.step_half_width) {
    Json judged = Json::object()
                      .set("dense", width->dense_log)
                      .set("experts", width->experts_log)
                      .set("devices", text::json_array(width->devices));
    if (!width->weights.empty()) judged.set("weights", rates_json(width->weights));
    json.set("step_half_width_log", std::move(judged));
  }
  if (engine.least_step_seconds > 0) json.set("least_step_seconds", engine.least_step_seconds);
  return json.set("eager", engine.is_eager)
      .set("host_seconds_per_operator", engine.host_seconds_per_operator)
      .set("host_base_seconds", engine.host_base_seconds)
      .set("host_seconds_per_sequence", engine.host_seconds_per_sequence)
      .set("sampling_seconds_per_logit", engine.sampling_seconds_per_logit)
      .set("half_width_log", engine.half_width_log)
      .set("median_error_pct", engine.median_error_pct);
}

Json law_json(const Law& law) {
  Json json = Json::object().set("class", name_of(law.kind));
  if (!law.device.empty()) json.set("device", law.device);
  json.set("devices", text::json_array(law.devices))
      .set("sources", text::json_array(law.sources))
      .set("start_seconds", law.start_seconds)
      .set("intercept", law.intercept)
      .set("errors",
           Json::object().set("large", error_json(law.large)).set("small", error_json(law.small)))
      .set("tables", text::json_array(law.tables, table_json));
  if (!law.rates.empty()) {
    json.set("rates", rates_json(law.rates));
  }
  if (law.can_correct) json.set("correction", correction_json(law.correction));
  return json;
}

}  // namespace

Result<LawFile> read_law_file(const JsonView& root) {
  HEADROOM_ASSIGN(const std::string schema, root.get_string("schema"));
  if (schema != kSchema) {
    return root.error_at("schema", shown(schema) + " is not a file of timing laws",
                         "expected " + std::string(kSchema) + ", which tools/timing/fit.py writes");
  }
  LawFile file;
  HEADROOM_ASSIGN(const auto sources, root.optional_object("sources"));
  if (sources) {
    HEADROOM_ASSIGN(const auto members, sources->get_members());
    for (const auto& [key, words] : members) {
      HEADROOM_ASSIGN(std::string text, words.to_string());
      file.sources.emplace_back(key, std::move(text));
    }
  }
  HEADROOM_ASSIGN(const auto engines, root.optional_array("engines", kMostEngines));
  for (const JsonView& item : engines.value_or(std::vector<JsonView>{})) {
    HEADROOM_ASSIGN(Engine engine, read_engine(item));
    file.engines.push_back(std::move(engine));
  }
  HEADROOM_ASSIGN(const auto steps, root.optional_array("steps", kMostSteps));
  for (const JsonView& item : steps.value_or(std::vector<JsonView>{})) {
    HEADROOM_ASSIGN(InStep step, read_step(item));
    file.steps.push_back(std::move(step));
  }
  HEADROOM_ASSIGN(const auto laws, root.get_array("laws", kMostLaws));
  for (const JsonView& item : laws) {
    HEADROOM_ASSIGN(Law law, read_law(item));
    file.laws.push_back(std::move(law));
  }
  return file;
}

Json law_file_json(const LawFile& file) {
  Json sources = Json::object();
  for (const auto& [key, words] : file.sources) sources.set(key, words);
  return Json::object()
      .set("schema", kSchema)
      .set("sources", std::move(sources))
      .set("engines", text::json_array(file.engines, engine_json))
      .set("steps", text::json_array(file.steps, step_json))
      .set("laws", text::json_array(file.laws, law_json));
}

}  // namespace headroom::timing
