// `headroom fit --gpus N`: every way to divide a step among N devices, and the one to begin with.
//
// Candidates are DDP, ZeRO 1 to 3, FSDP of either version and in groups (hybrid sharding, by every
// divisor of N), FSDP2 whose ranks share a mixture's experts out, or each sequence, tensor
// parallelism, alone and within FSDP2 and DDP (where transformers has a plan for the model; groups
// stay within a machine), PyTorch's pipelines, alone and of FSDP2's stages; where sharing sequences
// comes first, or nothing fits for sure, that beside each of the others (divisions.h), each
// without recomputation, with selective and with full recomputation, where the question leaves that
// open; in one precision, unless the question asks for several (precision.h). A tensor-parallel
// group and a pipeline have one batch among them, so they accumulate as many: a step has the same
// sequences whichever way. Where a global batch
// leaves the micro-batch open, and in pipelines the schedule, of each way the fastest that fits for
// sure is the row (within_ways.h). Each is predicted as
// fit::answer() would predict it, so what it needs is as sure as there. What fits comes first, the
// fastest step before others (step_timer.h); where steps have no time, what recomputes less, then
// what sends less, then what needs less beside PyTorch: DDP, ZeRO, FSDP. What does not fit follows,
// by what it misses. Where none fits for sure, DeepSpeed's offload to the host's memory is tried,
// too: ZeRO 2 and 3 with the optimizer there, 3 with the parameters as well.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "fit/answer.h"
#include "fit/question.h"
#include "fit/scenario/scenario.h"
#include "fit/search/first_step.h"
#include "fit/search/method_row.h"
#include "fit/search/search_progress.h"
#include "fit/time/step_timer.h"

namespace headroom::fit {

inline constexpr int64_t kMostGpus = 65536;

// What an answer about several settings is about.
struct Asked {
  std::string model;
  int64_t parameter_count = 0;
  int64_t trainable_count = 0;
  int64_t batch = 1;           // a device and micro-batch
  std::optional<int64_t> seq;  // nothing where the model's config says how long an input is
  std::string dtype;           // of the weights as answered, in the flag's words
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
  std::vector<std::string> assumptions;  // each makes figures extrapolated
};

// Of a search, what became of every setting: the counts come to `settings`.
struct Searched {
  int64_t settings = 0;
  int64_t predicted = 0;  // step by step
  // Not, by what was counted alone (megatron/bounds.h, within_ways.h):
  int64_t too_large = 0;  // needs more than the device has
  int64_t beaten = 0;     // one that fits is no slower, and of Megatron-LM's has as much room
  int64_t refused = 0;    // cannot be asked
};

struct MethodsAnswer : Asked {
  DeviceMemory device;
  int64_t grad_accum = 1;
  std::vector<MethodRow> rows;  // the one to begin with first, those that cannot be asked last
  Searched searched;
  bool is_selection = false;  // rows are some of the settings; else each way to divide is one
  std::optional<StepOverTime> first_step;  // of the first, where a timeline was asked for
  std::vector<Emitted> emitted;            // of the first
  std::optional<RunCost> cost;             // of the first

  // Whether there is one to begin with.
  [[nodiscard]] bool has_first() const { return !rows.empty() && rows.front().reason.empty(); }
  // Of the one to begin with; no where none can be asked.
  [[nodiscard]] Verdict verdict() const { return has_first() ? rows.front().verdict : Verdict::no; }
};

// Adds what the scenario says of itself; `timer` is the one that its times come from.
Result<void> describe(const Scenario& scenario, const StepTimer& timer, Asked& answer);

// Ways to divide the scenario's step among so many devices, each with the recomputation that was
// asked for or with every kind of it; the one to begin with first. One device has that alone.
// `searches_within_ways`: of each way the fastest micro-batch and the fastest schedule, if the
// question leaves them open, and the largest batch of each row; else of the first alone.
// REQUIRES: 1 <= gpus <= kMostGpus.
Result<std::vector<MethodRow>> rank_methods(const Scenario& scenario, const StepTimer& timer,
                                            int64_t gpus, bool searches_within_ways,
                                            SearchCount& count);
// Whether one of them fits for sure; quicker than ranking them. Counts what it predicts.
Result<bool> fits_some_way(const Scenario& scenario, int64_t gpus, SearchCount& count);

// The question's own division must be none. REQUIRES: 2 <= gpus <= kMostGpus. Some hundred
// milliseconds for a 7B model; both cores.
Result<MethodsAnswer> choose_method(const FitQuestion& question, int64_t gpus,
                                    const SearchProgress& progress = {});

}  // namespace headroom::fit
