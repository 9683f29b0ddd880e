// What this machine's operators cost, measured: `headroom bench device`.
//
// probe_device() runs a Python runner, which times the engine's own kernels, since those are what
// users run: PyTorch's (python/headroom/device_probe.py), or the products of ONNX Runtime
// (onnx_probe.py); calibrate() makes figures and laws of its points,
// and is pure. The rates of arithmetic are the best that any point reached, bandwidth is what
// blocks well beyond the cache get in the median: what this machine does, which need not be what
// its maker promises.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/catalogue.h"
#include "operator/dtype.h"
#include "text/json.h"
#include "timing/calibration.h"

namespace headroom::bench {

struct DeviceQuestion {
  std::string on = "cpu";  // a device of PyTorch: cpu, cuda, cuda:1
  double seconds = 200;    // to measure for; what is asked of the runner, not a promise
  std::string dtype;       // fp32, bf16 or fp16, of what is no product; empty: as the runner thinks
  int64_t seed = 1;        // of the shapes
  int64_t threads = 0;     // of the CPU; 0: as many as PyTorch takes
  bool of_onnx_runtime = false;  // its products on a processor, in place of PyTorch's operators
  // How many points are measured, of how many. Called from this thread, as the next one.
  std::function<void(int64_t done, int64_t of)> on_progress;
  // Before anything is measured; an Error ends the run.
  std::function<Result<void>(const timing::Machine&)> on_machine;
};

// A decode step of a model so small that most of it is the host's.
struct ProbedStep {
  text::Json config;
  int64_t batch = 1;
  int64_t context = 2;
  op::DType dtype = op::DType::f32;
  double seconds = 0;
};

// What the runner wrote.
struct Probe {
  timing::Machine machine;
  std::vector<timing::MeasuredPoint> points;
  std::vector<ProbedStep> steps;
  std::vector<timing::MemoryPoint> memory{};
  timing::Latency latency{};
  std::vector<timing::FreshMemoryPoint> fresh_memory{};
};

// Of one class of operators.
struct ClassSummary {
  timing::OperatorClass kind{};
  int64_t points = 0;
  double best_bytes_per_second = 0;
  double best_flops_per_second = 0;  // 0 where the class computes nothing that is counted
  double median_uncertainty_pct = 0;
  // 90 % of another run's points differ by no more (spread_log); nothing where one round says it.
  std::optional<double> spread_pct = std::nullopt;
  timing::Law law;
  double roofline_error_pct = 0;  // of the plain roofline, on the same points
};

struct DeviceAnswer {
  timing::Calibration calibration;
  device::Device device;
  std::vector<ClassSummary> classes;
  // Points that other work made useless, and classes of too few points for a law. A calibration
  // does not hold them.
  std::optional<int64_t> disturbed = std::nullopt;
  std::vector<timing::OperatorClass> left_out;
};

// On shapes that took no part, large ones where there are enough: the median over the classes.
[[nodiscard]] double median_class_error_pct(const DeviceAnswer& answer);

// Two runs on one machine, of one class: points that both measured.
struct ClassAgreement {
  timing::OperatorClass kind{};
  int64_t points = 0;
  int64_t within = 0;  // the spread that the two runs state together
  // That spread; nothing where one of them does not know its own: then none of the points is
  // judged.
  std::optional<double> stated_pct = std::nullopt;
  double differ_90_pct = 0;     // what 90 % of the points differ by at most
  double median_ratio_pct = 0;  // of the later run's times, beyond the earlier one's
};
// Shapes that the later run measured and the earlier did not, predicted by the earlier one.
struct UnseenShapes {
  int64_t points = 0;
  int64_t in_interval = 0;  // of 90 %
  double median_error_pct = 0;
  double roofline_error_pct = 0;
};
struct ClassUnseen {
  timing::OperatorClass kind{};
  UnseenShapes shapes;
};
struct Agreement {
  std::vector<ClassAgreement> classes;
  int64_t points = 0;
  int64_t judged = 0;  // of them, by a spread that is known
  int64_t within = 0;
  UnseenShapes unseen;  // of all classes
  std::vector<ClassUnseen> unseen_by_class;
};
// Whether as many points are within the spread as a level of 90 % lets expect of so few: 85 % at
// least. Nothing where no point is judged.
[[nodiscard]] std::optional<bool> agrees(const Agreement& agreement);
// An Error where the machines differ, or the later run has no point that the earlier one measured
// or predicts.
Result<Agreement> agreement(const timing::Calibration& earlier, const timing::Calibration& later,
                            const device::DeviceCatalogue& catalogue);

// Errors: unavailable without Python, PyTorch or the device, or where the device fails on the way:
// then nothing is kept.
Result<Probe> probe_device(const DeviceQuestion& question);
Result<Probe> read_probe(const text::JsonView& root);

// What an earlier run kept: its laws and points as they are, nothing is fitted again.
Result<DeviceAnswer> describe(timing::Calibration kept, device::DeviceCatalogue catalogue);

// An Error where there are too few points, or none of a product or of memory traffic.
Result<DeviceAnswer> calibrate(const Probe& probe, const device::DeviceCatalogue& catalogue);

}  // namespace headroom::bench
