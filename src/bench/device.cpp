#include "bench/device.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>

#include "base/median.h"
#include "base/process.h"
#include "base/python.h"
#include "device/limits.h"
#include "timing/decode_step.h"
#include "timing/device_law.h"

namespace headroom::bench {

namespace {

using text::Json;
using text::JsonView;
using timing::MeasuredPoint;
using timing::OperatorClass;

constexpr std::string_view kSchema = "headroom.probe/1";
constexpr text::JsonLimits kProbeLimits{.bytes = Bytes(64 * kMiB), .values = 2'000'000};
constexpr std::chrono::seconds kStartTime{180};  // Python's imports, and what every point overruns
constexpr int kNotHere = 4;                      // EXIT_UNAVAILABLE of device_probe.py
constexpr std::string_view kProgress = "headroom: progress ";
constexpr std::string_view kMachine = "headroom: machine ";
constexpr size_t kMostName = 60;
constexpr size_t kMostSteps = 64;
// Of the host's time an operator, as a logarithm: chosen, since two models say little of a spread.
constexpr double kLeastHostHalfWidth = 0.3;
constexpr double kMostHostHalfWidth = 3;

// "headroom: progress 12 210 gemm"
void report_progress(const DeviceQuestion& question, std::string_view line) {
  if (!question.on_progress || !line.starts_with(kProgress)) return;
  line.remove_prefix(kProgress.size());
  int64_t done = 0;
  int64_t of = 0;
  const char* const end = line.data() + line.size();
  const auto first = std::from_chars(line.data(), end, done);
  if (first.ec != std::errc() || first.ptr == end) return;
  if (std::from_chars(first.ptr + 1, end, of).ec != std::errc()) return;
  question.on_progress(done, of);
}

Result<void> report_machine(const DeviceQuestion& question, std::string_view line) {
  if (!question.on_machine || !line.starts_with(kMachine)) return {};
  const std::string place = "what the runner said";
  HEADROOM_ASSIGN(const Json json, text::parse_json(line.substr(kMachine.size()), place));
  HEADROOM_ASSIGN(const timing::Machine machine, timing::read_machine(JsonView(json, place)));
  return question.on_machine(machine);
}

Error probe_error(const DeviceQuestion& question, const ProcessResult& done) {
  Error error{ErrorCode::unavailable, {}, question.on, {}};
  const auto words = last_words(done.spoken);
  // Python's own exit code, of an exception that nobody took: the end of its traceback. Else the
  // runner's own last sentence.
  constexpr int kTraceback = 1;
  const std::string_view spoken =
      std::string_view(done.spoken).substr(0, done.spoken.find_last_not_of('\n') + 1);
  const std::string_view end = spoken.substr(spoken.rfind('\n') + 1);
  if (words.empty() || end.empty()) {
    error.message = "measuring ended with exit code " + std::to_string(done.exit_code);
  } else {
    error.message = std::string(done.exit_code == kTraceback ? end : words.front());
  }
  if (error.message.starts_with("machine ")) {
    error.message = "measuring was stopped before its first point";
  } else if (error.message.starts_with("progress ")) {
    error.message = "measuring was stopped after " + error.message.substr(9);
  }
  if (done.exit_code == kNotHere) {
    error.hint = "measuring needs a Python with a PyTorch for that device (pip install torch" +
                 std::string(question.of_onnx_runtime ? " onnxruntime onnx" : "") +
                 "); HEADROOM_PYTHON=/path/to/python names another";
  }
  return error;
}

// "AMD EPYC 7B13 64-Core" to "amd-epyc-7b13-64-core": a word for --device.
std::string name_from(const std::string& product) {
  std::string name;
  for (const char c : product.substr(0, kMostName)) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.';
    if (is_upper) {
      name += static_cast<char>(c - 'A' + 'a');
    } else if (is_plain) {
      name += c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "measured" : name;
}

double best_bytes(const std::vector<MeasuredPoint>& points) {
  double best = 0;
  for (const MeasuredPoint& point : points) best = std::max(best, point.call.bytes / point.seconds);
  return best;
}
double best_flops(const std::vector<MeasuredPoint>& points) {
  double best = 0;
  for (const MeasuredPoint& point : points) best = std::max(best, point.call.flops / point.seconds);
  return best;
}

std::vector<MeasuredPoint> points_of(const Probe& probe,
                                     const std::function<bool(const MeasuredPoint&)>& is_wanted) {
  std::vector<MeasuredPoint> points;
  std::copy_if(probe.points.begin(), probe.points.end(), std::back_inserter(points), is_wanted);
  return points;
}

Json measured(Json value) {
  return Json::object().set("value", std::move(value)).set("source", "bench");
}

bool is_collective(const MeasuredPoint& point) {
  return std::holds_alternative<timing::CollectiveShape>(point.call.shape);
}

// Of one kind of traffic, from blocks of several sizes.
struct Traffic {
  double bytes = 0;  // of the block, or of an operator's operands: what a cache would have to hold
  double bytes_per_second = 0;
};

// By kind: copies, reads, and operators that compute nothing. A table that an embedding reads may
// lie in the cache, whatever it makes of it; a link is no memory.
std::vector<std::vector<Traffic>> traffic_of(const Probe& probe) {
  std::vector<std::vector<Traffic>> kinds(2 + timing::kOperatorClasses);
  for (const timing::MemoryPoint& point : probe.memory) {
    const auto size = static_cast<double>(point.size.count);
    kinds[0].push_back({size, point.copy_bytes_per_second});
    kinds[1].push_back({size, point.read_bytes_per_second});
  }
  for (const MeasuredPoint& point : probe.points) {
    const bool is_of_memory = point.call.flops == 0 && !is_collective(point) &&
                              point.call.kind != OperatorClass::embedding;
    if (!is_of_memory) continue;
    kinds[2 + static_cast<size_t>(point.call.kind)].push_back(
        {point.call.bytes, point.call.bytes / point.seconds});
  }
  return kinds;
}

// What memory beyond the caches gives: of the kind of traffic that gets most of it, the median over
// the sizes, of an even number the lower one, so that no single size decides that others
// contradict. A block of a few caches is partly served by them: several are asked for, or where
// memory did not allow that, the largest there are. 0 where none is beyond two.
double bandwidth_of(const Probe& probe) {
  constexpr double kFewCaches = 2;
  constexpr double kSeveralCaches = 4;
  const auto cache = static_cast<double>(probe.machine.cache.count);
  const auto kinds = traffic_of(probe);
  double largest = 0;
  for (const auto& kind : kinds) {
    for (const Traffic& one : kind) largest = std::max(largest, one.bytes);
  }
  const double least = std::max(kFewCaches * cache, std::min(kSeveralCaches * cache, largest));
  double bandwidth = 0;
  for (const auto& kind : kinds) {
    std::vector<double> rates;
    for (const Traffic& one : kind) {
      if (one.bytes >= least) rates.push_back(one.bytes_per_second);
    }
    if (rates.empty()) continue;
    const auto middle = rates.begin() + static_cast<std::ptrdiff_t>((rates.size() - 1) / 2);
    std::nth_element(rates.begin(), middle, rates.end());
    bandwidth = std::max(bandwidth, *middle);
  }
  return bandwidth;
}

// The device's figures as a headroom.devices/1 file.
Result<Json> device_file(const Probe& probe, const std::string& name) {
  const double bandwidth = bandwidth_of(probe);
  const double link = best_bytes(points_of(probe, is_collective));
  Json rates = Json::object();
  for (const device::Rate rate : device::kRates) {
    const double flops = best_flops(points_of(probe, [&](const MeasuredPoint& point) {
      return point.call.rate == rate && point.call.flops > 0;
    }));
    if (flops > device::kMinFlops)
      rates.set(device::name_of(rate), measured(std::min(flops, device::kMaxFlops)));
  }
  if (bandwidth < device::kMinBandwidth || bandwidth > device::kMaxBandwidth || rates.size() == 0) {
    return Error{ErrorCode::bad_input,
                 "no point of traffic beyond the cache, or none that computes",
                 {},
                 "give it time, --seconds 60, and let the machine do nothing else meanwhile"};
  }
  const bool is_cpu = probe.machine.kind == "cpu";
  Json figures =
      Json::object()
          .set("name", name)
          .set("vendor", is_cpu ? "cpu" : "nvidia")
          .set("product", probe.machine.product.empty() ? name : probe.machine.product)
          .set("bandwidth_bytes_per_second", measured(bandwidth))
          .set("dense_flops_per_second", std::move(rates))
          .set("memory_bytes", measured(probe.machine.memory))
          .set("sm_count", measured(probe.machine.units))
          .set("l2_bytes", measured(std::max(probe.machine.cache, Bytes(device::kMinMemory))));
  if (link >= device::kMinBandwidth && link <= device::kMaxBandwidth) {
    figures.set("link_bytes_per_second",
                measured(link).set("kind", is_cpu ? "processes of this machine, by gloo" : "NCCL"));
  }
  const Json source = Json::object()
                          .set("provenance", "measured")
                          .set("text", "headroom bench device, PyTorch " + probe.machine.torch);
  return Json::object()
      .set("schema", "headroom.devices/1")
      .set("sources", Json::object().set("bench", source))
      .set("devices", Json::array().push_back(std::move(figures)));
}

// Under which name the machine goes, and its figures where the catalogue does not have them.
Result<void> name_device(const Probe& probe, const device::DeviceCatalogue& catalogue,
                         timing::Calibration& calibration) {
  const bool is_cpu = probe.machine.kind == "cpu";
  const auto known = is_cpu ? Result<device::Device>(Error{ErrorCode::unavailable, "", {}, {}})
                            : catalogue.find(probe.machine.product);
  if (known) {
    calibration.device = known->name;
    return {};
  }
  calibration.device = is_cpu ? "cpu" : name_from(probe.machine.product);
  HEADROOM_ASSIGN(calibration.devices, device_file(probe, calibration.device));
  return {};
}

Result<ClassSummary> summarise(timing::Law law, const std::vector<MeasuredPoint>& points,
                               const device::Device& device) {
  ClassSummary summary;
  summary.kind = law.kind;
  summary.points = static_cast<int64_t>(points.size());
  summary.best_bytes_per_second = best_bytes(points);
  summary.best_flops_per_second = best_flops(points);
  std::vector<double> uncertainties;
  for (const MeasuredPoint& point : points) uncertainties.push_back(100 * point.uncertainty);
  summary.median_uncertainty_pct = median(std::move(uncertainties));
  if (const auto spread = timing::spread_log(points)) {
    summary.spread_pct = 100 * std::expm1(*spread);
  }
  summary.law = std::move(law);
  HEADROOM_ASSIGN(summary.roofline_error_pct, timing::roofline_error_pct(device, points));
  return summary;
}

// What the host takes an operator, beyond what the laws say of the operators of a step.
Result<double> host_of(const ProbedStep& step, const device::Device& device,
                       const timing::TimingModel& model) {
  const JsonView config(step.config, "a model of the runner");
  const timing::DecodeOptions options{
      .context = step.context, .weights = step.dtype, .is_eager = true};
  HEADROOM_ASSIGN(const timing::DecodeWork work, timing::decode_work(config, options, step.batch));
  double kernels = 0;
  for (const auto* calls : {&work.attention, &work.matmul, &work.other}) {
    for (const timing::CountedCall& one : *calls) {
      HEADROOM_ASSIGN(const timing::PredictedTime time, model.predict(one.call, device));
      kernels += static_cast<double>(one.times) * time.seconds;
    }
  }
  return std::max(0.0, step.seconds - kernels) / static_cast<double>(work.operators);
}

// How far off each model's host time is from what the others have: the median; 0 of one alone.
double left_out_error_log(const std::vector<double>& hosts) {
  std::vector<double> off;
  for (size_t left_out = 0; hosts.size() > 1 && left_out < hosts.size(); ++left_out) {
    std::vector<double> others = hosts;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(left_out));
    off.push_back(std::abs(std::log(hosts[left_out] / median(std::move(others)))));
  }
  return off.empty() ? 0 : median(std::move(off));
}

// PyTorch itself as the engine of this machine. Nothing where no step was measured, or an operator
// of one has no law.
Result<std::optional<timing::Engine>> engine_of(const Probe& probe,
                                                const timing::Calibration& calibration,
                                                const device::DeviceCatalogue& catalogue) {
  device::DeviceCatalogue known = catalogue;
  timing::TimingModel model = timing::TimingModel::built_in();
  HEADROOM_TRY(timing::adopt(calibration, known, model));
  HEADROOM_ASSIGN(const device::Device device, known.find(calibration.device));
  std::vector<double> hosts;
  for (const ProbedStep& step : probe.steps) {
    const auto host = host_of(step, device, model);
    if (host && *host > 0) hosts.push_back(*host);
  }
  if (hosts.empty()) return std::optional<timing::Engine>();
  timing::Engine engine;
  engine.name = "pytorch-" + probe.machine.torch;
  engine.source = "headroom bench device: " + std::to_string(hosts.size()) + " small models";
  engine.device = calibration.device;
  engine.is_eager = true;
  engine.host_seconds_per_operator = median(hosts);
  engine.half_width_log = kLeastHostHalfWidth;
  for (const double host : hosts) {
    const double off = std::abs(std::log(host / engine.host_seconds_per_operator));
    engine.half_width_log = std::max(engine.half_width_log, std::min(off, kMostHostHalfWidth));
  }
  engine.median_error_pct = 100 * std::expm1(left_out_error_log(hosts));
  return std::optional(engine);
}

Result<std::vector<ProbedStep>> read_steps(const JsonView& root) {
  std::vector<ProbedStep> steps;
  HEADROOM_ASSIGN(const auto items, root.optional_array("steps", kMostSteps));
  for (const JsonView& item : items.value_or(std::vector<JsonView>{})) {
    ProbedStep step;
    HEADROOM_ASSIGN(const JsonView config, item.get_object("config"));
    step.config = config.json();
    HEADROOM_ASSIGN(step.batch, item.get_int("batch", 1, timing::kMostBatch));
    HEADROOM_ASSIGN(step.context, item.get_int("context", 2, timing::kMostContext));
    HEADROOM_ASSIGN(const std::string dtype, item.get_string("dtype"));
    step.dtype = dtype == "fp32"   ? op::DType::f32
                 : dtype == "fp16" ? op::DType::f16
                                   : op::DType::bf16;
    HEADROOM_ASSIGN(step.seconds, item.get_double("seconds", 1e-9, 1e6));
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace

Result<Probe> read_probe(const JsonView& root) {
  HEADROOM_ASSIGN(const std::string schema, root.get_string("schema"));
  if (schema != kSchema) return root.error_at("schema", "expected " + std::string(kSchema));
  Probe probe;
  HEADROOM_ASSIGN(const JsonView machine, root.get_object("machine"));
  HEADROOM_ASSIGN(probe.machine, timing::read_machine(machine));
  HEADROOM_ASSIGN(probe.points, timing::read_points(root, "points"));
  HEADROOM_ASSIGN(probe.steps, read_steps(root));
  HEADROOM_ASSIGN(probe.memory, timing::read_memory(root));
  HEADROOM_ASSIGN(probe.latency, timing::read_latency(root));
  HEADROOM_ASSIGN(probe.fresh_memory, timing::read_fresh_memory(root));
  return probe;
}

Result<Probe> probe_device(const DeviceQuestion& question) {
  HEADROOM_ASSIGN(const TemporaryFile file, TemporaryFile::make());
  std::vector<std::string> arguments{"--on",      question.on,
                                     "--seconds", std::to_string(question.seconds),
                                     "--seed",    std::to_string(question.seed),
                                     "--threads", std::to_string(question.threads),
                                     "--out",     file.path()};
  if (!question.dtype.empty()) {
    arguments.emplace_back("--dtype");
    arguments.push_back(question.dtype);
  }
  HEADROOM_ASSIGN(ProcessOptions process,
                  python_module(question.of_onnx_runtime ? "onnx_probe" : "device_probe",
                                std::move(arguments)));
  process.timeout =
      kStartTime + std::chrono::seconds(static_cast<int64_t>(std::ceil(3 * question.seconds)));
  Result<void> wanted;
  process.on_line = [&](std::string_view line) {
    report_progress(question, line);
    wanted = report_machine(question, line);
    return wanted.has_value();
  };
  HEADROOM_ASSIGN(const ProcessResult done, run_process(process));
  if (!wanted) return std::move(wanted).error();
  if (done.exit_code != 0) return probe_error(question, done);
  HEADROOM_ASSIGN(const Json json, text::read_json_file(file.path(), kProbeLimits));
  return read_probe(JsonView(json, "what was measured on " + question.on));
}

double median_class_error_pct(const DeviceAnswer& answer) {
  std::vector<double> errors;
  for (const ClassSummary& summary : answer.classes) {
    errors.push_back(summary.law.large.median_error_pct);
  }
  return median(std::move(errors));
}

Result<DeviceAnswer> calibrate(const Probe& probe, const device::DeviceCatalogue& catalogue) {
  DeviceAnswer answer;
  timing::Calibration& calibration = answer.calibration;
  calibration.machine = probe.machine;
  calibration.memory = probe.memory;
  calibration.latency = probe.latency;
  calibration.fresh_memory = probe.fresh_memory;
  HEADROOM_TRY(name_device(probe, catalogue, calibration));
  device::DeviceCatalogue with_ours = catalogue;
  if (!calibration.devices.is_null()) {
    HEADROOM_TRY(with_ours.merge(JsonView(calibration.devices, "what was measured")));
  }
  HEADROOM_ASSIGN(answer.device, with_ours.find(calibration.device));
  int64_t disturbed = 0;
  for (size_t i = 0; i < timing::kOperatorClasses; ++i) {
    const auto kind = static_cast<OperatorClass>(i);
    const auto all =
        points_of(probe, [&](const MeasuredPoint& point) { return point.call.kind == kind; });
    if (all.empty()) continue;
    const bool has_no_link = is_collective(all.front()) && !answer.device.link.known();
    if (has_no_link) {
      answer.left_out.push_back(kind);
      continue;
    }
    HEADROOM_ASSIGN(const auto points, timing::undisturbed(answer.device, all));
    disturbed += static_cast<int64_t>(all.size() - points.size());
    if (points.size() < timing::kLeastPointsOfALaw) {
      answer.left_out.push_back(kind);
      continue;
    }
    HEADROOM_ASSIGN(timing::Law law, timing::fit_device_law(answer.device, points));
    calibration.laws.laws.push_back(law);
    calibration.points.insert(calibration.points.end(), points.begin(), points.end());
    HEADROOM_ASSIGN(ClassSummary summary, summarise(std::move(law), points, answer.device));
    answer.classes.push_back(std::move(summary));
  }
  answer.disturbed = disturbed;
  if (answer.classes.empty()) {
    return Error{ErrorCode::bad_input,
                 "too few points of every class of operators",
                 {},
                 "measure for longer, or while the machine does nothing else"};
  }
  HEADROOM_ASSIGN(const auto engine, engine_of(probe, calibration, catalogue));
  if (engine) calibration.laws.engines.push_back(*engine);
  return answer;
}

Result<DeviceAnswer> describe(timing::Calibration kept, device::DeviceCatalogue catalogue) {
  DeviceAnswer answer;
  HEADROOM_ASSIGN(answer.device, timing::add_device(kept, catalogue));
  for (const timing::Law& law : kept.laws.laws) {
    std::vector<MeasuredPoint> points;
    std::ranges::copy_if(kept.points, std::back_inserter(points),
                         [&](const MeasuredPoint& point) { return point.call.kind == law.kind; });
    HEADROOM_ASSIGN(ClassSummary summary, summarise(law, points, answer.device));
    answer.classes.push_back(std::move(summary));
  }
  answer.calibration = std::move(kept);
  return answer;
}

}  // namespace headroom::bench
