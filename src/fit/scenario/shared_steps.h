// SharedSteps: graphs and folded passes that several predictions of one search need.
//
// Remedies differ from the question in one setting, and many of those (an optimizer, an allocator,
// clipping, a device's memory) change neither the graph nor what forward and backward do; others (a
// loss, adapters, kernels) rewrite the same graph. So what the latest predictions made is kept, by
// the settings that decide it: one that nobody named here counts. One for a scenario and its
// variations, for any number of threads; memory is bounded by the operations of the graphs kept.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
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
  std::shared_ptr<const model::Graph> graph;
  std::shared_ptr<const step::FoldedPasses> passes;  // null: every layer has to be run
};

// What the latest questions made, each once; who comes while it is made waits.
template <typename Value>
class LatestMade {
 public:
  using Made = Result<std::shared_ptr<const Value>>;

  LatestMade(size_t entries_max, size_t operations_max)
      : entries_max_(entries_max), operations_max_(operations_max) {}

  // `key` has all settings alike that decide nothing. Never null where there is no error.
  Made of(FitQuestion key, const std::function<Made()>& make);

 private:
  struct Entry {
    explicit Entry(FitQuestion its_key) : key(std::move(its_key)) {}
    FitQuestion key;
    std::once_flag once;
    std::optional<Made> made;
  };

  std::shared_ptr<Entry> entry_of(FitQuestion key);
  void forget_the_oldest();

  size_t entries_max_;
  size_t operations_max_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<Entry>> entries_;  // the latest last
};

class SharedSteps {
 public:
  SharedSteps();
  // Of the scenario's graph; made here where nobody did before. Never null where there is no error.
  Result<std::shared_ptr<const SharedStep>> of(const Scenario& scenario);

 private:
  LatestMade<model::Graph> built_;  // as families build them
  LatestMade<SharedStep> steps_;
};

}  // namespace headroom::fit
