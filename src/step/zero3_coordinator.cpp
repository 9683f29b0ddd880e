#include "step/zero3_coordinator.h"

#include <algorithm>
#include <utility>

namespace headroom::step {

Zero3Coordinator::Zero3Coordinator(const Zero3Limits& limits,
                                   std::vector<std::vector<size_t>> modules,
                                   Zero3Parameters& parameters)
    : limits_(limits),
      modules_(std::move(modules)),
      parameters_(parameters),
      states_(parameters.size()),
      kept_again_(modules_.size()) {}

// reset_step
void Zero3Coordinator::begin_pass() {
  let_go_what_is_on_its_way();
  if (record_ != Record::made) {
    record_ = record_ == Record::none ? Record::being_made : Record::made;
  }
  to_come_.clear();
  if (record_ == Record::made) {
    for (size_t i = 0; i < order_.size(); ++i) {
      for (const size_t parameter : modules_[order_[i]]) {
        to_come_.push_back({parameter, static_cast<int64_t>(i)});
      }
    }
  }
  for (State& state : states_) state.seen_until = -1;
  step_ = 0;
  live_elements_ = 0;
}

void Zero3Coordinator::begin_forward(size_t module, bool is_recomputed) {
  begin(module, is_recomputed);
}

void Zero3Coordinator::end_forward(size_t module) { end(module, false); }

void Zero3Coordinator::begin_backward(size_t module) {
  if (std::ranges::find(in_backward_, module) == in_backward_.end()) {
    in_backward_.push_back(module);
  }
  begin(module, false);
}

void Zero3Coordinator::end_backward(size_t module) { end(module, true); }

// fetch_sub_module
void Zero3Coordinator::begin(size_t module, bool is_recomputed) {
  check_against_record(module);
  std::vector<size_t> lacking;
  for (const size_t parameter : modules_[module]) {
    if (states_[parameter].status == Status::away) lacking.push_back(parameter);
  }
  begin_gather(std::move(lacking));
  for (const size_t parameter : modules_[module]) {
    states_[parameter].users.insert(module);
    const bool is_frozen = !parameters_[parameter].leaf->requires_grad;
    if (is_recomputed && is_frozen && !in_backward_.empty()) {
      kept_again_[in_backward_.back()].insert(parameter);
      states_[parameter].users.insert(in_backward_.back());
    }
    await(parameter);
  }
  if (record_ == Record::made) look_ahead(module);
  ++step_;
}

// trace_prologue and _invalidate_trace; record_module
void Zero3Coordinator::check_against_record(size_t module) {
  if (record_ == Record::being_made) order_.push_back(module);
  if (record_ != Record::made) return;
  const auto at = static_cast<size_t>(step_);
  if (at < order_.size() && order_[at] == module) return;
  record_ = Record::none;
  order_.clear();
  to_come_.clear();
  for (State& state : states_) state.seen_until = -1;
  let_go_what_is_on_its_way();
}

void Zero3Coordinator::begin_gather(std::vector<size_t> parameters) {
  if (parameters.empty()) return;
  for (const size_t parameter : parameters) live_elements_ += parameters_.elements(parameter);
  const std::vector<size_t> begun = parameters;
  const auto gather = parameters_.begin_gather(std::move(parameters));
  for (const size_t parameter : begun) {
    states_[parameter].status = Status::on_its_way;
    states_[parameter].gather = gather;
  }
}

void Zero3Coordinator::await(size_t parameter) {
  State& state = states_[parameter];
  if (!state.gather) return;
  parameters_.await(*state.gather);
  state.status = Status::there;
  state.gather.reset();
}

void Zero3Coordinator::look_ahead(size_t module) {
  std::set<size_t> own;
  for (const size_t parameter : modules_[module]) {
    if (states_[parameter].seen_until < step_) own.insert(parameter);
  }
  const auto see = [&] {
    const Use use = to_come_.front();
    to_come_.pop_front();
    State& state = states_[use.parameter];
    state.seen_until = std::max(state.seen_until, use.step);
    return use.parameter;
  };
  for (std::set<size_t> seen; !to_come_.empty() && seen.size() < own.size();) seen.insert(see());
  const int64_t room =
      std::min(limits_.most_live_elements - live_elements_, limits_.prefetch_elements);
  std::set<size_t> next;
  for (int64_t elements = 0; !to_come_.empty() && elements < room;) {
    const size_t parameter = see();
    const bool is_away = states_[parameter].status == Status::away;
    if (is_away && next.insert(parameter).second) elements += parameters_.elements(parameter);
  }
  begin_gather({next.begin(), next.end()});
}

// release_sub_module
void Zero3Coordinator::end(size_t module, bool is_backward) {
  if (modules_[module].empty() && !is_backward) return;
  std::set<size_t> going;
  if (record_ == Record::made) {
    const auto [at, is_new] = decided_.try_emplace({module, step_});
    if (is_new) at->second = to_let_go(module);
    going = at->second;
  } else {
    going.insert(modules_[module].begin(), modules_[module].end());
  }
  std::set<size_t> used(modules_[module].begin(), modules_[module].end());
  if (is_backward) {
    for (const size_t parameter : std::exchange(kept_again_[module], {})) {
      used.insert(parameter);
      if (!parameters_[parameter].persists) going.insert(parameter);
    }
    std::erase(in_backward_, module);
  }
  for (const size_t parameter : used) {
    states_[parameter].users.erase(module);
    if (going.contains(parameter)) let_go(parameter);
  }
}

// __params_to_release
std::set<size_t> Zero3Coordinator::to_let_go(size_t module) const {
  std::set<size_t> going;
  for (const size_t parameter : modules_[module]) {
    const bool was_passed_over = states_[parameter].seen_until > step_;
    if (!parameters_[parameter].persists && !was_passed_over) going.insert(parameter);
  }
  int64_t traversed = 0;
  for (auto at = static_cast<size_t>(step_); at < order_.size(); ++at) {
    if (traversed >= limits_.reuse_elements || going.empty()) break;
    for (const size_t parameter : modules_[order_[at]]) {
      going.erase(parameter);
      traversed += parameters_.elements(parameter);
    }
  }
  return going;
}

void Zero3Coordinator::let_go(size_t parameter) {
  State& state = states_[parameter];
  if (state.status != Status::there || !state.users.empty()) return;
  parameters_.let_go(parameter);
  state.status = Status::away;
  live_elements_ -= parameters_.elements(parameter);
}

// _clean_inflight_param_registry
void Zero3Coordinator::let_go_what_is_on_its_way() {
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!states_[i].gather) continue;
    await(i);
    let_go(i);
  }
}

// release_backward_leftovers
void Zero3Coordinator::end_pass() {
  while (!in_backward_.empty()) {
    const size_t module = in_backward_.back();
    in_backward_.pop_back();
    std::set<size_t> used = std::exchange(kept_again_[module], {});
    used.insert(modules_[module].begin(), modules_[module].end());
    for (const size_t parameter : used) {
      states_[parameter].users.erase(module);
      if (!parameters_[parameter].persists) let_go(parameter);
    }
  }
}

// release_and_reset_all
void Zero3Coordinator::let_all_go() {
  for (size_t i = 0; i < states_.size(); ++i) {
    await(i);
    states_[i].users.clear();
    let_go(i);
  }
}

void Zero3Coordinator::gather_what_persists() {
  std::vector<size_t> persistent;
  for (size_t i = 0; i < states_.size(); ++i) {
    if (!parameters_[i].persists) continue;
    states_[i].status = Status::there;
    persistent.push_back(i);
  }
  parameters_.gather_apart(persistent);
}

}  // namespace headroom::step
