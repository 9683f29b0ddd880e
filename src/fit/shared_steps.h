// SharedSteps: graphs and folded passes that several predictions of one search need.
//
// Remedies differ from the question in one setting, and many of those (an optimizer, an allocator,
// clipping, a device's memory) change neither the graph nor what forward and backward do. So what
// the latest predictions made is kept, by all other settings: a question that differs in a setting
// that nobody named here has its own. One for a scenario and its variations, for any number of
// threads; memory is bounded by the operations of the graphs kept.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "base/result.h"
#include "fit/question.h"
#include "model/graph.h"
#include "step/train_step.h"

namespace headroom::fit {

struct Scenario;

struct SharedStep {
  model::Graph graph;
  std::shared_ptr<const step::FoldedPasses> passes;  // null: every layer has to be run
};

class SharedSteps {
 public:
  // Of the scenario's graph; made here where nobody did before. Never null where there is no error.
  Result<std::shared_ptr<const SharedStep>> of(const Scenario& scenario);

 private:
  struct Entry {
    explicit Entry(FitQuestion its_question) : question(std::move(its_question)) {}
    FitQuestion question;  // without the settings that change neither graph nor passes
    std::once_flag made;
    std::optional<Result<std::shared_ptr<const SharedStep>>> step;
  };

  std::shared_ptr<Entry> entry_of(FitQuestion question);
  void forget_the_oldest();

  std::mutex mutex_;
  std::deque<std::shared_ptr<Entry>> entries_;  // the latest last
};

}  // namespace headroom::fit
