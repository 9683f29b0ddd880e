// Where the time of a prefill or a training step goes that nobody has run: the operators of the
// step model, each timed by the laws of timing, and what quantization and fusion would change.
//
// The device's time alone: what a framework's host takes a launch no law knows, so the step says
// how many kernels there are and from which time a launch on the host, not the device, would set
// the pace. A law for backward kernels does not exist: they are timed by the forward law of their
// kind with their own work, and said to be extrapolated. Pure, some milliseconds.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "ops/fresh_memory.h"
#include "ops/predicted.h"
#include "step/trace.h"
#include "timing/operator_work.h"
#include "timing/timing_model.h"

namespace headroom::ops {

using timing::StepShape;

struct StepQuestion {
  std::string model;  // for people
  std::string phase;  // "prefill", "train"
  device::Device device;
  int64_t batch = 1;
  StepShape shape;
  Quantize quantize = Quantize::none;
  bool fuse = false;
  FreshMemory fresh_memory{};      // of a processor that was measured
  std::vector<std::string> notes;  // what was taken for granted, for the answer
};

// One launch.
struct StepCall : timing::OperatorWork {
  std::optional<timing::Call> call;  // where its sizes are known, not to be told from its work
  // The name of its group; "": as `group` says. The step model has fewer than graphs of others.
  std::string_view group_name;
  bool is_linear = false;  // a product with a weight
  bool is_head = false;
  bool is_backward = false;
  double fresh_bytes = 0;  // of what it makes, in memory that the process has not had before
};

// The launches of one step: of inference all, of training the last of the trace's iterations.
std::vector<StepCall> calls_of(const step::StepTrace& trace);

// Neighbours that go element by element over as many results become one launch: what one writes for
// the next is not read again, nor written where nothing keeps it for backward.
std::vector<StepCall> fused(const std::vector<StepCall>& calls, bool keeps_outputs);

// An Error where a law lacks a figure of the device, or the device the arithmetic.
Result<PredictedRun> predict_step(const std::vector<StepCall>& calls, const StepQuestion& question,
                                  const timing::TimingModel& model);

}  // namespace headroom::ops
