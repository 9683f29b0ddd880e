#include "ops/bound.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace headroom::ops {
namespace {

double share_of(const Accounting& accounting, std::string_view name) {
  for (const GroupShare& group : accounting.groups) {
    if (group.name == name) return group.pct;
  }
  return 0;
}

// The largest of what wall time divides into; two that are nearly as large are a mixture.
constexpr double kClearShare = 40;  // percent of the time

// The part of the time that a change saves, as the replay has it.
double saved_by(const OpsAnswer& answer, std::string_view name) {
  for (const HorizonChange& change : answer.horizon) {
    if (change.change == name && change.speedup > 0) return 1 - 1 / change.speedup;
  }
  return 0;
}

// Of a host twice as fast. On a CPU what is outside of operators stays as it is in the replay:
// there it is half of that, as each change there is a sum.
double saved_by_host(const OpsAnswer& answer, const WallShares& wall) {
  return answer.trace.has_device ? saved_by(answer, "host_2x") : wall.idle / 100 / 2;
}

}  // namespace

WallShares wall_shares(const Accounting& wall_time) {
  WallShares shares{.idle = share_of(wall_time, "idle"),
                    .communication = share_of(wall_time, "communication"),
                    .gemm = share_of(wall_time, "gemm") + share_of(wall_time, "attention"),
                    .unclassified = share_of(wall_time, "unclassified")};
  shares.non_gemm = 100 - shares.idle - shares.communication - shares.gemm - shares.unclassified;
  return shares;
}

bool lacks_many_kernels(const TraceFacts& facts) {
  constexpr int64_t kMost = 100;  // one in a hundred: some calls launch nothing
  return facts.lost_launches * kMost > facts.launches;
}

double unseen_pct(const OpsAnswer& answer) {
  const bool is_known = answer.replay && answer.replay->measured_ms > 0;
  return is_known ? 100 * answer.replay->unseen_ms / answer.replay->measured_ms : 0;
}

void find_bound(OpsAnswer& answer) {
  if (answer.wall_time.total_ms <= 0) return;
  const WallShares wall = wall_shares(answer.wall_time);
  // Idle for a reason that was not recorded is nobody's.
  const bool is_known = !answer.trace.has_device || answer.idle.unknown_ms < answer.idle.ms / 2;
  const std::pair<Bound, double> shares[] = {
      {is_known ? Bound::host : Bound::idle, wall.idle},
      {Bound::communication, wall.communication},
      {Bound::gemm_attention, wall.gemm},
      {Bound::unclassified, wall.unclassified},
      {Bound::non_gemm, wall.non_gemm},
  };
  const auto* most = std::max_element(std::begin(shares), std::end(shares),
                                      [](auto& a, auto& b) { return a.second < b.second; });
  answer.bound = most->first;
  answer.bound_pct = most->second;
  if (most->second < kClearShare) answer.bound = Bound::mixed;
}

void find_bound_by_replay(OpsAnswer& answer) {
  constexpr double kTrustedErrorPct = 5;
  if (!answer.replay || std::abs(answer.replay->error_pct) > kTrustedErrorPct) return;
  if (answer.bound == Bound::unclassified) return;  // no change is about that
  if (const double unseen = unseen_pct(answer); unseen > kClearShare) {
    answer.bound = Bound::unseen;
    answer.bound_pct = unseen;
    return;
  }
  const WallShares wall = wall_shares(answer.wall_time);
  struct Candidate {
    Bound bound;
    double saved;
    double pct;
  };
  const Candidate candidates[] = {
      {Bound::host, saved_by_host(answer, wall), wall.idle},
      // Hiding takes it away, the others become half: half of it is compared.
      {Bound::communication, saved_by(answer, "communication_hidden") / 2, wall.communication},
      {Bound::gemm_attention, saved_by(answer, "gemm_2x") + saved_by(answer, "attention_2x"),
       wall.gemm},
      {Bound::non_gemm, saved_by(answer, "non_gemm_2x"), wall.non_gemm},
  };
  const Candidate* most =
      std::max_element(std::begin(candidates), std::end(candidates),
                       [](const Candidate& a, const Candidate& b) { return a.saved < b.saved; });
  constexpr double kWorthSaving = 0.01;  // of the time; else the time alone says what bounds it
  if (most->saved < kWorthSaving) return;
  constexpr double kClearlyMore = 1.25;
  const bool is_clear =
      std::all_of(std::begin(candidates), std::end(candidates), [&](const Candidate& other) {
        return other.bound == most->bound || most->saved > kClearlyMore * other.saved;
      });
  answer.bound = is_clear ? most->bound : Bound::mixed;
  answer.bound_pct = most->pct;
}

}  // namespace headroom::ops
