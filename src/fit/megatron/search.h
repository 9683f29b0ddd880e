// MegatronSearch: of very many settings of one model, the fastest that fits, and the frontier
// between speed and room.
//
// Problem: thousands to hundreds of thousands of settings (megatron/division.h), of which each
// takes tens of milliseconds to predict, stage by stage. Branch and bound, in the order of the
// least time of each (megatron/bounds.h):
//   1. A setting is passed over only where its least bytes leave no doubt that it does not fit for
//      sure, or where one that fits was predicted to take no more than its least time, and to leave
//      as much room as it could. So whatever is faster, or roomier, than what is found was
//      predicted itself.
//   2. Where none fits for sure, the one that misses least is found the same way, by bytes alone.
//   3. Settings are predicted in batches of a fixed number, so neither what is found nor how many
//      were predicted depends on the number of cores.
// Under a calibration, which may move memory either way, bytes bound nothing, and far more is
// predicted.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "fit/answer.h"
#include "fit/megatron/bounds.h"
#include "fit/scenario/scenario.h"
#include "fit/search/methods.h"
#include "fit/search/search_progress.h"
#include "fit/time/step_timer.h"

namespace headroom::fit {

// What a prediction says of a setting.
struct MegatronOutcome {
  Verdict verdict = Verdict::no;     // of the stage that fits least
  std::vector<StageFigures> stages;  // empty where an end of the pipeline alone told
  StepTime time;
  Bytes used;  // of its device, expected, by the stage that shows most
};

struct MegatronFound {
  MegatronDivision division;
  MegatronOutcome outcome;
};

// What is asked of one setting.
using MegatronQuestions = std::function<Result<FitQuestion>(const MegatronDivision&)>;

// A setting's stages, each predicted, and its time. The Error is about a setting that cannot be
// asked, or a device that lacks a figure. What is known of its stages is not predicted again.
Result<MegatronOutcome> predict_megatron(const Scenario& any, const StepTimer& timer,
                                         const FitQuestion& question,
                                         std::vector<StageFigures> known = {});

class MegatronSearch {
 public:
  // `any` is the scenario of one of the settings. All must outlive the search.
  MegatronSearch(const Scenario& any, const StepTimer& timer, const MegatronQuestions& questions,
                 const MegatronBounds& bounds, const std::vector<MegatronDivision>& divisions);

  // On all cores. The Error is about all settings, not about one of them.
  Result<void> run(const SearchProgress& progress);

  // Those that fit for sure and that none beats in both, the fastest first; where none fits, the
  // one that misses least.
  [[nodiscard]] const std::vector<MegatronFound>& found() const { return found_; }
  // Of what does not fit and might be faster than all that does: the least of each way to share
  // layers, at most so many, the least first.
  [[nodiscard]] std::vector<MegatronDivision> too_fast(size_t most) const;
  [[nodiscard]] Searched counts() const;

 private:
  enum class Fate : uint8_t { open, predicted, too_large, beaten, refused };
  struct Candidate {
    MegatronDivision division;
    MegatronLeast least{};
    Interval outside{};  // of the allocator
    Fate fate = Fate::open;
    bool fits = false;
  };

  [[nodiscard]] Bytes least_used(const Candidate& candidate) const;
  // What of a candidate is known: at the least, its seconds and what it takes of a device.
  [[nodiscard]] bool is_beaten(double seconds, Bytes used) const;
  [[nodiscard]] Fate fate_of(const Candidate& candidate) const;
  // Nothing where it is found to be beaten on the way.
  Result<std::optional<MegatronOutcome>> try_candidate(const Candidate& candidate) const;
  void find_frontier(const SearchProgress& progress);
  void find_least(const SearchProgress& progress);
  void tell(const SearchProgress& progress, size_t done);
  void add(MegatronFound found);

  const Scenario& any_;
  const StepTimer& timer_;
  const MegatronQuestions& questions_;
  std::vector<Candidate> candidates_;
  std::vector<MegatronFound> found_;
  std::optional<Error> refused_;
  SearchState state_;  // what is told
};

}  // namespace headroom::fit
