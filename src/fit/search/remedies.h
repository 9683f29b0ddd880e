// Remedies: what to change so that a step needs less, each found by running the model again.
//
// In two rounds of independent runs, which may go side by side: every change is tried, then those
// that save most are asked for the largest batch that they buy. The result depends on what the runs
// find, never on their order. Cost: one prediction a change, two or three a batch (search.h).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "fit/answer.h"
#include "fit/prediction.h"
#include "fit/scenario/scenario.h"

namespace headroom::fit {

// A remedy with what its largest batch is searched from.
struct TriedRemedy {
  Remedy remedy;
  Scenario scenario;
  Prediction prediction;
  bool asks_batch = false;  // whether a larger batch is what it may buy
};

class RemedySearch {
 public:
  // `before` is the scenario's own prediction. Both must outlive the search.
  RemedySearch(const Scenario& scenario, const Prediction& before);

  // The first round: each run once, by any thread.
  [[nodiscard]] size_t changes() const { return tried_.size(); }
  void try_change(size_t i);

  // The second, after the first: of the `most` changes that save most (all where nothing is given).
  [[nodiscard]] size_t choose_batches(std::optional<size_t> most);
  void find_batch(size_t i);

  // Those that apply and save memory, the largest saving first. To be called after all runs.
  [[nodiscard]] std::vector<Remedy> found() &&;

 private:
  const Scenario& scenario_;
  const Prediction& before_;
  std::vector<std::optional<TriedRemedy>> tried_;
  std::vector<TriedRemedy*> batches_;  // the dearest to run first
};

}  // namespace headroom::fit
