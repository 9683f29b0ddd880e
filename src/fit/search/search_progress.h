// How far a search is, for whoever shows it to a person who waits.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

namespace headroom::fit {

struct SearchState {
  // Of a part of the search: ways to divide a layer, settings, devices. The next part begins anew.
  int64_t done = 0;
  int64_t of = 0;
  // Settings so far, in all parts.
  int64_t predicted = 0;    // step by step
  int64_t passed_over = 0;  // cannot be asked, or not worth it by what was counted
  int64_t beaten = 0;       // of those, what cannot be faster than one that fits
};

// Called from one thread at a time.
using SearchProgress = std::function<void(const SearchState&)>;

// The state of a search whose settings are predicted on several threads, any of which may count;
// told at each change.
class SearchCount {
 public:
  // Nobody is told where `progress` is empty. It must outlive the count.
  explicit SearchCount(const SearchProgress& progress) : progress_(progress) {}

  void begin_part(int64_t of);
  // One more setting, which is done or a share of what the part counts.
  void add_setting(bool is_predicted);
  void add_done();
  void add_done(bool is_predicted);
  // So many settings that need not be predicted.
  void add_beaten(int64_t settings);
  // What a search within this one says: its settings come to those there were before it.
  void take(const SearchState& within, const SearchState& before);
  [[nodiscard]] SearchState state() const;

 private:
  // REQUIRES: the lock is held.
  void count(bool is_predicted) { ++(is_predicted ? state_.predicted : state_.passed_over); }
  void tell() const {
    if (progress_) progress_(state_);
  }

  const SearchProgress& progress_;
  mutable std::mutex mutex_;
  SearchState state_;
};

}  // namespace headroom::fit
