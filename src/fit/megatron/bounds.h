// What a division of Megatron-LM's takes at the least, without its step being made: what lets a
// search pass over settings that cannot be the answer.
//
// Problem: a prediction goes through every pass of every stage, tens of milliseconds; a search has
// tens of thousands of settings. What differs between most of them is only how many layers and
// micro-batches a stage has.
// So steps of one and of two layers, and of a micro-batch more or less, are made and counted,
// once for each way to divide a layer; what a layer and a micro-batch add follows by differences,
// since all layers are alike. Both bounds leave out only what adds to them:
//   1. bytes: the weights, gradients and optimizer's states of a stage (as many elements as its
//      graph declares, less what padding could take of a rank's share), and what each pass holds
//      that has run forward when the first one runs backward; of the first stage, the one behind
//      it and the last. What an operator takes besides, rounding, workspaces and all that the
//      allocator caches are left out. The step asks for all of it at one time, so peak_allocated is
//      no less.
//   2. seconds: kernels, and collectives that nothing can run beside, or the host's launches,
//      whichever take longer (StepTimer::busy_seconds), times the micro-batches, of the slowest
//      stage; and once of the other stages, as pipeline_time() adds them. What data parallel ranks
//      and stages send, the optimizer, and waits for what is sent beside computing are left out.
//      Kernels are priced by their shapes, whatever is around them, and a predicted step is the
//      replay of all its micro-batches' calls (timing/step_replay.h), each of which computing goes
//      through and none of which ends before what it stands still for; so it takes no less. The
//      test holds whole spaces against it.
// Costs: about a millisecond a way to divide a layer, then less than a microsecond a setting.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "fit/megatron/division.h"
#include "fit/scenario/scenario.h"
#include "fit/search/search_progress.h"
#include "fit/time/step_timer.h"

namespace headroom::fit {

struct MegatronLeast {
  int64_t bytes = 0;  // allocated at one time on the stage that holds most
  double seconds = 0;
  double waiting_seconds = 0;  // of those, what any stage waits for the others
};

class MegatronBounds {
 public:
  // `any` is one of the settings; `divisions` those that will be asked about. On all cores.
  static MegatronBounds make(const Scenario& any, const StepTimer& timer,
                             const engines::MegatronArguments& model,
                             const std::vector<MegatronDivision>& divisions,
                             const SearchProgress& progress = {});

  // REQUIRES: one of those that it was made for. The Error is about a layer that cannot be built,
  // or is beyond counting, or a device that lacks a figure of a law.
  [[nodiscard]] Result<MegatronLeast> of(const MegatronDivision& division) const;

  // Of one micro-batch on a stage: what a layer adds, and what the model's two ends do.
  struct Pass {
    double layer = 0, first = 0, last = 0;
    double only = 0;  // both ends of a stage that is all
  };
  struct Load {
    Pass device_seconds, host_seconds;
    int64_t layer_bytes = 0, first_bytes = 0, last_bytes = 0;
  };
  // Elements of a stage's parameters: each rank's own, and those that experts' ranks hold; of all
  // layers they may be more than an integer counts.
  struct Count {
    double elements = 0, expert_elements = 0, tensors = 0;
  };
  // Where a stage is in the model: at both ends, at the first, between them, at the last.
  enum class Place : uint8_t { only, first, middle, last };

 private:
  using LoadKey = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, CheckpointingKind, bool>;
  using CountKey = std::tuple<int64_t, int64_t, int64_t, Place>;
  struct Counts {
    Count one, two;  // of one layer and of two
  };
  static LoadKey load_key(const MegatronDivision& d);
  static CountKey count_key(const MegatronDivision& d, Place place);
  // In bytes, which may be more than an integer holds.
  [[nodiscard]] double kept(const MegatronDivision& d, Place place, const Counts& counts) const;
  [[nodiscard]] double held(const MegatronDivision& d, Place place, const Load& load) const;
  [[nodiscard]] Result<int64_t> least_bytes(const MegatronDivision& d, const Load& load) const;

  [[nodiscard]] int64_t layers_of(const MegatronDivision& d, Place place) const;
  void add_seconds(const MegatronDivision& d, const Pass& pass, MegatronLeast& least) const;

  engines::MegatronArguments model_;
  double weight_bytes_ = 2, gradient_bytes_ = 4, state_bytes_ = 12;  // an element
  std::map<LoadKey, Result<Load>> loads_;
  std::map<CountKey, Result<Counts>> counts_;
};

}  // namespace headroom::fit
