#include "timing/calibration.h"

#include <utility>

#include "text/json_parts.h"

namespace headroom::timing {

namespace {

using text::Json;
using text::JsonView;

constexpr std::string_view kSchema = "headroom.calibration/1";
constexpr text::JsonLimits kFileLimits{.bytes = Bytes(64 * kMiB), .values = 2'000'000};
constexpr int64_t kMostBytes = int64_t{1} << 50;
constexpr int64_t kMostUnits = 1'000'000;
constexpr size_t kMostText = 200;
constexpr size_t kMostSizes = 1000;
constexpr double kMostRate = 1e18;
constexpr double kMostHertz = 1e12;
constexpr double kMostLatency = 1e3;

Result<std::string> read_text(const JsonView& view, std::string_view key) {
  HEADROOM_ASSIGN(std::string text, view.get_string(key));
  if (text.size() > kMostText) return view.error_at(key, "is longer than 200 bytes");
  return text;
}

// "onnxruntime" of "onnxruntime 1.31.1".
std::string_view name_of_engine(const Machine& machine) {
  return std::string_view(machine.engine).substr(0, machine.engine.find(' '));
}

}  // namespace

bool is_same_machine(const Machine& a, const Machine& b) {
  return a.product == b.product && a.kind == b.kind && a.units == b.units &&
         name_of_engine(a) == name_of_engine(b);
}

Result<void> check_same_machine(const Machine& calibrated, const Machine& machine,
                                const std::string& file) {
  if (is_same_machine(calibrated, machine)) return {};
  const auto words = [](const Machine& one) {
    const std::string unit = one.kind == "cpu" ? " thread" : " multiprocessor";
    return one.product + ", " + std::to_string(one.units) + unit + (one.units == 1 ? "" : "s") +
           (one.engine.empty() ? "" : ", " + one.engine);
  };
  return Error{ErrorCode::bad_input,
               "the calibration is of another machine, number of threads or engine: " +
                   words(calibrated) + "; this is " + words(machine),
               file, "`headroom bench device` measures this one"};
}

Json machine_json(const Machine& machine) {
  Json json = Json::object()
                  .set("product", machine.product)
                  .set("kind", machine.kind)
                  .set("memory_bytes", machine.memory)
                  .set("cache_bytes", machine.cache)
                  .set("units", machine.units)
                  .set("torch", machine.torch)
                  .set("python", machine.python)
                  .set("load", machine.load);
  if (machine.clock_hertz > 0) json.set("clock_hertz", machine.clock_hertz);
  if (!machine.engine.empty()) json.set("engine", machine.engine);
  return json;
}

Result<std::vector<MemoryPoint>> read_memory(const JsonView& root) {
  HEADROOM_ASSIGN(const auto items, root.optional_array("bandwidth", kMostSizes));
  std::vector<MemoryPoint> memory;
  for (const JsonView& item : items.value_or(std::vector<JsonView>{})) {
    MemoryPoint point;
    HEADROOM_ASSIGN(point.size.count, item.get_int("bytes", 1, kMostBytes));
    HEADROOM_ASSIGN(point.copy_bytes_per_second,
                    item.get_double("copy_bytes_per_second", 1, kMostRate));
    HEADROOM_ASSIGN(point.read_bytes_per_second,
                    item.get_double("read_bytes_per_second", 1, kMostRate));
    memory.push_back(point);
  }
  return memory;
}

Result<Latency> read_latency(const JsonView& root) {
  Latency latency;
  HEADROOM_ASSIGN(const auto view, root.optional_object("latency"));
  if (!view) return latency;
  HEADROOM_ASSIGN(latency.launch_seconds, view->get_double("launch_seconds", 0, kMostLatency));
  HEADROOM_ASSIGN(latency.round_trip_seconds,
                  view->get_double("round_trip_seconds", 0, kMostLatency));
  return latency;
}

Result<std::vector<FreshMemoryPoint>> read_fresh_memory(const JsonView& root) {
  HEADROOM_ASSIGN(const auto items, root.optional_array("fresh_memory", kMostSizes));
  std::vector<FreshMemoryPoint> points;
  for (const JsonView& item : items.value_or(std::vector<JsonView>{})) {
    FreshMemoryPoint point;
    HEADROOM_ASSIGN(point.size.count, item.get_int("bytes", 1, kMostBytes));
    HEADROOM_ASSIGN(point.seconds, item.get_double("seconds", 0, kMostLatency));
    points.push_back(point);
  }
  return points;
}

namespace {

Json fresh_memory_json(const FreshMemoryPoint& point) {
  return Json::object().set("bytes", point.size).set("seconds", point.seconds);
}

Json memory_json(const MemoryPoint& point) {
  return Json::object()
      .set("bytes", point.size)
      .set("copy_bytes_per_second", point.copy_bytes_per_second)
      .set("read_bytes_per_second", point.read_bytes_per_second);
}

Json latency_json(const Latency& latency) {
  if (!(latency.round_trip_seconds > 0)) return nullptr;
  return Json::object()
      .set("launch_seconds", latency.launch_seconds)
      .set("round_trip_seconds", latency.round_trip_seconds);
}

}  // namespace

Result<Machine> read_machine(const JsonView& view) {
  Machine machine;
  HEADROOM_ASSIGN(machine.product, read_text(view, "product"));
  HEADROOM_ASSIGN(machine.kind, read_text(view, "kind"));
  if (machine.kind != "cpu" && machine.kind != "cuda") {
    return view.error_at("kind", "expected cpu or cuda");
  }
  HEADROOM_ASSIGN(machine.memory.count, view.get_int("memory_bytes", kMiB, kMostBytes));
  HEADROOM_ASSIGN(machine.cache.count, view.get_int("cache_bytes", 0, kMostBytes));
  HEADROOM_ASSIGN(machine.units, view.get_int("units", 1, kMostUnits));
  HEADROOM_ASSIGN(machine.torch, read_text(view, "torch"));
  HEADROOM_ASSIGN(machine.python, read_text(view, "python"));
  HEADROOM_ASSIGN(machine.load, view.get_double("load", 0, 1e6));
  HEADROOM_ASSIGN(const auto clock, view.optional_double("clock_hertz", 0, kMostHertz));
  machine.clock_hertz = clock.value_or(0);
  if (view.has("engine")) {
    HEADROOM_ASSIGN(machine.engine, read_text(view, "engine"));
  }
  return machine;
}

Json calibration_json(const Calibration& calibration) {
  Json json = Json::object()
                  .set("schema", kSchema)
                  .set("machine", machine_json(calibration.machine))
                  .set("device", calibration.device)
                  .set("devices", calibration.devices)
                  .set("timing", law_file_json(calibration.laws))
                  .set("points", text::json_array(calibration.points, point_json))
                  .set("bandwidth", text::json_array(calibration.memory, memory_json))
                  .set("latency", latency_json(calibration.latency));
  if (!calibration.fresh_memory.empty()) {
    json.set("fresh_memory", text::json_array(calibration.fresh_memory, fresh_memory_json));
  }
  return json;
}

Result<Calibration> read_calibration(const JsonView& root) {
  HEADROOM_ASSIGN(const std::string schema, root.get_string("schema"));
  if (schema != kSchema) {
    return root.error_at(
        "schema", "'" + schema.substr(0, 80) + "' is not a calibration",
        "expected " + std::string(kSchema) + ", which `headroom bench device` writes");
  }
  if (!root.has("timing")) {
    return root.error("holds no times of operators",
                      "`headroom bench device` measures them; this file may be one of `fit`");
  }
  Calibration calibration;
  HEADROOM_ASSIGN(const JsonView machine, root.get_object("machine"));
  HEADROOM_ASSIGN(calibration.machine, read_machine(machine));
  HEADROOM_ASSIGN(calibration.device, read_text(root, "device"));
  HEADROOM_ASSIGN(const auto devices, root.optional_object("devices"));
  if (devices) {
    calibration.devices = devices->json();
    calibration.devices_place = devices->place();
  }
  HEADROOM_ASSIGN(const JsonView laws, root.get_object("timing"));
  HEADROOM_ASSIGN(calibration.laws, read_law_file(laws));
  for (const Law& law : calibration.laws.laws) {
    if (law.device != calibration.device) {
      return laws.error("holds a law that is not of " + calibration.device.substr(0, 80));
    }
  }
  for (const Engine& engine : calibration.laws.engines) {
    if (engine.device != calibration.device) {
      return laws.error("holds an engine that is not on " + calibration.device.substr(0, 80));
    }
  }
  if (!calibration.laws.steps.empty()) {
    return laws.error_at("steps", "what steps add is of all devices, and no calibration's to say",
                         "leave it out");
  }
  HEADROOM_ASSIGN(calibration.points, read_points(root, "points"));
  HEADROOM_ASSIGN(calibration.memory, read_memory(root));
  HEADROOM_ASSIGN(calibration.latency, read_latency(root));
  HEADROOM_ASSIGN(calibration.fresh_memory, read_fresh_memory(root));
  return calibration;
}

Result<Calibration> load_calibration(const std::string& path) {
  HEADROOM_ASSIGN(const Json root, text::read_json_file(path, kFileLimits));
  return read_calibration(JsonView(root, path));
}

Result<std::optional<Calibration>> find_calibration(const std::string& path) {
  HEADROOM_ASSIGN(const Json root, text::read_json_file(path, kFileLimits));
  const JsonView view(root, path);
  if (!view.has("timing")) return std::optional<Calibration>();
  HEADROOM_ASSIGN(Calibration calibration, read_calibration(view));
  return std::optional(std::move(calibration));
}

Result<device::Device> add_device(const Calibration& calibration,
                                  device::DeviceCatalogue& catalogue) {
  if (!calibration.devices.is_null()) {
    HEADROOM_TRY(catalogue.merge(JsonView::at(calibration.devices, calibration.devices_place)));
  }
  return catalogue.find(calibration.device);
}

Result<void> add_laws(const Calibration& calibration, const device::Device& device,
                      TimingModel& model) {
  model.merge(calibration.laws);
  return model.correct(device, calibration.points);
}

Result<void> adopt(const Calibration& calibration, device::DeviceCatalogue& catalogue,
                   TimingModel& model) {
  HEADROOM_ASSIGN(const device::Device device, add_device(calibration, catalogue));
  return add_laws(calibration, device, model);
}

}  // namespace headroom::timing
