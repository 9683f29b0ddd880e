#include "timing/calibration.h"

#include <utility>

#include "text/json_array.h"

namespace headroom::timing {

namespace {

using text::Json;
using text::JsonView;

constexpr std::string_view kSchema = "headroom.calibration/1";
constexpr text::JsonLimits kFileLimits{.bytes = Bytes(64 * kMiB), .values = 2'000'000};
constexpr int64_t kMostBytes = int64_t{1} << 50;
constexpr int64_t kMostUnits = 1'000'000;
constexpr size_t kMostText = 200;

Result<std::string> read_text(const JsonView& view, std::string_view key) {
  HEADROOM_ASSIGN(std::string text, view.get_string(key));
  if (text.size() > kMostText) return view.error_at(key, "is longer than 200 bytes");
  return text;
}

}  // namespace

Json machine_json(const Machine& machine) {
  return Json::object()
      .set("product", machine.product)
      .set("kind", machine.kind)
      .set("memory_bytes", machine.memory)
      .set("cache_bytes", machine.cache)
      .set("units", machine.units)
      .set("torch", machine.torch)
      .set("python", machine.python)
      .set("load", machine.load);
}

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
  return machine;
}

Json calibration_json(const Calibration& calibration) {
  return Json::object()
      .set("schema", kSchema)
      .set("machine", machine_json(calibration.machine))
      .set("device", calibration.device)
      .set("devices", calibration.devices)
      .set("timing", law_file_json(calibration.laws))
      .set("points", text::json_array(calibration.points, point_json));
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
  if (devices) calibration.devices = devices->json();
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
  HEADROOM_ASSIGN(calibration.points, read_points(root, "points"));
  return calibration;
}

Result<Calibration> load_calibration(const std::string& path) {
  HEADROOM_ASSIGN(const Json root, text::read_json_file(path, kFileLimits));
  return read_calibration(JsonView(root, path));
}

Result<void> adopt(const Calibration& calibration, device::DeviceCatalogue& catalogue,
                   TimingModel& model) {
  if (!calibration.devices.is_null()) {
    HEADROOM_TRY(catalogue.merge(JsonView(calibration.devices, "calibration")));
  }
  HEADROOM_ASSIGN(const device::Device device, catalogue.find(calibration.device));
  model.merge(calibration.laws);
  return model.correct(device, calibration.points);
}

}  // namespace headroom::timing
