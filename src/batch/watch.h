// Watching a server: which batch limit its present traffic calls for, and when that has changed.
//
// Longer contexts make a step grow faster with what is in flight. So the law that watching starts
// from, t0(n), is corrected by one number that each slice of traffic tells: what a sequence costs
// more than it did, c = (ITL - t0(n)) / n. A batch B meets target and efficiency as long as c is
// below its allowance(B), which follows from the rule by arithmetic, and B_opt is the largest
// candidate that does (the advisor's rule).
//
// A change is said where all of these hold:
//  1. Evidence. A CUSUM of c against the allowance at which the limit in force ceases to be the
//     right one (kDeadBand beyond it), in long-run standard deviations that the traffic itself
//     showed, each slice counting kClip of them at most, has passed kThreshold.
//  2. The traffic is another one: c is kOtherTraffic standard deviations of half-minute means from
//     what it was. (What is in flight wanders by itself: one long answer stays for minutes.) Or
//     nothing changed, and twenty minutes together say that the limit is wrong.
//  3. The limit is outside the interval of B_opt, the law's own errors counted.
//  4. It has settled, or has not for 45 s: requests of the time before leave one by one.
// How often noise alone raises an alarm, and how soon a change does: docs/algorithms/watch.md.
//
// Pure but for what it is given; its time is that of the slices. Not thread-safe. Some ten
// microseconds a slice.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "batch/advisor.h"
#include "batch/target.h"
#include "batch/watch_base.h"
#include "batch/watch_slice.h"

namespace headroom::batch {

struct WatchOptions {
  std::optional<ItlTarget> slo = std::nullopt;
  double min_efficiency = 0.1;
  std::optional<int64_t> most_batch = std::nullopt;  // else what the base speaks of
  // The limit that the server runs with. Without it the first B_opt that is known counts as that.
  std::optional<int64_t> limit = std::nullopt;
};

// What a server gives with so many in flight, under the present traffic.
struct WatchFigures {
  Interval throughput_tokens_per_second;  // of all engines
  Interval itl_seconds;
  std::optional<double> kv_share;  // that it would fill; above 1 it does not fit
};

enum class WatchEvent : uint8_t { none, first, change };
[[nodiscard]] std::string_view name_of(WatchEvent event);

struct WatchReport {
  double seconds = 0;  // of traffic since watching began
  // Of the last minute, or since the last change.
  double in_flight = 0;
  double itl_seconds = 0;
  double throughput_tokens_per_second = 0;
  std::optional<double> waiting;
  std::optional<double> kv_share;
  std::optional<double> preemptions;
  std::optional<double> prompt_tokens_mean;
  std::optional<double> output_tokens_mean;
  int64_t engines = 1;

  bool is_known = false;  // that there is a law; what follows is empty without one
  Provenance provenance = Provenance::measured;
  std::string source;
  double noise = 0;           // relative, of half-minute means of the time between tokens
  double excess_seconds = 0;  // c, of a sequence in a step
  std::optional<double> itl_target_seconds;
  Advice advice;
  std::optional<WatchFigures> at_opt;

  std::optional<int64_t> limit;        // in force before this report
  std::optional<int64_t> limit_after;  // that counts as being so from now on; 0: no batch would do
  std::optional<WatchFigures> at_limit;
  WatchEvent event = WatchEvent::none;
  // How far the evidence for a smaller and for a larger limit has come: 1 is an alarm.
  double evidence_down = 0;
  double evidence_up = 0;
};

class Watcher {
 public:
  static constexpr double kDrift = 0.5;       // of the CUSUMs, in standard deviations a slice
  static constexpr double kThreshold = 10;    // about e^(kThreshold + 1) slices of noise alone
  static constexpr double kClip = 3;          // that one slice counts at most
  static constexpr double kDeadBand = 0.05;   // of the batch
  static constexpr double kOtherTraffic = 5;  // standard deviations of half-minute means
  static constexpr double kOtherForLong = 4;  // where it has been so for kLasting slices
  static constexpr size_t kLasting = 36;
  static constexpr size_t kFirst = 6;    // slices before anything is said
  static constexpr size_t kOfMean = 6;   // slices of one of those means
  static constexpr size_t kWindow = 12;  // slices that the present consists of
  static constexpr size_t kLong = 240;   // slices that together outweigh what wanders

  // Without a base it is learned from the traffic (LineLearner).
  Watcher(const WatchOptions& options, std::optional<StepBase> base);
  WatchReport observe(const TrafficSlice& slice);
  // The server was started again: what was in flight is gone, what is known of its steps is kept.
  void forget();
  [[nodiscard]] const std::optional<StepBase>& base() const { return base_; }
  [[nodiscard]] double spread_seen() const { return learner_.spread(); }

 private:
  struct Seen {
    TrafficSlice slice;
    double law_seconds = 0;  // t0 at what was in flight
    [[nodiscard]] double excess() const {
      return (slice.itl_seconds - law_seconds) / slice.in_flight;
    }
  };
  // How the law may be off: its base by seconds, its time at the candidate by a share.
  struct Off {
    double base_seconds = 0;
    double bend = 0;
  };
  // The present: where on the law it is.
  struct Present {
    double in_flight = 1;
    double itl_seconds = 0;
    double excess = 0;
    std::optional<double> kv_of_one = std::nullopt;  // share of the cache that a sequence holds
    // Whether the cache holds so many of these.
    [[nodiscard]] bool holds(double batch) const { return !kv_of_one || *kv_of_one * batch <= 1; }
  };
  enum class Way : uint8_t { down, up };

  WatchReport report_of(const TrafficSlice& slice);
  void take_base(StepBase base);
  [[nodiscard]] double allowance(double batch, const Off& off) const;
  [[nodiscard]] double bend_at(double batch, double in_flight) const;
  [[nodiscard]] std::pair<double, double> margin(double batch, const Present& present) const;
  [[nodiscard]] Advice advise(const Present& present) const;
  [[nodiscard]] Bound bound_beyond(double batch, const Present& present) const;
  [[nodiscard]] Interval itl_at(double batch, const Present& present) const;
  [[nodiscard]] WatchFigures figures_at(int64_t batch, const Present& present,
                                        const WatchReport& report) const;
  [[nodiscard]] Present present_of(size_t slices) const;
  void describe_present(WatchReport& report) const;
  [[nodiscard]] std::optional<double> target_of(const Present& present) const;
  void learn_noise();
  [[nodiscard]] std::optional<double> edge(Way way) const;
  void gather(const Seen& seen);
  [[nodiscard]] bool is_sure(Way way, const Present& present) const;
  [[nodiscard]] bool is_other_traffic(size_t since) const;
  [[nodiscard]] bool is_settled(size_t since) const;
  [[nodiscard]] bool is_wrong_for_long(Way way) const;
  void decide(Way way, WatchReport& report);
  void begin(const Present& present, WatchReport& report);
  void change_to(const Present& present, size_t slices, WatchReport& report);
  void restart_at(std::optional<int64_t> limit, size_t kept);

  WatchOptions options_;
  std::optional<StepBase> base_;
  bool is_learning_ = false;
  LineLearner learner_;
  std::vector<int64_t> candidates_;
  std::deque<Seen> history_;  // of this regime, the newest last
  double seconds_ = 0;
  double level_noise_ = 0;  // relative deviation of half-minute means
  double slice_noise_ = 0;  // long-run, of a slice
  double least_noise_ = 0;  // that is assumed before there is enough to learn from
  bool is_begun_ = false;
  std::optional<int64_t> limit_;  // 0: no batch meets the target
  double sum_down_ = 0, sum_up_ = 0;
  size_t since_down_ = 0, since_up_ = 0;  // slices since the sum was 0
};

}  // namespace headroom::batch
