// Remedies: what to change so that a step needs less, each found by running the model again.
//
// A search is made of independent runs, which may go side by side: the result depends on what they
// find, never on their order. Cost: a handful of predictions a run (search.h).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "fit/answer.h"
#include "fit/prediction.h"

namespace headroom::fit {

class RemedySearch {
 public:
  // `before` is the scenario's own prediction. Both must outlive the search.
  RemedySearch(const Scenario& scenario, const Prediction& before);

  // How many runs there are. Each is to be run once, by any thread.
  [[nodiscard]] size_t count() const { return found_.size(); }
  void run(size_t i);
  // Those that apply and save memory, the largest saving first. To be called after all runs.
  [[nodiscard]] std::vector<Remedy> found() &&;

 private:
  const Scenario& scenario_;
  const Prediction& before_;
  std::vector<std::optional<Remedy>> found_;
};

}  // namespace headroom::fit
