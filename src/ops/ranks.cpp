#include "ops/ranks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/median.h"
#include "ops/accounts.h"

namespace headroom::ops {
namespace {

using formats::kNone;
using formats::TraceEvent;
using formats::TraceEventKind;

constexpr int64_t kSameEndNs = 1'000'000;  // on devices ends of one collective differ by no more

double ms_of(double ns) { return ns / 1e6; }

std::vector<RankCollective> collectives_of(const RecordedRun& run, const OperatorRules& rules) {
  std::vector<RankCollective> found;
  const auto add = [&](const TraceEvent& event) {
    std::string key(run.trace.name_of(event));
    if (event.detail != kNone) key += " " + std::string(run.trace.names.at(event.detail));
    found.push_back({std::move(key), event.start_ns, event.end_ns()});
  };
  if (run.links.has_device) {
    const GroupIndex communication = rules.group("communication");
    for (const Work& piece : run.work) {
      const TraceEvent& event = run.trace.events[piece.event];
      const bool is_kernel = event.kind == TraceEventKind::kernel;
      if (is_kernel && piece.group == communication && piece.step != kOutside) add(event);
    }
  } else {
    for (const TraceEvent& event : run.trace.events) {
      const bool is_inside =
          event.start_ns >= run.links.start_ns() && event.start_ns < run.links.end_ns();
      if (is_inside && names_collective(run.trace.name_of(event))) add(event);
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.end_ns < b.end_ns; });
  return found;
}

// One collective as some of the ranks saw it: durations by rank, negative where it is missing.
struct Instance {
  std::vector<int64_t> durations;
};

using Sequence = std::vector<const RankCollective*>;

// How far ends of one collective may be apart: on a CPU a thread may be late, but not by so much
// that it could be the next one.
int64_t end_tolerance(const Sequence& sequence) {
  constexpr int64_t kPartOfGap = 4;
  std::vector<int64_t> gaps;
  for (size_t i = 1; i < sequence.size(); ++i) {
    gaps.push_back(sequence[i]->end_ns - sequence[i - 1]->end_ns);
  }
  return gaps.empty() ? kSameEndNs : std::max(kSameEndNs, median(gaps) / kPartOfGap);
}

// By order, where the ends then differ by one offset; else nothing.
std::optional<std::vector<size_t>> match_in_order(const Sequence& reference,
                                                  const Sequence& other) {
  if (reference.size() != other.size()) return std::nullopt;
  std::vector<int64_t> offsets;
  for (size_t i = 0; i < reference.size(); ++i) {
    offsets.push_back(other[i]->end_ns - reference[i]->end_ns);
  }
  if (offsets.empty()) return std::nullopt;
  const int64_t offset = median(offsets);
  const int64_t tolerance = end_tolerance(reference);
  constexpr double kMost = 0.9;  // less, and one collective too many has shifted the rest
  size_t agree = 0;
  for (const int64_t one : offsets) agree += std::abs(one - offset) <= tolerance ? 1 : 0;
  if (static_cast<double>(agree) < kMost * static_cast<double>(offsets.size())) return std::nullopt;
  std::vector<size_t> places(other.size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = i;
  return places;
}

// By the nearest end on the same clock: for each of `other` its place in the reference, or none.
std::vector<size_t> match_by_end(const Sequence& reference, const Sequence& other) {
  std::vector<size_t> places;
  size_t next = 0;
  const int64_t tolerance = end_tolerance(reference);
  for (const RankCollective* one : other) {
    while (next < reference.size() && reference[next]->end_ns < one->end_ns - tolerance) ++next;
    const bool agrees =
        next < reference.size() && reference[next]->end_ns <= one->end_ns + tolerance;
    places.push_back(agrees ? next++ : SIZE_MAX);
  }
  return places;
}

// Collectives of one key on all ranks.
std::vector<Instance> match(const std::vector<Sequence>& sequences) {
  size_t reference = 0;
  for (size_t rank = 1; rank < sequences.size(); ++rank) {
    if (sequences[rank].size() > sequences[reference].size()) reference = rank;
  }
  std::vector<Instance> instances(sequences[reference].size());
  for (size_t i = 0; i < instances.size(); ++i) {
    const RankCollective& one = *sequences[reference][i];
    instances[i].durations.assign(sequences.size(), -1);
    instances[i].durations[reference] = one.end_ns - one.start_ns;
  }
  for (size_t rank = 0; rank < sequences.size(); ++rank) {
    if (rank == reference || sequences[rank].empty()) continue;
    const auto ordered = match_in_order(sequences[reference], sequences[rank]);
    const std::vector<size_t> places =
        ordered ? *ordered : match_by_end(sequences[reference], sequences[rank]);
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i] == SIZE_MAX) continue;
      const RankCollective& one = *sequences[rank][i];
      instances[places[i]].durations[rank] = one.end_ns - one.start_ns;
    }
  }
  std::erase_if(instances, [](const Instance& instance) {
    return std::count_if(instance.durations.begin(), instance.durations.end(),
                         [](int64_t duration) { return duration >= 0; }) < 2;
  });
  return instances;
}

// What the instances of one key add to each rank, and to the row of the key.
class Account {
 public:
  explicit Account(std::vector<RankSummary>& ranks) : ranks_(ranks) {}

  CollectiveTimes add(const std::string& key, const std::vector<Instance>& instances) {
    CollectiveTimes row;
    row.name = key;
    row.count = static_cast<int64_t>(instances.size());
    std::vector<double> caused(ranks_.size(), 0.0);
    std::set<size_t> seen;
    for (const Instance& instance : instances) add_instance(instance, row, caused, seen);
    row.rank_count = seen.size();
    if (row.rank_count > 0) {
      row.waiting_ms /= static_cast<double>(row.rank_count);
      row.transfer_ms /= static_cast<double>(row.rank_count);
    }
    const auto most = std::max_element(caused.begin(), caused.end());
    if (most != caused.end() && *most > 0) {
      row.straggler = ranks_[static_cast<size_t>(most - caused.begin())].times.rank;
    }
    return row;
  }
  [[nodiscard]] double matched_ns() const { return matched_ns_; }

 private:
  void add_instance(const Instance& instance, CollectiveTimes& row, std::vector<double>& caused,
                    std::set<size_t>& seen) {
    std::vector<size_t> last;  // ranks that came last: several, where they came together
    for (size_t rank = 0; rank < instance.durations.size(); ++rank) {
      const int64_t duration = instance.durations[rank];
      if (duration < 0) continue;
      if (!last.empty() && duration < instance.durations[last.front()]) last.clear();
      if (last.empty() || duration == instance.durations[last.front()]) last.push_back(rank);
    }
    const auto transfer = static_cast<double>(instance.durations[last.front()]);
    if (last.size() == 1) ++ranks_[last.front()].times.last_count;
    for (size_t rank = 0; rank < instance.durations.size(); ++rank) {
      if (instance.durations[rank] < 0) continue;
      RankTimes& times = ranks_[rank].times;
      const double share = 1 / static_cast<double>(times.steps);
      const double waiting = static_cast<double>(instance.durations[rank]) - transfer;
      seen.insert(rank);
      ++times.collectives;
      times.waiting_ms += ms_of(waiting) * share;
      times.transfer_ms += ms_of(transfer) * share;
      for (const size_t cause : last) {
        const double part = ms_of(waiting) * share / static_cast<double>(last.size());
        ranks_[cause].times.caused_ms += part;
        caused[cause] += part;
      }
      row.waiting_ms += ms_of(waiting) * share;
      row.transfer_ms += ms_of(transfer) * share;
      matched_ns_ += waiting + transfer;
    }
  }

  std::vector<RankSummary>& ranks_;
  double matched_ns_ = 0;
};

void name_straggler(RanksAnswer& answer) {
  double all = 0;
  size_t most = 0;
  for (size_t rank = 0; rank < answer.ranks.size(); ++rank) {
    all += answer.ranks[rank].caused_ms;
    if (answer.ranks[rank].caused_ms > answer.ranks[most].caused_ms) most = rank;
  }
  if (all <= 0) return;
  answer.straggler = most;
  answer.straggler_pct = 100 * answer.ranks[most].caused_ms / all;
}

void add_notes(const std::vector<RankSummary>& ranks, RanksAnswer& answer) {
  std::set<int64_t> numbers;
  int64_t world = -1;
  for (const RankSummary& rank : ranks) {
    if (!numbers.insert(rank.times.rank).second) {
      answer.notes.push_back("rank " + std::to_string(rank.times.rank) + " is there twice");
    }
    world = std::max(world, rank.world_size);
    if (rank.times.is_partial) {
      answer.notes.push_back("not all of " + rank.times.file +
                             " could be read: its figures a step are of what is there, and its "
                             "later collectives may be missing");
    }
  }
  if (world > static_cast<int64_t>(ranks.size())) {
    answer.notes.push_back(std::to_string(ranks.size()) + " of the run's " + std::to_string(world) +
                           " ranks are here: what waits for another one looks like transfer");
  }
}

}  // namespace

RankSummary summary_of(const RecordedRun& run, const OperatorRules& rules) {
  RankSummary summary;
  RankTimes& times = summary.times;
  const size_t communication = rules.group("communication");
  const WallTime wall = wall_time(run.trace, run.work, run.links, rules);
  times.file = run.trace.file;
  times.device = run.device();
  times.rank = run.trace.rank;
  times.steps = run.links.steps.size();
  times.is_partial = run.trace.is_cut || run.trace.fault_count > 0;
  const double share = 1 / static_cast<double>(times.steps);
  times.step_ms = ms_of(wall.total_ns) * share;
  times.idle_ms = ms_of(wall.idle_ns) * share;
  times.exposed_ms = ms_of(wall.groups[communication]) * share;
  for (const Work& piece : run.work) {
    if (piece.step == kOutside || piece.group == communication) continue;
    times.kernel_ms += ms_of(static_cast<double>(piece.duration_ns())) * share;
  }
  summary.world_size = run.trace.world_size;
  summary.collectives = collectives_of(run, rules);
  for (const RankCollective& one : summary.collectives) {
    times.communication_ms += ms_of(static_cast<double>(one.end_ns - one.start_ns)) * share;
  }
  return summary;
}

bool are_ranks_of_one_run(const RecordedRun& one, const RecordedRun& other) {
  return one.trace.rank >= 0 && other.trace.rank >= 0 && one.trace.rank != other.trace.rank &&
         one.trace.world_size == other.trace.world_size;
}

Result<RanksAnswer> answer_ranks(std::vector<RankSummary> ranks) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].times.rank < 0) ranks[i].times.rank = static_cast<int64_t>(i);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [](const RankSummary& a, const RankSummary& b) {
    return a.times.rank < b.times.rank;
  });
  std::map<std::string, std::vector<Sequence>> by_key;
  double all_ns = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const RankCollective& one : ranks[rank].collectives) {
      std::vector<Sequence>& sequences = by_key[one.key];
      sequences.resize(ranks.size());
      sequences[rank].push_back(&one);
      all_ns += static_cast<double>(one.end_ns - one.start_ns);
    }
  }
  RanksAnswer answer;
  Account account(ranks);
  for (const auto& [key, sequences] : by_key) {
    const std::vector<Instance> instances = match(sequences);
    if (!instances.empty()) answer.collectives.push_back(account.add(key, instances));
  }
  if (answer.collectives.empty()) {
    return Error{
        ErrorCode::bad_input, "no collective could be matched between these traces", "",
        "are they ranks of one run, recorded over the same steps? To compare two runs give "
        "two traces without --ranks"};
  }
  std::stable_sort(answer.collectives.begin(), answer.collectives.end(),
                   [](const auto& a, const auto& b) { return a.waiting_ms > b.waiting_ms; });
  for (const RankSummary& rank : ranks) answer.ranks.push_back(rank.times);
  answer.matched_pct = all_ns > 0 ? 100 * account.matched_ns() / all_ns : 0;
  name_straggler(answer);
  add_notes(ranks, answer);
  return answer;
}

Result<RanksAnswer> answer_ranks(const std::vector<std::string>& files,
                                 const OperatorRules& rules) {
  std::vector<RankSummary> ranks;
  for (const std::string& file : files) {
    HEADROOM_ASSIGN(const RecordedRun run, read_run(file, rules));
    ranks.push_back(summary_of(run, rules));
  }
  return answer_ranks(std::move(ranks));
}

}  // namespace headroom::ops
