// Law: the time of one class of operators, as tables over features on top of the roofline.
//
//   t = (start + roof) * exp(intercept + sum of tables)      roof = (compute^4 + traffic^4)^(1/4)
//
// A table is a function of one or two features, linear between its knots, constant outside them:
// the boundary is held. Worked: an elementwise addition that moves 3.35 GB on an H100 SXM (3.35
// TB/s) has a roof of 1 ms; a law whose tables sum to log(1/0.8) says 1.25 ms. tools/timing/law.py
// fits the values; data/timing.json holds them.
//
// Plain values; thread-safe; a prediction is some hundred nanoseconds.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "timing/features.h"

namespace headroom::timing {

// values[i] at knots[0][i], or values[i * knots[1].size() + j] at (knots[0][i], knots[1][j]).
struct Table {
  std::vector<Feature> features;           // one or two
  std::vector<std::vector<double>> knots;  // for each feature, ascending, two at least
  std::vector<double> values;

  [[nodiscard]] double at(const Features& features) const;
  // Whether a feature lies outside its knots, so that the boundary is held.
  [[nodiscard]] bool holds_boundary(const Features& features) const;
};

// How well a law does on what it was not fitted on: devices left out for a general law, groups of
// shapes left out for a device's own. A 90 % interval is t * exp(+-half_width_log).
struct HeldOutError {
  int64_t rows = 0;
  double median_error_pct = 0;  // 0 where rows is 0
  double half_width_log = 0;
};

// Points of a new device correct a general law: log(measured / predicted) is taken for the device's
// offset plus a smooth function of these features (kriging.h).
struct Correction {
  std::vector<Feature> features;
  std::vector<double> center;  // the features are measured from here,
  std::vector<double> scale;   // in these units
  double offset_sd = 0;
  double local_sd = 0;
  double noise_sd = 0;
  double half_width_log_large = 0;
  double half_width_log_small = 0;
};

struct Law {
  OperatorClass kind{};
  std::string device;                // of the catalogue; empty: for any device
  std::vector<std::string> devices;  // it was fitted on
  std::vector<std::string> sources;  // whose tables
  std::vector<device::Rate> rates;   // of the arithmetic in those tables; none: any
  double start_seconds = 0;
  double intercept = 0;
  std::vector<Table> tables;
  HeldOutError large;
  HeldOutError small;
  bool can_correct = false;
  Correction correction;  // where can_correct

  [[nodiscard]] double seconds(const Features& features) const;
  [[nodiscard]] bool holds_boundary(const Features& features) const;
  // Whether its tables have arithmetic of that rate. The two half precisions are as one.
  [[nodiscard]] bool knows(device::Rate rate) const;
  [[nodiscard]] const HeldOutError& error(const Features& features) const {
    return features.large ? large : small;
  }
};

// 90 % of steps that were measured on servers, of models that were left out, are within
// t * exp(+-): host, kernels, and all that neither tells. Of mixtures of experts, and of the rest.
struct StepHalfWidth {
  double dense_log = 0;
  double experts_log = 0;
  std::vector<std::string> devices;   // on which they were measured
  std::vector<device::Rate> weights;  // whose types they had; none: any

  // Whether steps like these were among them. The two half precisions are as one.
  [[nodiscard]] bool judges(std::string_view device, device::Rate type) const;
};

// What an engine adds to its kernels, by sequences in the batch and by operators: the host's time
// between kernels, and sampling from the logits.
struct Engine {
  std::string name;    // "vllm-0.6.3"
  std::string serves;  // the word of the engine, whose versions before `before` it is of; else ""
  std::string before;
  std::string source;
  std::string device;     // of the catalogue, on which it runs the models; empty: on any
  bool is_eager = false;  // PyTorch's eager mode: each operator a kernel, none fused
  // Prompts have iterations of their own, in which nobody decodes, unless it is told otherwise.
  bool reads_prompts_whole = false;
  double host_seconds_per_operator = 0;
  double host_base_seconds = 0;
  double host_seconds_per_sequence = 0;
  double sampling_seconds_per_logit = 0;
  double half_width_log = 0;  // of the host's time, on models that were left out
  double median_error_pct = 0;
  // Where whole steps judge it, the errors above are theirs.
  std::optional<StepHalfWidth> step_half_width = std::nullopt;
  // The shortest of the steps that it was learned from: a host at work beside the GPU for less is
  // seen in none of them.
  double least_step_seconds = 0;

  // Whether it is of an older generation, which has to be asked for.
  [[nodiscard]] bool is_former() const { return !before.empty(); }
};

// Whole steps that teach a residual, and judge it: how many it was learned from, how many of other
// models were kept aside, and how many of those came out inside the interval.
struct WholeSteps {
  int64_t learned = 0;
  int64_t aside = 0;
  int64_t inside = 0;
};

// What kernels take within a step, as a multiple of what the laws, learned of kernels that ran
// alone, say: the clock of a device at its power limit, backward's kernels, gaps between launches.
struct InStep {
  std::string name;  // "eager-training"
  std::string source;
  std::vector<std::string> devices;  // that it was learned on
  double ratio = 1;
  std::vector<std::pair<std::string, double>> ratios;  // of devices that have one of their own
  double dequantize_ratio = 1;          // of kernels that unpack weights of 4 bits, besides
  double half_width_log = 0;            // of 90 % of the steps that it was learned from
  double half_width_log_elsewhere = 0;  // on other devices: chosen, not learned
  double median_error_pct = 0;          // of models that were left out
  double host_launch_seconds = 0;       // that the host takes for a launch
  double host_unit_seconds = 0;         // and around a gather or a reduction of FSDP1's
  // Where there are any, 90 % of steps as they come are within exp(+-) of the half width, with
  // what is sent, waited for and launched in them; else it is of the kernels' part alone.
  std::optional<WholeSteps> whole_steps = std::nullopt;

  [[nodiscard]] double ratio_on(std::string_view device) const;
  [[nodiscard]] bool is_learned_on(std::string_view device) const;
  [[nodiscard]] double half_width_on(std::string_view device) const {
    return is_learned_on(device) ? half_width_log : half_width_log_elsewhere;
  }
};

// The soft maximum of compute and traffic.
[[nodiscard]] double roof_seconds(const Roofline& roofline);

}  // namespace headroom::timing
