// Prediction: the figures of one Scenario, found by building the step and replaying its memory.
//
// predict() is pure; some milliseconds for a 7B model, which is what every variation of a search
// costs. Reserved memory is that of an allocator which meets the device's end where it is, so a run
// that only fits by emptying its cache is seen as PyTorch would run it.
#pragma once

#include <cstdint>

#include "fit/answer.h"
#include "fit/scenario/scenario.h"
#include "memory/replay.h"
#include "step/trace.h"

namespace headroom::fit {

struct Prediction {
  int64_t parameter_count = 0;
  int64_t trainable_count = 0;
  Bytes peak_allocated;
  Bytes peak_reserved;
  Bytes peak_requested;
  Bytes steady_allocated;
  Bytes saved_for_backward;
  Interval device_used;
  Verdict verdict = Verdict::no;
  int64_t cache_flushes = 0;  // times the allocator had to empty its cache to go on
  ComponentBytes breakdown;   // at the peak of allocated memory
  size_t peak_event = 0;
  std::optional<HostFigures> host;
  // Of predict_in_detail() alone: it may take ten replays more (oom_probability.h).
  double oom_probability = 0;
  // A guess, for searches (search.h): by how much what grows with the batch or the sequence could
  // grow until the device is full, where 1 is as it is and below 1 it is too much already.
  double growth = 0;
};

// What of a step that does not fit is wanted.
enum class Figures : uint8_t {
  always,         // what it would take on a larger device
  where_it_fits,  // only the verdict and the growth, where it does not fit
};

// Keeps the trace and replay too, for the timeline and for explaining.
struct DetailedPrediction {
  Prediction prediction;
  step::StepTrace trace;
  memory::ReplayResult replay;
};

Result<Prediction> predict(const Scenario& scenario, Figures figures = Figures::always);
Result<DetailedPrediction> predict_in_detail(const Scenario& scenario, size_t timeline_points);
// The same without its probability of running out, and so without the replays that takes.
Result<DetailedPrediction> predict_with_trace(const Scenario& scenario,
                                              Figures figures = Figures::always);
// Which this adds: both together are predict_in_detail() of no timeline.
void add_oom_probability(const Scenario& scenario, DetailedPrediction& detail);

// The peak of a rank of Megatron-LM's whose experts get the least, the expected and the most of
// what --expert-imbalance says; nothing where no router decides (MegatronSetting), or the three are
// one.
Result<std::optional<Interval>> peak_by_imbalance(const Scenario& scenario, Bytes expected);

// What is allocated behind the optimizer, before gradients and outputs are let go: where loops that
// clear gradients at the start of a step read the counter.
Result<Bytes> allocated_before_release(const Scenario& scenario);

}  // namespace headroom::fit
