// The memory-gap paper's experiment (arXiv 2503.08311): one decode step by batch size, predicted
// here, measured by measured_decode.h; both give the same answer.
//
// What each kernel class (attention, matrix products, the rest) and the host take, the arithmetic
// intensity of attention and products, the share of the DRAM's bandwidth they reach, and the batch
// from which attention has no more bandwidth to gain, while compute stays idle.
//
// Predicted steps are timing::DecodePredictor's. Pure but for what it is given; thread-safe; some
// ten milliseconds a batch of a 7B model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "bench/decode_counters.h"
#include "device/device.h"
#include "operator/dtype.h"
#include "text/json.h"
#include "timing/calibration.h"
#include "timing/decode_step.h"
#include "timing/timing_model.h"

namespace headroom::bench {

// A decode step that was measured, as the mean time between tokens.
struct MeasuredStep {
  int64_t batch = 1;
  double seconds = 0;
};

struct DecodeQuestion {
  std::string model;  // for people
  device::Device device;
  int64_t context = 512;         // tokens in the cache of each sequence, the new one among them
  std::vector<int64_t> batches;  // empty: powers of two, and the most that fits
  op::DType weights = op::DType::bf16;
  std::string engine_law;  // whose host and sampling, by name; "": today's engines'
  // Of this model on this device, two at least or none: steps are corrected by the line from
  // predicted to measured times, and shares stay as predicted. Their batches are answered too.
  std::vector<MeasuredStep> points;
};

using timing::DecodeStep;
using timing::KernelTime;
using timing::kMostBatch;
using timing::kMostContext;
using timing::TimeInterval;

// How a measured step came about.
struct DecodeRun {
  int64_t batch = 0;
  int64_t samples = 0;
  double quickest_seconds = 0;     // of single runs; the classes and the host gap are of this one
  double profiled_seconds = 0;     // of the quickest run under the profiler
  double waited_share = 0;         // of that run, what other programs took
  std::string trace;               // its file
  std::optional<double> joules{};  // of the processor packages, a step; nothing: not readable
  // The median of the runs, less what other programs took of the cores; nothing: not known.
  std::optional<double> undisturbed_seconds{};
  std::vector<std::string> notes;
};

// A batch without a step, and why.
struct DecodeNotRun {
  int64_t batch = 0;
  bool is_failure = false;  // else refused: it does not fit, or is not measured so
  std::string reason;
};

// What was measured, beside the steps.
struct DecodeMeasurement {
  timing::Machine machine;
  std::optional<int64_t> layers;  // nothing: the whole model
  std::optional<int64_t> layers_of_model;
  std::vector<DecodeRun> runs;  // as many as steps
  std::vector<DecodeNotRun> not_run;
  std::string not_counted;  // why work and traffic are not counted; empty: they are
};

struct DecodeAnswer {
  std::string model;
  std::string device;
  int64_t context = 0;
  std::string dtype;
  std::optional<std::string> checkpoint_type;  // of its weights, where config.json has another
  std::string engine;                          // whose host and sampling
  std::string engine_source;
  double least_judged_seconds = 0;  // no step below it judged that engine; 0: that is not known
  bool is_host_of_gpus = false;     // of a processor whose host nobody measured
  Bytes weights;
  int64_t largest_batch = 0;  // by memory; 0: not even one; measured: the largest that ran
  std::string peaks;          // where the two peaks are from
  double peak_bytes_per_second = 0;
  double peak_flops_per_second = 0;
  // The least batch whose attention reaches kSaturated of the most bandwidth that it has.
  std::optional<int64_t> saturation_batch;
  size_t points = 0;              // that corrected the steps
  std::vector<DecodeStep> steps;  // by batch
  // Steps that were measured, whose machine it was, and what was predicted of them.
  std::optional<DecodeMeasurement> measured;
  std::vector<DecodeStep> predicted;  // as many as steps, or none
  std::string predicted_from;         // the calibration's file
  double median_error_pct = 0;        // of the predicted steps
  // The same of what the steps take less other programs' turns; nothing where that is not known.
  std::optional<double> median_error_undisturbed_pct;
  std::vector<DecodeCounters> counters{};  // of ncu, by batch
};

// Half width of a corrected step between its points, as a logarithm: the largest error of the
// paper's three curves with both ends given (docs/measurements/2026-11-21-decode-steps).
inline constexpr double kCorrectedHalfWidth = 0.10;
inline constexpr double kSaturated = 0.95;
// Of a profiled run, what other programs took: beyond it nobody knows which kernels they held up.
inline constexpr double kMostWaitedShare = 0.25;
inline constexpr size_t kMostBatches = 64;

// The most that attention reaches of batches that fit; and the least batch that has kSaturated of
// it, where a larger one follows.
[[nodiscard]] double plateau_bytes_per_second(const std::vector<DecodeStep>& steps);
[[nodiscard]] std::optional<int64_t> saturation_batch(const std::vector<DecodeStep>& steps);

// A usage Error about a context or batches that cannot be asked about.
Result<void> check_context_and_batches(int64_t context, const std::vector<int64_t>& batches);

// An Error where the model cannot be built, or the device lacks a figure that the laws need.
Result<DecodeAnswer> predict_decode(const text::JsonView& config, const DecodeQuestion& question,
                                    const timing::TimingModel& model);

}  // namespace headroom::bench
