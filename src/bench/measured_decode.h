// The memory-gap paper's experiment (arXiv 2503.08311) on this machine: `headroom bench decode`.
//
// A model with random weights and a full cache makes decode steps by batch; the runner is
// nongemm_probe.py and the records are those of nongemm.h, with a context. answer_decode() makes
// the steps of them: the time is the median of single runs; the classes are those of the quickest
// profiled run, and the host gap is what the quickest plain run takes beyond them, since the
// profiler's own cost falls on the host; what other programs took of the cores is taken off both.
// Work and traffic are counted by the step model, and a rate is that by the class's time. Pure;
// thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/decode.h"
#include "bench/nongemm.h"
#include "model/builtin.h"

namespace headroom::bench {

struct MeasuredDecodeQuestion {
  std::string model;  // for people, and of the records
  int64_t context = 512;
  std::vector<int64_t> batches;  // empty: powers of two, until the memory is full
  op::DType weights = op::DType::f32;
  std::optional<int64_t> layers;  // nothing: as many as fit
};

// As the runner has it, and its settings: all of one model, in the order of the batches.
NongemmModel decode_model(const model::ResolvedModel& model);
std::vector<NongemmSetting> decode_settings(const MeasuredDecodeQuestion& question);

// Of the records with that model, context, type and batches (all of them, where none are given): of
// several numbers of layers the one that was measured last. An Error where nothing was measured.
Result<DecodeAnswer> answer_decode(const text::JsonView& config,
                                   const MeasuredDecodeQuestion& question,
                                   const NongemmRecords& records);

// Predicts the steps of a measured answer on its machine, `from` a calibration of it, and lets its
// peaks be the machine's where they are higher. An Error where the laws cannot.
Result<void> add_predicted(const text::JsonView& config, const device::Device& device,
                           const timing::TimingModel& model, const std::string& from,
                           DecodeAnswer& answer);

// Nothing where the configuration does not say it.
[[nodiscard]] std::optional<int64_t> layers_of(const text::Json& config);
// The configuration with fewer layers, all other things alike; nothing where it does not say how
// many there are.
[[nodiscard]] std::optional<text::Json> with_layers(const text::Json& config, int64_t layers);

}  // namespace headroom::bench
