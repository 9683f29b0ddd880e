// The memory-gap paper's experiment (arXiv 2503.08311), predicted: one decode step by batch size.
//
// What each kernel class (attention, matrix products, the rest) and the host take, the arithmetic
// intensity of attention and products, the share of the DRAM's bandwidth they reach, and the batch
// from which attention has no more bandwidth to gain, while compute stays idle.
//
// The step is that of a serving engine: operators and cache are counted on the step model's graph;
// the cache is appended in place, and norms, rotary embedding and activation are one kernel each.
// Times are the laws' (timing/timing_model.h); the host and sampling are an engine's. Pure but for
// what it is given; thread-safe; some ten milliseconds a batch of a 7B model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/provenance.h"
#include "base/result.h"
#include "base/units.h"
#include "device/device.h"
#include "operator/dtype.h"
#include "text/json.h"
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
  // Of this model on this device, two at least or none: steps are corrected by the line from
  // predicted to measured times, and shares stay as predicted. Their batches are answered too.
  std::vector<MeasuredStep> points;
};

// 90 % interval.
struct TimeInterval {
  double low_seconds = 0;
  double seconds = 0;
  double high_seconds = 0;
};

// The kernels of one class in a step.
struct KernelTime {
  TimeInterval time;
  double flops = 0;
  double bytes = 0;
  Provenance provenance = Provenance::interpolated;  // the weakest of its kernels
  std::string basis;                                 // of the kernel that takes longest
  [[nodiscard]] double arithmetic_intensity() const { return bytes > 0 ? flops / bytes : 0; }
  [[nodiscard]] double bytes_per_second() const {
    return time.seconds > 0 ? bytes / time.seconds : 0;
  }
};

struct DecodeStep {
  int64_t batch = 0;
  bool fits = true;  // weights and cache are within the memory
  Bytes kv_cache;
  KernelTime attention;
  KernelTime matmul;
  KernelTime other;
  TimeInterval host;
  TimeInterval step;
  Provenance provenance = Provenance::extrapolated;  // of the step; calibrated within the points
  double roofline_seconds = 0;                       // of attention and products, without host

  // The classes and the host together, as predicted: what shares are of.
  [[nodiscard]] double parts_seconds() const {
    return attention.time.seconds + matmul.time.seconds + other.time.seconds + host.seconds;
  }
};

struct DecodeAnswer {
  std::string model;
  std::string device;
  int64_t context = 0;
  std::string dtype;
  std::string engine;  // whose host and sampling
  std::string engine_source;
  Bytes weights;
  int64_t largest_batch = 0;  // by memory; 0: not even one
  double peak_bytes_per_second = 0;
  double peak_flops_per_second = 0;
  // The least batch whose attention reaches kSaturated of the bandwidth it has at the largest one.
  std::optional<int64_t> saturation_batch;
  size_t points = 0;              // that corrected the steps
  std::vector<DecodeStep> steps;  // by batch
};

// Half width of a corrected step between its points, as a logarithm: the largest error of the
// paper's three curves with both ends given (docs/measurements/2026-11-21-decode-steps).
inline constexpr double kCorrectedHalfWidth = 0.10;
inline constexpr double kSaturated = 0.95;
inline constexpr double kMemoryShare = 0.9;  // what engines take of the device (vLLM's default)
inline constexpr int64_t kMostBatch = 65536;
inline constexpr int64_t kMostContext = 16'777'216;
inline constexpr size_t kMostBatches = 64;

// An Error where the model cannot be built, or the device lacks a figure that the laws need.
Result<DecodeAnswer> predict_decode(const text::JsonView& config, const DecodeQuestion& question,
                                    const timing::TimingModel& model);

}  // namespace headroom::bench
