#include "fit/search/search_progress.h"

namespace headroom::fit {

void SearchCount::begin_part(int64_t of) {
  const std::lock_guard lock(mutex_);
  state_.done = 0;
  state_.of = of;
  tell();
}

void SearchCount::add_setting(bool is_predicted) {
  const std::lock_guard lock(mutex_);
  count(is_predicted);
  tell();
}

void SearchCount::add_done() {
  const std::lock_guard lock(mutex_);
  ++state_.done;
  tell();
}

void SearchCount::add_done(bool is_predicted) {
  const std::lock_guard lock(mutex_);
  count(is_predicted);
  ++state_.done;
  tell();
}

void SearchCount::add_beaten(int64_t settings) {
  const std::lock_guard lock(mutex_);
  state_.passed_over += settings;
  state_.beaten += settings;
  state_.done += settings;
  tell();
}

void SearchCount::take(const SearchState& within, const SearchState& before) {
  const std::lock_guard lock(mutex_);
  state_.predicted = before.predicted + within.predicted;
  state_.passed_over = before.passed_over + within.passed_over;
  state_.beaten = before.beaten + within.beaten;
  tell();
}

SearchState SearchCount::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

}  // namespace headroom::fit
