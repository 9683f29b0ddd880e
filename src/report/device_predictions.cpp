#include "report/device_predictions.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "text/json_parts.h"
#include "text/number.h"
#include "text/paragraph.h"
#include "text/table.h"
#include "text/utf8.h"
#include "timing/step_time.h"

namespace headroom::report {
namespace {

using device::Device;
using text::Align;
using text::formatted;
using text::Json;
using text::Table;
using text::Terminal;
using timing::Call;
using timing::HeldOutError;
using timing::OperatorClass;
using timing::Standing;
using timing::TimingModel;

// One of the class, to learn whether the device has the figures that its law needs.
Call example_of(OperatorClass kind, const Device& device) {
  const bool has_bf16 = device.rate(device::Rate::bf16).known();
  const device::Rate half = has_bf16 ? device::Rate::bf16 : device::Rate::fp16;
  switch (kind) {
    case OperatorClass::gemm:
      return timing::gemm_call({.m = 4096, .n = 4096, .k = 4096}, half, 2);
    case OperatorClass::gemm_fp32:
      return timing::gemm_call({.m = 4096, .n = 4096, .k = 4096}, device::Rate::fp32, 4);
    case OperatorClass::linear_int8:
      return timing::linear_int8_call({.m = 4096, .n = 4096, .k = 4096}, 4);
    case OperatorClass::attention_decode:
      return timing::attention_call(
          {.batch = 64, .heads = 32, .kv_heads = 32, .head_dim = 128, .context = 2048}, half, 2);
    case OperatorClass::attention_prefill:
      return timing::attention_call(
          {.heads = 32, .kv_heads = 32, .head_dim = 128, .queries = 4096, .context = 4096}, half,
          2);
    case OperatorClass::all_reduce:
    case OperatorClass::all_reduce_graph:
      return timing::all_reduce_call(kind, {.group = 2, .message = int64_t{64} << 20});
    default:
      return timing::rows_call(kind, {16384, 4096}, 4.0 * 16384 * 4096);
  }
}

struct Row {
  OperatorClass kind{};
  std::optional<Standing> standing;  // nothing: see why_not
  Error why_not;
};

std::vector<Row> rows_of(const Device& device, const TimingModel& model) {
  std::vector<Row> rows;
  for (size_t i = 0; i < timing::kOperatorClasses; ++i) {
    Row row;
    row.kind = static_cast<OperatorClass>(i);
    const bool is_of_gpus = row.kind == OperatorClass::all_reduce_graph;
    const bool is_cpu = device.vendor == device::Vendor::cpu;
    if (is_cpu ? is_of_gpus : timing::is_of_processors(row.kind)) continue;
    const auto time = model.predict(example_of(row.kind, device), device);
    if (time) {
      row.standing = model.standing(row.kind, device.name);
      if (!row.standing) continue;  // timed by another class's law, which has a row
    } else {
      row.why_not = time.error();
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string source_words(const Standing& standing) {
  std::string names;
  for (const std::string& source : standing.law->sources) {
    names += (names.empty() ? "" : ", ") + source;
  }
  if (standing.points > 0) {
    std::string words = "calibrated by " + std::to_string(standing.points) + " points";
    if (standing.law->device.empty()) words += " on the law of other devices";
    return words;
  }
  if (!standing.law->device.empty()) return "tables of this device (" + names + ")";
  return std::to_string(standing.law->devices.size()) + " devices' tables (" + names + ")";
}

std::string error_words(const HeldOutError& error) {
  return error.median_error_pct > 0 ? formatted("%.1f %%", error.median_error_pct) : "-";
}

std::string interval_words(const HeldOutError& error) {
  return formatted("+%.0f %%", 100 * std::expm1(error.half_width_log));
}

// Whole steps judge an engine where its host could not be told from them.
std::string engine_words(const timing::Engine& engine) {
  const std::string name = text::printable(engine.name);
  const auto adds = [](double half_width_log) {
    return formatted("%.0f %%", 100 * std::expm1(half_width_log));
  };
  if (const auto& step = engine.step_half_width) {
    return "Decode steps, as " + name + " has them: " +
           formatted("median error %.1f %% of models left out, the 90 %% interval adds ",
                     engine.median_error_pct) +
           adds(step->dense_log) + " (mixtures of experts " + adds(step->experts_log) +
           ") on its servers' devices.\n";
  }
  if (engine.median_error_pct <= 0) {
    return "Host time in decode steps, as " + name +
           " has it: of one model; the 90 % interval, chosen, adds " + adds(engine.half_width_log) +
           ".\n";
  }
  return "Host time in decode steps, as " + name + " has it: " +
         formatted("median error %.1f %%, the 90 %% interval adds ", engine.median_error_pct) +
         adds(engine.half_width_log) + ".\n";
}

// What training's steps add to their kernels.
std::string steps_words(const Device& device, const timing::InStep& step, const char* whose) {
  const bool is_of_it = step.is_learned_on(device.name);
  const char* where = is_of_it && step.devices.size() > 1 ? "on this device and others"
                      : is_of_it                          ? "on this device"
                      : step.devices.size() > 1           ? "on other devices"
                                                          : "on another device";
  const char* width = is_of_it           ? ", models left out; the 90 % interval adds "
                      : step.whole_steps ? "; the 90 % interval, the worst of few steps, adds "
                                         : "; the 90 % interval, chosen, adds ";
  return whose + formatted(": median error %.1f %% ", step.median_error_pct) + where + width +
         formatted("%.0f %%.\n", 100 * std::expm1(step.half_width_on(device.name)));
}

std::string rest_words(const Device& device, const TimingModel& model) {
  std::string words;
  for (const auto& [name, whose] : {std::pair{timing::kEagerTraining, "Steps of training"},
                                    {timing::kMegatronTraining, "Steps of Megatron-LM"}}) {
    const timing::InStep* step = model.in_step(name);
    if (step == nullptr || device.vendor == device::Vendor::cpu) continue;
    words += steps_words(device, *step, whose);
  }
  const bool has_own = std::ranges::find(model.engines(), device.name, &timing::Engine::device) !=
                       model.engines().end();
  for (const timing::Engine& engine : model.engines()) {
    if (engine.device != (has_own ? device.name : "")) continue;
    words += engine_words(engine);
  }
  return words;
}

Json error_json(const HeldOutError& error) {
  Json json = Json::object().set("rows", error.rows);
  if (error.median_error_pct > 0) json.set("median_error_pct", error.median_error_pct);
  return json.set("half_width_log", error.half_width_log);
}

Json row_json(const Row& row) {
  Json json = Json::object().set("class", timing::name_of(row.kind));
  if (!row.standing) return json.set("why_not", row.why_not.message);
  const Standing& standing = *row.standing;
  const bool is_own = !standing.law->device.empty();
  return json
      .set("provenance", name_of(standing.points > 0 ? Provenance::calibrated
                                 : is_own            ? Provenance::interpolated
                                                     : Provenance::extrapolated))
      .set("points", static_cast<int64_t>(standing.points))
      .set("sources", text::json_array(standing.law->sources))
      .set("devices", text::json_array(standing.law->devices))
      .set("large", error_json(standing.large))
      .set("small", error_json(standing.small));
}

}  // namespace

std::string device_predictions_text(const Device& device, const TimingModel& model,
                                    const Terminal& terminal) {
  Table table({{"predicted", Align::left, false},
               {"large", Align::right, false},
               {"90 %", Align::right, false},
               {"small", Align::right, false},
               {"90 %", Align::right, false},
               {"from", Align::left, true}});
  std::string missing;
  size_t known = 0;
  for (const Row& row : rows_of(device, model)) {
    const std::string name(timing::name_of(row.kind));
    if (!row.standing) {
      const bool is_known = missing.find(row.why_not.message) != std::string::npos;
      if (!is_known) {
        missing += "Not predicted: " + name + ", since " + row.why_not.message + ".\n";
      }
      continue;
    }
    ++known;
    const Standing& standing = *row.standing;
    table.row({name, error_words(standing.large), interval_words(standing.large),
               error_words(standing.small), interval_words(standing.small),
               source_words(standing)});
  }
  const int columns = text::paragraph_columns(terminal.columns);
  if (known == 0) {
    return text::paragraph(
               "No operator is predicted: its rates and bandwidth are not known. `headroom bench "
               "device` measures them where the device is, and --calibration takes its file.",
               0, columns) +
           "\n";
  }
  std::string words = table.render(terminal) + "\n";
  words += text::paragraph(
               "large, small: median error on what took no part, operands of at least two L2 "
               "caches (messages of 1 MiB) and smaller ones: shapes that were left out where there "
               "are tables or points of this device, whole devices that were left out elsewhere. "
               "90 %: what the interval adds.",
               0, columns) +
           "\n";
  return words + missing + rest_words(device, model);
}

Json device_predictions_json(const Device& device, const TimingModel& model) {
  return text::json_array(rows_of(device, model), row_json);
}

}  // namespace headroom::report
