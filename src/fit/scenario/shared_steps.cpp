#include "fit/scenario/shared_steps.h"

#include <algorithm>
#include <utility>

#include "fit/scenario/graph.h"
#include "fit/scenario/scenario.h"

namespace headroom::fit {

namespace {

constexpr size_t kStepsMax = 8;
constexpr size_t kBuiltMax = 4;
constexpr size_t kOperationsMax = 40'000;  // some 10 MB of graphs

size_t operations_of(const model::Graph& graph) { return graph.operations.size(); }
size_t operations_of(const SharedStep& step) { return operations_of(*step.graph); }

// What decides the graph and the passes: all but these. Which settings were given decides nothing
// that is not among the settings by now.
FitQuestion what_decides(FitQuestion question) {
  const FitQuestion plain;
  // A step in backward is part of the passes.
  if (!question.optimizer_in_backward) {
    question.optimizer = plain.optimizer;
    question.optimizer_loop = plain.optimizer_loop;
    question.offload = plain.offload;  // only of a divided step of the passes, which none folds
  }
  question.clip = plain.clip;
  question.nodes = plain.nodes;
  question.link = plain.link;
  question.global_batch = plain.global_batch;
  question.allocator = plain.allocator;
  question.calibration = plain.calibration;
  question.events = plain.events;
  question.search = plain.search;
  question.timeline = plain.timeline;
  question.given = plain.given;
  return question;
}

// What decides the graph before it is rewritten: all but these.
FitQuestion what_decides_building(FitQuestion question) {
  const FitQuestion plain;
  question.optimizer_in_backward = plain.optimizer_in_backward;
  question = what_decides(std::move(question));
  question.dtype = plain.dtype;
  question.mixed_precision = plain.mixed_precision;
  question.method = plain.method;
  question.tensor_ranks = plain.tensor_ranks;
  question.lora_rank = plain.lora_rank;
  question.lora_targets = plain.lora_targets;
  question.lora_dropout = plain.lora_dropout;
  question.lora_dtype = plain.lora_dtype;
  question.ia3_feedforward = plain.ia3_feedforward;
  question.gptq_group = plain.gptq_group;
  question.freeze = plain.freeze;
  question.kernels = plain.kernels;
  question.kbit_preparation = plain.kbit_preparation;
  question.loss = plain.loss;
  question.keep_outputs = plain.keep_outputs;
  question.compile = plain.compile;
  question.float8 = plain.float8;
  question.grad_accum = plain.grad_accum;
  return question;
}

}  // namespace

template <typename Value>
typename LatestMade<Value>::Made LatestMade<Value>::of(FitQuestion key,
                                                       const std::function<Made()>& make) {
  const std::shared_ptr<Entry> entry = entry_of(std::move(key));
  std::call_once(entry->once, [&] {
    Made made = make();
    const std::lock_guard lock(mutex_);
    entry->made.emplace(std::move(made));
    forget_the_oldest();
  });
  return *entry->made;
}

template <typename Value>
std::shared_ptr<typename LatestMade<Value>::Entry> LatestMade<Value>::entry_of(FitQuestion key) {
  const std::lock_guard lock(mutex_);
  const auto is_this = [&](const auto& entry) { return entry->key == key; };
  const auto found = std::ranges::find_if(entries_, is_this);
  if (found != entries_.end()) {
    std::rotate(found, found + 1, entries_.end());  // the latest asked for is the last to go
    return entries_.back();
  }
  return entries_.emplace_back(std::make_shared<Entry>(std::move(key)));
}

// The latest entry stays. To be called under the lock.
template <typename Value>
void LatestMade<Value>::forget_the_oldest() {
  const auto size_of = [](const Entry& entry) -> size_t {
    return entry.made && *entry.made ? operations_of(***entry.made) : 0;
  };
  size_t operations = 0;
  for (const auto& entry : entries_) operations += size_of(*entry);
  while (entries_.size() > 1 && (entries_.size() > entries_max_ || operations > operations_max_)) {
    operations -= size_of(*entries_.front());
    entries_.pop_front();
  }
}

SharedSteps::SharedSteps() : built_(kBuiltMax, kOperationsMax), steps_(kStepsMax, kOperationsMax) {}

Result<std::shared_ptr<const SharedStep>> SharedSteps::of(const Scenario& scenario) {
  const auto make = [&]() -> Result<std::shared_ptr<const SharedStep>> {
    auto step = std::make_shared<SharedStep>();
    if (scenario.traced) {
      step->graph = std::make_shared<const model::Graph>(scenario.traced->trace.graph);
    } else {
      HEADROOM_ASSIGN(auto built, built_.of(what_decides_building(scenario.question),
                                            [&] { return built_graph_of(scenario); }));
      HEADROOM_ASSIGN(step->graph, graph_of(scenario, std::move(built)));
    }
    step->passes = step::fold_passes(*step->graph, scenario.train);
    return std::shared_ptr<const SharedStep>(std::move(step));
  };
  // What is traced depends on which settings were given.
  if (scenario.traced) return make();
  return steps_.of(what_decides(scenario.question), make);
}

}  // namespace headroom::fit
