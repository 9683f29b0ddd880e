// The answer to "will this training step fit?", as plain structs.
//
// fit::answer() fills them, report/ shows them as text, JSON or a page. Values only: no pointers
// into a model or a step, so an answer outlives both and may be moved between threads. A timeline
// of a 7B step is a few megabytes, all else is small.
//
// What holds for every answer (report/ relies on it, fit/ has a test for it):
//   1. breakdown: allocated components sum to peak_allocated; with cached_unused they sum to
//      peak_reserved; with context they sum to device_used.expected.
//   2. room = device.offered - device_used, the ends swapped: room.low belongs to device_used.high.
//   3. verdict is yes when room.low > 0, no when room.high < 0, and at_risk between.
//   4. timeline.points are in the order of their event index, and one of them is the peak.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/provenance.h"
#include "base/units.h"
#include "fit/run_cost.h"
#include "fit/time/step_seconds.h"

namespace headroom::fit {

enum class Verdict : uint8_t { yes, at_risk, no };

// What a byte on the device is for. The order is the order of stacking, from the ground up.
enum class Component : uint8_t {
  parameters,        // without lm_head
  gathered,          // parameters of other ranks' shares, while this one has them whole
  communication,     // what collectives send and receive besides: gradients' buckets
  gradients,         // without lm_head's
  optimizer_states,  // without lm_head's
  lm_head_weight,    // with autocast's copy; a tied matrix is counted with the parameters
  lm_head_gradient,
  lm_head_state,
  saved_activations,  // kept by autograd for the backward pass
  logits,
  loss,           // what the loss makes beyond the logits: upcasts, shifts, probabilities
  temporaries,    // inside an operator or a transformation, gone soon after
  other,          // the batch itself, buffers, outputs that the loop keeps
  workspaces,     // cuBLAS and the like, through the caching allocator
  cached_unused,  // reserved by the allocator and not allocated
  context,        // CUDA context, libraries, and what a real run holds beyond the replay
};
inline constexpr size_t kComponentCount = 16;
// Components before this one are allocated blocks of the caching allocator.
inline constexpr size_t kAllocatedComponentCount = static_cast<size_t>(Component::cached_unused);

// "saved_activations": the key in JSON.
[[nodiscard]] std::string_view name_of(Component component);
// "saved activations": for people.
[[nodiscard]] std::string_view label_of(Component component);
// "yes", "at_risk", "no".
[[nodiscard]] std::string_view name_of(Verdict verdict);

// Bytes by component, indexed by Component.
struct ComponentBytes {
  std::array<Bytes, kComponentCount> bytes{};

  Bytes& operator[](Component component) { return bytes[static_cast<size_t>(component)]; }
  const Bytes& operator[](Component component) const {
    return bytes[static_cast<size_t>(component)];
  }
  [[nodiscard]] Bytes allocated() const;  // sum of the allocated components
  [[nodiscard]] Bytes total() const;      // sum of all
};

// A prediction: low and high bound the 90 % interval.
// The least that PyTorch's allocator asks of a device. One that meets the device's end and goes on
// by emptying its cache holds at least this much less than there is.
inline constexpr Bytes kLeastSegment{2 * kMiB};

struct Interval {
  Bytes low;
  Bytes expected;
  Bytes high;
};

// Where the value of a setting comes from.
enum class SettingOrigin : uint8_t {
  given,     // by a flag
  config,    // by the model's own files
  standard,  // our default, which is also the framework's where it has one
  detected,  // what is in this machine
  derived,   // follows from other settings (attention's kernel from version, dtype and shape)
  assumed,   // nothing says so; the answer is marked extrapolated
};
[[nodiscard]] std::string_view name_of(SettingOrigin origin);

// One line of the question as it was understood. `name` is the flag without its dashes.
struct Setting {
  std::string name;
  std::string value;
  SettingOrigin origin = SettingOrigin::standard;
};

// The memory of the device in question.
struct DeviceMemory {
  std::string name;   // canonical: "a100-sxm-80gb"
  int64_t count = 1;  // of such devices, of which each holds what the answer says of one
  Bytes total;        // what the maker prints
  Bytes offered;      // what processes can use: total less what the driver keeps
  Provenance provenance = Provenance::datasheet;
};

// Where in the step the peak is. Empty strings where a level does not apply.
struct PeakPlace {
  int64_t event = 0;   // index of the memory event; matches timeline.points[].event
  std::string phase;   // "forward", "loss", "backward", "optimizer", ...
  std::string module;  // "model.layers.31.mlp"
  std::string op;      // "aten::_log_softmax"
  std::string why;     // one sentence for people
};

// The host's memory that one rank takes for what is offloaded to it.
struct HostFigures {
  Bytes requested;
  Bytes taken;  // PyTorch takes a power of two for each page-locked block
};

struct MemoryFigures {
  Bytes peak_allocated;  // torch.cuda.max_memory_allocated()
  // Of it, where experts get a share of the tokens that is not sure (expert_imbalance.h): at the
  // least, the expected and the most of that.
  std::optional<Interval> peak_allocated_interval;
  Bytes peak_reserved;     // torch.cuda.max_memory_reserved()
  Bytes peak_requested;    // the same peak before rounding
  Bytes steady_allocated;  // between steps, after the first
  PeakPlace peak_at;
  Interval device_used;                                   // nvidia-smi
  ComponentBytes breakdown;                               // at the peak; see the invariants above
  std::optional<HostFigures> host;                        // nothing where nothing is counted there
  Provenance allocated_provenance = Provenance::counted;  // of the allocated figures
  Provenance reserved_provenance = Provenance::counted;   // of peak_reserved
  Provenance device_used_provenance = Provenance::datasheet;
};

// The largest value of a setting that still fits (verdict yes), found by running the model again.
struct Largest {
  int64_t value = 0;      // 0: not even one fits
  bool at_bound = false;  // the search ended at its own bound or the model's, not at the memory
  Bytes peak_allocated;   // at `value`
  Interval device_used;   // at `value`
};

// One thing to change, with what it buys; every figure comes from running the model again.
struct Remedy {
  std::string name;   // "fused-linear-loss": stable, for programs
  std::string title;  // "fused linear cross entropy": for people
  std::string flag;   // what to pass to headroom: "--loss fused-linear"
  std::string how;    // what to set in PyTorch or transformers; may hold a line of code
  std::string cost;   // what it costs in time or quality; empty when nothing
  Bytes saves;        // peak device memory saved (expected); negative when it costs memory
  Bytes peak_allocated;
  Interval device_used;
  Verdict verdict = Verdict::no;
  std::optional<Largest> largest_batch;  // with this remedy alone
};

// Memory over the step. Labels are indices into `labels`, so that a point stays small.
struct TimelinePoint {
  int64_t event = 0;
  uint32_t phase = 0;
  uint32_t module = 0;
  uint32_t op = 0;
  Bytes reserved;
  ComponentBytes bytes;  // allocated components only; cached_unused and context are 0 here
};
struct Timeline {
  std::vector<std::string> labels;  // labels[0] is ""
  std::vector<TimelinePoint> points;
  size_t peak = 0;  // index into points; meaningless when there are none
};

// What the setting of a file needs that says some of it otherwise than it was asked.
struct AsWritten {
  std::vector<std::string> instead;  // "--reduce-dtype fp32": what it says otherwise
  Bytes peak_allocated;
  Interval device_used;
  Interval room;
  Verdict verdict = Verdict::no;
  double oom_probability = 0;
};

// A file that was written for an engine, and what starts it.
struct Emitted {
  std::string kind;  // "accelerate"
  std::string file;
  std::string command;
  std::vector<std::string> by_hand;  // settings that the file cannot say: a training script's own
  std::vector<std::string> notes;    // of flags of Headroom's own, which no engine has
  std::optional<AsWritten> as_written;  // nothing where it says what was asked
};

// One stage of a pipeline, of which each has memory of its own.
struct StageFigures {
  int64_t stage = 0;
  int64_t layers = 0;
  // Micro-batches whose activations it holds at the most; where only some of its chunks hold one,
  // that part of it.
  double in_flight = 0;
  Bytes peak_allocated;
  Interval device_used;
  Verdict verdict = Verdict::no;
  std::optional<StepTime> time;    // of a step, but for waiting for others; nothing: not known
  std::string untimed;             // why
  double micro_batch_seconds = 0;  // of it, for each micro-batch
};

// A change to a pipeline as a whole; every stage of it, and the step's time, as predicted with it.
struct PipelineMove {
  std::string name;   // "stage-boundaries": stable, for programs
  std::string title;  // for people
  std::string how;    // what to give the engine
  std::string cost;
  Bytes saves;                    // of what the fullest stage shows of its device
  Interval device_used;           // of the fullest stage with it
  Verdict verdict = Verdict::no;  // of the stage that fits least
  std::vector<StageFigures> stages;
  std::optional<StepTime> time;
};

struct FitAnswer {
  std::string model;  // as asked for, or the id from its files
  int64_t parameter_count = 0;
  int64_t trainable_count = 0;
  DeviceMemory device;
  std::vector<Setting> settings;
  Verdict verdict = Verdict::no;
  Interval room;
  double oom_probability = 0;  // of a step on one of the devices (oom_probability.h)
  MemoryFigures memory;
  std::optional<StepTime> time;  // nothing where the device lacks a figure; a note says so
  std::optional<Largest> largest_batch;
  std::optional<Largest> longest_seq;
  std::vector<Remedy> remedies;  // best first
  // Of a pipeline, in its order; what else the answer says is of the one that needs most.
  std::vector<StageFigures> stages;
  std::vector<PipelineMove> moves;  // between its stages, what saves most first
  Timeline timeline;                // empty when not asked for
  std::vector<Emitted> emitted;
  std::optional<RunCost> cost;           // where a price was given, and there is a time
  std::vector<std::string> notes;        // what the question means for this model
  std::vector<std::string> warnings;     // what to know before trusting the answer
  std::vector<std::string> assumptions;  // each makes some figure extrapolated
};

// fit --against: predictions held against measurements.
struct AgainstRow {
  std::string id;
  std::string source;
  std::string model;
  bool supported = false;
  std::string reason;  // why not, when not supported
  // "peak_allocated", "after_step", "device_used", "peak_reserved"; "step_seconds", whose figures
  // are the seconds below
  std::string metric;
  std::optional<double> measured_seconds;
  std::optional<SecondsInterval> predicted_seconds;
  std::optional<Bytes> measured;
  std::optional<Bytes> predicted;
  std::optional<Interval> interval;  // where the metric has one
  // Beside device_used: what the allocator was replayed to hold, and whether it would have.
  std::optional<Bytes> peak_reserved;
  std::optional<double> oom_probability;
  int64_t ranks = 1;                            // among how many the step was divided
  bool fused_loss = false;                      // and whether the loss was fused over whole logits
  std::optional<double> error_pct;              // (predicted - measured) / measured * 100
  Provenance provenance = Provenance::counted;  // of the prediction
};
struct AgainstSummary {
  std::string source;  // "all" for the whole file
  std::string metric;
  int64_t rows = 0;
  int64_t supported = 0;
  std::optional<double> median_pct;  // of |error_pct|
  std::optional<double> p90_pct;
  std::optional<double> worst_pct;
  std::string worst_id;
  std::optional<double> covered_pct;  // measured values inside their interval
};
struct AgainstAnswer {
  std::string file;
  std::vector<AgainstRow> rows;
  std::vector<AgainstSummary> summary;
  std::string calibration;           // what correction was applied; empty when none
  std::vector<std::string> learned;  // a sentence for each law that was saved
  std::vector<std::string> warnings;
};

}  // namespace headroom::fit
