#include "fit/shared_steps.h"

#include <algorithm>
#include <utility>

#include "fit/scenario.h"
#include "fit/scenario_graph.h"

namespace headroom::fit {

namespace {

constexpr size_t kEntriesMax = 12;
constexpr size_t kOperationsMax = 40'000;  // some 20 MB of graphs

// What decides the graph and the passes: all but these. Which settings were given decides nothing
// that is not among the settings by now.
FitQuestion what_decides(FitQuestion question) {
  const FitQuestion plain;
  // A step in backward is part of the passes.
  if (!question.optimizer_in_backward) {
    question.optimizer = plain.optimizer;
    question.optimizer_loop = plain.optimizer_loop;
    question.offload = plain.offload;
  }
  question.clip = plain.clip;
  question.allocator = plain.allocator;
  question.calibration = plain.calibration;
  question.events = plain.events;
  question.search = plain.search;
  question.timeline = plain.timeline;
  question.given = plain.given;
  return question;
}

Result<std::shared_ptr<const SharedStep>> make_step(const Scenario& scenario) {
  auto step = std::make_shared<SharedStep>();
  HEADROOM_ASSIGN(step->graph, graph_of(scenario));
  step->passes = step::fold_passes(step->graph, scenario.train);
  return std::shared_ptr<const SharedStep>(std::move(step));
}

}  // namespace

Result<std::shared_ptr<const SharedStep>> SharedSteps::of(const Scenario& scenario) {
  // What is traced depends on which settings were given.
  if (scenario.traced) return make_step(scenario);
  const std::shared_ptr<Entry> entry = entry_of(what_decides(scenario.question));
  std::call_once(entry->made, [&] {
    auto step = make_step(scenario);
    const std::lock_guard lock(mutex_);
    entry->step.emplace(std::move(step));
    forget_the_oldest();
  });
  return *entry->step;
}

std::shared_ptr<SharedSteps::Entry> SharedSteps::entry_of(FitQuestion question) {
  const std::lock_guard lock(mutex_);
  const auto is_this = [&](const auto& entry) { return entry->question == question; };
  const auto found = std::ranges::find_if(entries_, is_this);
  if (found != entries_.end()) return *found;
  return entries_.emplace_back(std::make_shared<Entry>(std::move(question)));
}

// The latest entry stays. To be called under the lock.
void SharedSteps::forget_the_oldest() {
  size_t operations = 0;
  for (const auto& entry : entries_) {
    if (entry->step && *entry->step) operations += (**entry->step)->graph.operations.size();
  }
  while (entries_.size() > 1 && (entries_.size() > kEntriesMax || operations > kOperationsMax)) {
    const auto& oldest = *entries_.front();
    if (oldest.step && *oldest.step) operations -= (**oldest.step)->graph.operations.size();
    entries_.pop_front();
  }
}

}  // namespace headroom::fit
