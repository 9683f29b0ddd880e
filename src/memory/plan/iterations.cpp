// Problem: cut a sequence of requests into stretches that repeat each other, where requests may be
// missing, added or of another size in any of them.
//
//  1. Candidates (iteration_candidates.h): places that come again at regular distances.
//  2. Each candidate is judged by what its stretches leave unexplained: requests that are not found
//     again in the stretches before and after. A layer's repetition leaves what lies between the
//     last layer and the first one; only the whole iteration explains that too. A longer period is
//     taken over a shorter one only where it explains more, and the same again and again, and where
//     less is held between its stretches.
//  3. What repeats must give back what it takes: the layers of a forward pass that keep their
//     activations are no iterations.
//  4. The boundary is moved to where the least is allocated, which is where one iteration leaves
//     nothing to the next; so are marks, which say how often, not where.
//  5. What stands between iterations is cut off, and every stretch is given the kind of those that
//     it equals.
//
// Cost: candidates times the length of the sequence, each step O(1) expected.
#include "memory/plan/iterations.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "memory/plan/iteration_candidates.h"
#include "memory/plan/request_sequence.h"

namespace headroom::memory {
namespace {

// A candidate that leaves more than this unexplained is no repetition.
constexpr double kMostUnexplained = 0.4;
// Blocks that a stretch may leave behind, as a share of its requests: optimizer states of a first
// step are 5 to 10 %, the activations that a layer keeps for backward more than 20 %.
constexpr double kMostKept = 0.15;
// A longer period must explain what a shorter one does not: with so many stretches,
constexpr size_t kManyStretches = 10;
// in so many places of its cycle each time,
constexpr int64_t kLeastPlacesGained = 2;
// and with fewer, so that no more than this share of the unexplained is left, a difference of so
// many standard deviations of a count.
constexpr double kMuchLess = 0.65;
constexpr double kChance = 2;
// A stretch at either end of the recording is a whole iteration where it has so much of one (the
// first has optimizer states, too), up to so little of its other end.
constexpr double kWholeShare = 0.8;
constexpr double kMissingAtEnd = 0.02;
// Two iterations with so many equal requests are of one kind.
constexpr double kSameKindShare = 0.7;
// Kinds that an iteration is compared with; the newest ones, when there are more.
constexpr size_t kMostKinds = 16;

// A stretch that is longer than the others by this share of them may hold something inserted.
constexpr double kInsertedShare = 0.05;

using Places = std::vector<size_t>;
constexpr size_t kStays = std::numeric_limits<size_t>::max();

class Finder {
 public:
  explicit Finder(std::span<const RecordedRequest> begun)
      : begun_(begun), sequence_(make_sequence(begun)) {
    measure_load();
  }

  // The best candidate's places, or nothing.
  [[nodiscard]] Places from_sequence() const {
    std::vector<BoundaryCandidate> candidates = boundary_candidates(sequence_);
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const auto& a, const auto& b) { return a.period < b.period; });
    std::optional<Judged> best;
    for (BoundaryCandidate& candidate : candidates) {
      if (!gives_back(candidate)) continue;
      Judged judged = judge(std::move(candidate));
      if (judged.unexplained > most_unexplained()) continue;
      if (!best || explains_more(judged, *best)) best = std::move(judged);
    }
    if (!best) return {};
    return at_least_load(best->candidate, passing_load(best->candidate.period));
  }

  // A mark stands where its author found it convenient, with gradients alive behind an optimizer's
  // step, say: the same cycle, cut where the least is allocated.
  [[nodiscard]] Places from_marks(Places marks) const {
    if (marks.size() < 3) return marks;
    const size_t period = median_stretch(marks).size();
    return at_least_load({std::move(marks), period}, passing_load(period));
  }

  // Boundaries to iterations: whole stretches at the ends are added, kinds are found.
  [[nodiscard]] Iterations cut(Places boundaries, BoundarySource source) const {
    Iterations result;
    if (boundaries.size() < 2) return result;
    add_ends(boundaries);
    if (boundaries.size() < 3) return {};  // one, that nothing can be compared with
    if (source == BoundarySource::sequence) cut_insertions(boundaries);
    result.source = source;
    for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
      const size_t end = boundaries[i + 1];
      Iteration iteration;
      iteration.begin = boundaries[i];
      iteration.end = end;
      iteration.lower = begun_[iteration.begin].lower;
      iteration.upper = end < begun_.size() ? begun_[end].lower : end_of_time();
      result.whole.push_back(iteration);
    }
    find_kinds(result);
    return result;
  }

 private:
  // In how many requests from now each ends, and how many blocks there are just before it.
  void measure_load() {
    std::vector<int64_t> ends;
    ends.reserve(begun_.size());
    for (const RecordedRequest& request : begun_) ends.push_back(request.upper);
    std::sort(ends.begin(), ends.end());
    size_t ended = 0;
    for (size_t i = 0; i < begun_.size(); ++i) {
      while (ended < ends.size() && ends[ended] <= begun_[i].lower) ++ended;
      blocks_before_.push_back(static_cast<int64_t>(i) - static_cast<int64_t>(ended));
      life_.push_back(begun_[i].upper == ends.back() ? kStays : end_of(i) - i);
    }
  }

  // The first request that begins after another's end.
  [[nodiscard]] size_t end_of(size_t i) const {
    const auto next = std::lower_bound(
        begun_.begin(), begun_.end(), begun_[i].upper,
        [](const RecordedRequest& request, int64_t time) { return request.lower < time; });
    return static_cast<size_t>(next - begun_.begin());
  }

  // Whether two requests may be the same one of two iterations. A gradient that the first
  // micro-batch makes and the others add to is not the same in each of them.
  [[nodiscard]] bool live_alike(size_t a, size_t b) const {
    if (life_[a] == kStays || life_[b] == kStays) return true;  // nobody saw the end
    const auto [shorter, longer] = std::minmax(life_[a], life_[b]);
    return longer <= 4 * shorter + 16;
  }

  // Bytes allocated just before each request, or blocks, that live for about an iteration at most
  // and do not stay.
  enum class Measure : uint8_t { bytes, blocks };
  [[nodiscard]] std::vector<double> passing_load(size_t period,
                                                 Measure measure = Measure::bytes) const {
    std::vector<double> change(begun_.size() + 1);
    for (size_t i = 0; i < begun_.size(); ++i) {
      const size_t end = end_of(i);
      if (end == begun_.size() || end - i > period + period / 2) continue;
      const double amount = measure == Measure::bytes ? static_cast<double>(begun_[i].size) : 1;
      change[i + 1] += amount;
      if (end > i) change[end] -= amount;
    }
    // `change` now says what is there before request i more than before i - 1.
    for (size_t i = 1; i < change.size(); ++i) change[i] += change[i - 1];
    return change;
  }

  [[nodiscard]] int64_t end_of_time() const {
    int64_t last = 0;
    for (const RecordedRequest& request : begun_) last = std::max(last, request.upper);
    return last;
  }

  // Measured at four places of the cycle, the best one of them: at the end of the first step, say,
  // its gradients stand beside the new optimizer states.
  [[nodiscard]] bool gives_back(const BoundaryCandidate& candidate) const {
    for (size_t quarter = 0; quarter < 4; ++quarter) {
      if (kept_share(candidate.places, quarter * candidate.period / 4) <= kMostKept) return true;
    }
    return false;
  }
  [[nodiscard]] double kept_share(const Places& places, size_t shift) const {
    std::vector<double> kept;
    for (size_t i = 1; i < places.size() && places[i] + shift < begun_.size(); ++i) {
      const int64_t more =
          blocks_before_[places[i] + shift] - blocks_before_[places[i - 1] + shift];
      kept.push_back(std::abs(static_cast<double>(more)) /
                     static_cast<double>(places[i] - places[i - 1]));
    }
    if (kept.empty()) return 1;
    const auto middle = kept.begin() + static_cast<std::ptrdiff_t>(kept.size() / 2);
    std::nth_element(kept.begin(), middle, kept.end());
    return *middle;
  }

  struct Judged {
    BoundaryCandidate candidate;
    std::vector<bool> is_explained;  // by request: it is found in the stretch before or after
    size_t unexplained = 0;
  };

  [[nodiscard]] size_t most_unexplained() const {
    return static_cast<size_t>(kMostUnexplained * static_cast<double>(begun_.size()));
  }

  [[nodiscard]] Judged judge(BoundaryCandidate candidate) const {
    Judged judged{std::move(candidate), std::vector<bool>(begun_.size(), false), 0};
    const auto explain = [&](const std::vector<Match>& matches) {
      for (const Match& match : matches) {
        if (match.kind == Match::Kind::replaced) continue;
        if (!live_alike(match.first, match.second)) continue;
        judged.is_explained[match.first] = true;
        judged.is_explained[match.second] = true;
      }
    };
    const Places& places = judged.candidate.places;
    explain(align(sequence_, {0, places.front()}, {places[0], places[1]}, true));
    const size_t most = most_unexplained();
    size_t settled = 0;
    size_t missing = 0;  // of the requests before `settled`
    for (size_t i = 2; i < places.size() && missing <= most; ++i) {
      explain(align_alike({places[i - 2], places[i - 1]}, {places[i - 1], places[i]}));
      for (; settled < places[i - 2]; ++settled) missing += judged.is_explained[settled] ? 0 : 1;
    }
    explain(align(sequence_, {places[places.size() - 2], places.back()},
                  {places.back(), begun_.size()}));
    // Where it was given up half-way, the rest counts as unexplained.
    judged.unexplained = static_cast<size_t>(
        std::count(judged.is_explained.begin(), judged.is_explained.end(), false));
    return judged;
  }

  // What lies between the last layer and the first one is explained by the iteration alone, and so
  // in each of them. What happens by chance, or once (the making of optimizer states), must not
  // count: requests that are alike by chance explain each other, too.
  [[nodiscard]] bool explains_more(const Judged& longer, const Judged& shorter) const {
    if (longer.candidate.period < shorter.candidate.period + shorter.candidate.period / 4) {
      return longer.unexplained < shorter.unexplained;  // the same repetition, cut elsewhere
    }
    const bool gains = longer.candidate.places.size() >= kManyStretches
                           ? gains_always(longer, shorter)
                           : gains_much(longer, shorter);
    return gains && holds_less(longer.candidate, shorter.candidate);
  }

  // With many stretches: whether there are places in the cycle that are gained in nearly all.
  [[nodiscard]] bool gains_always(const Judged& longer, const Judged& shorter) const {
    const Places& places = longer.candidate.places;
    std::vector<size_t> gains(pattern_of(places).size());
    for_each_recurrence(places, [&](size_t place, size_t request) {
      if (longer.is_explained[request] && !shorter.is_explained[request]) ++gains[place];
    });
    const size_t nearly_all = places.size() - places.size() / 10;
    const auto always = [&](size_t times) { return times + 1 >= nearly_all; };
    return std::count_if(gains.begin(), gains.end(), always) >= kLeastPlacesGained;
  }

  // With few: whether much less is left unexplained, in most of the stretches, and more than
  // chance would do.
  [[nodiscard]] bool gains_much(const Judged& longer, const Judged& shorter) const {
    if (static_cast<double>(longer.unexplained) >
        kMuchLess * static_cast<double>(shorter.unexplained)) {
      return false;
    }
    const Places& places = longer.candidate.places;
    std::vector<int64_t> gains(places.size() + 1);
    double gained = 0;
    double lost = 0;
    size_t stretch = 0;
    for (size_t i = 0; i < begun_.size(); ++i) {
      while (stretch < places.size() && places[stretch] <= i) ++stretch;
      if (longer.is_explained[i] == shorter.is_explained[i]) continue;
      (longer.is_explained[i] ? gained : lost) += 1;
      gains[stretch] += longer.is_explained[i] ? 1 : -1;
    }
    const auto middle = gains.begin() + static_cast<std::ptrdiff_t>(gains.size() / 2);
    std::nth_element(gains.begin(), middle, gains.end());
    return *middle > 0 && gained - lost > kChance * std::sqrt(gained + lost);
  }

  // The stretch in the middle, and what of it is found in every stretch, itself included:
  // use(place in the pattern, request).
  static Stretch pattern_of(const Places& places) {
    const size_t middle = (places.size() - 1) / 2;
    return {places[middle], places[middle + 1]};
  }
  template <typename Use>
  void for_each_recurrence(const Places& places, const Use& use) const {
    const Stretch pattern = pattern_of(places);
    const auto look = [&](const std::vector<Match>& matches) {
      for (const Match& match : matches) use(match.first - pattern.begin, match.second);
    };
    look(align(sequence_, pattern, {0, places.front()}, true));
    for (size_t i = 0; i + 1 < places.size(); ++i)
      look(align_alike(pattern, {places[i], places[i + 1]}));
    look(align(sequence_, pattern, {places.back(), begun_.size()}, false));
  }

  // Two stretches, of which one may hold more: an evaluation looks like the forward pass that comes
  // behind it, so what is met first need not be what is meant; from the end, the other one is.
  // Lifetimes tell which is right.
  [[nodiscard]] std::vector<Match> align_alike(Stretch first, Stretch second) const {
    std::vector<Match> forwards = align(sequence_, first, second, false);
    const auto [shorter, longer] = std::minmax({first.size(), second.size()});
    if (!holds_more(longer, shorter)) return forwards;
    std::vector<Match> backwards = align(sequence_, first, second, true);
    return count_alike(backwards) > count_alike(forwards) ? backwards : forwards;
  }
  static bool holds_more(size_t longer, size_t shorter) {
    return static_cast<double>(longer) > (1 + kInsertedShare) * static_cast<double>(shorter);
  }
  [[nodiscard]] size_t count_alike(const std::vector<Match>& matches) const {
    return static_cast<size_t>(
        std::count_if(matches.begin(), matches.end(), [&](const Match& match) {
          return match.kind != Match::Kind::replaced && live_alike(match.first, match.second);
        }));
  }

  // Whether fewer blocks are held between the longer stretches than between the shorter ones: what
  // a step keeps from one micro-batch or layer to the next. Where the shorter ones give back all
  // that they take, what the longer ones explain beyond them is something that stands between some
  // of them.
  [[nodiscard]] bool holds_less(const BoundaryCandidate& longer,
                                const BoundaryCandidate& shorter) const {
    const std::vector<double> load = passing_load(longer.period, Measure::blocks);
    return held_between(longer, load) < held_between(shorter, load);
  }
  [[nodiscard]] static double held_between_places(const Places& places, size_t period,
                                                  const std::vector<double>& load) {
    const auto reach = static_cast<size_t>(kMissingAtEnd * static_cast<double>(period));
    std::vector<double> held;
    held.reserve(places.size());
    for (const size_t place : places) held.push_back(load[least_around(load, place, reach)]);
    const auto middle = held.begin() + static_cast<std::ptrdiff_t>(held.size() / 2);
    std::nth_element(held.begin(), middle, held.end());
    return *middle;
  }
  [[nodiscard]] double held_between(const BoundaryCandidate& candidate,
                                    const std::vector<double>& load) const {
    return held_between_places(at_least_load(candidate, load), candidate.period, load);
  }

  // The same places in the cycle, moved to where the least is allocated.
  [[nodiscard]] Places at_least_load(const BoundaryCandidate& candidate,
                                     const std::vector<double>& load) const {
    const Places& places = candidate.places;
    std::vector<Places> found(pattern_of(places).size());
    for_each_recurrence(places,
                        [&](size_t place, size_t request) { found[place].push_back(request); });
    size_t most = 0;
    for (const Places& at : found) most = std::max(most, at.size());
    size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (size_t r = 0; r < found.size(); ++r) {
      // In every stretch but, perhaps, the incomplete ones at the ends.
      if (found[r].size() + 2 < most || found[r].size() + 1 < places.size()) continue;
      double highest = 0;
      for (const size_t place : found[r]) highest = std::max(highest, load[place]);
      if (highest < least) {
        least = highest;
        best = r;
      }
    }
    return std::isinf(least) ? places : found[best];
  }

  // What lies before the first boundary and after the last may be whole, too.
  void add_ends(Places& boundaries) const {
    const Stretch first{boundaries[0], boundaries[1]};
    const Stretch last{boundaries[boundaries.size() - 2], boundaries.back()};
    const auto before = align(sequence_, first, {0, boundaries.front()}, true);
    if (is_whole(before, first)) {
      // Its first requests may look different where nothing comes before them.
      const size_t missing = before.front().first - first.begin;
      const size_t begin = before.front().second;
      boundaries.insert(boundaries.begin(), begin - std::min(begin, missing));
    }
    const auto after = align(sequence_, last, {boundaries.back(), begun_.size()}, false);
    if (is_whole(after, last)) boundaries.push_back(begun_.size());
  }
  static bool is_whole(const std::vector<Match>& found, Stretch pattern) {
    const auto size = static_cast<double>(pattern.size());
    if (static_cast<double>(found.size()) < kWholeShare * size) return false;
    const size_t missing =
        std::max(found.front().first - pattern.begin, pattern.end - 1 - found.back().first);
    return static_cast<double>(missing) <= kMissingAtEnd * size;
  }

  // What stands between iterations becomes a stretch of its own: an evaluation after some of the
  // steps, or a step that a missed boundary joined to its neighbour.
  void cut_insertions(Places& boundaries) const {
    const Stretch pattern = median_stretch(boundaries);
    Places cuts;
    for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
      cut_stretch(pattern, {boundaries[i], boundaries[i + 1]}, cuts);
    }
    if (cuts.empty()) return;
    // Requests next to what is inserted may find no partner: the cut is where least is allocated.
    const std::vector<double> load = passing_load(pattern.size());
    const auto reach = static_cast<size_t>(kMissingAtEnd * static_cast<double>(pattern.size()));
    for (size_t& cut : cuts) cut = least_around(load, cut, reach);
    boundaries.insert(boundaries.end(), cuts.begin(), cuts.end());
    std::sort(boundaries.begin(), boundaries.end());
    boundaries.erase(std::unique(boundaries.begin(), boundaries.end()), boundaries.end());
  }
  // The nearest place with the least load, at most `reach` away.
  static size_t least_around(const std::vector<double>& load, size_t place, size_t reach) {
    size_t best = place;
    for (size_t away = 1; away <= reach; ++away) {
      if (place >= away && load[place - away] < load[best]) best = place - away;
      if (place + away < load.size() && load[place + away] < load[best]) best = place + away;
    }
    return best;
  }
  static Stretch median_stretch(const Places& boundaries) {
    std::vector<Stretch> stretches;
    for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
      stretches.push_back({boundaries[i], boundaries[i + 1]});
    }
    const auto middle = stretches.begin() + static_cast<std::ptrdiff_t>(stretches.size() / 2);
    std::nth_element(stretches.begin(), middle, stretches.end(), [](Stretch a, Stretch b) {
      return std::pair(a.size(), a.begin) < std::pair(b.size(), b.begin);
    });
    return *middle;
  }
  // Around the pattern, where it is found whole; and again in what is left.
  void cut_stretch(Stretch pattern, Stretch stretch, Places& cuts) const {
    while (holds_more(stretch.size(), pattern.size())) {
      const std::vector<Match> found = align_alike(pattern, stretch);
      if (!is_whole(found, pattern)) return;
      const size_t before = found.front().first - pattern.begin;
      const size_t after = pattern.end - 1 - found.back().first;
      const Stretch core{
          std::max(stretch.begin,
                   found.front().second - std::min<size_t>(found.front().second, before)),
          std::min(stretch.end, found.back().second + 1 + after)};
      const bool has_before = is_insertion({stretch.begin, core.begin}, pattern);
      const bool has_behind = is_insertion({core.end, stretch.end}, pattern);
      if (has_before) cuts.push_back(core.begin);
      if (has_behind) cuts.push_back(core.end);
      if (has_before == has_behind) return;
      stretch = has_before ? Stretch{stretch.begin, core.begin} : Stretch{core.end, stretch.end};
    }
  }
  static bool is_insertion(Stretch rest, Stretch pattern) {
    return static_cast<double>(rest.size()) > kInsertedShare * static_cast<double>(pattern.size());
  }

  [[nodiscard]] double share(const Iteration& a, const Iteration& b, bool is_exact) const {
    const auto [shorter, longer] = std::minmax({a.end - a.begin, b.end - b.begin});
    if (static_cast<double>(shorter) < kSameKindShare * static_cast<double>(longer)) return 0;
    size_t equal = 0;
    for (const Match& match : align(sequence_, {a.begin, a.end}, {b.begin, b.end})) {
      if (match.kind == Match::Kind::exact) ++equal;
      if (match.kind == Match::Kind::shape && !is_exact) ++equal;
    }
    return static_cast<double>(equal) / static_cast<double>(longer);
  }

  // First by equal sizes; what then stands alone, by the pattern of its requests.
  void find_kinds(Iterations& result) const {
    std::vector<size_t> alone;
    std::vector<size_t> first_of_kind;
    std::vector<size_t> members;
    for (size_t i = 0; i < result.whole.size(); ++i) {
      Iteration& iteration = result.whole[i];
      const size_t oldest = first_of_kind.size() - std::min(first_of_kind.size(), kMostKinds);
      size_t kind = first_of_kind.size();
      for (size_t k = first_of_kind.size(); k-- > oldest;) {
        if (share(result.whole[first_of_kind[k]], iteration, true) < kSameKindShare) continue;
        kind = k;
        break;
      }
      if (kind == first_of_kind.size()) {
        first_of_kind.push_back(i);
        members.push_back(0);
      }
      ++members[kind];
      iteration.kind = static_cast<uint32_t>(kind);
    }
    for (size_t i = 0; i < result.whole.size(); ++i) {
      if (members[result.whole[i].kind] == 1) alone.push_back(i);
    }
    merge_lone(alone, result);
    renumber(result);
  }

  void merge_lone(const std::vector<size_t>& alone, Iterations& result) const {
    std::vector<size_t> heads;
    for (const size_t i : alone) {
      Iteration& iteration = result.whole[i];
      const auto like = std::find_if(heads.begin(), heads.end(), [&](size_t head) {
        return share(result.whole[head], iteration, false) >= kSameKindShare;
      });
      if (like != heads.end()) {
        iteration.kind = result.whole[*like].kind;
      } else if (heads.size() < kMostKinds) {
        heads.push_back(i);
      }
    }
  }

  // Kinds in the order of their first iterations, without gaps.
  static void renumber(Iterations& result) {
    constexpr uint32_t kUnseen = 0xffffffff;
    std::vector<uint32_t> numbers(result.whole.size(), kUnseen);
    for (Iteration& iteration : result.whole) {
      uint32_t& number = numbers[iteration.kind];
      if (number == kUnseen) number = result.kinds++;
      iteration.kind = number;
    }
  }

  std::span<const RecordedRequest> begun_;
  RequestSequence sequence_;
  std::vector<int64_t> blocks_before_;
  std::vector<size_t> life_;  // requests that begin until each ends, or kStays
};

}  // namespace

Iterations find_iterations(std::span<const RecordedRequest> requests,
                           std::span<const int64_t> marks) {
  const auto is_before = [](const RecordedRequest& request) { return request.lower == 0; };
  const size_t at_start = static_cast<size_t>(
      std::find_if_not(requests.begin(), requests.end(), is_before) - requests.begin());
  const std::span<const RecordedRequest> begun = requests.subspan(at_start);
  if (begun.size() < 2) return {};
  const Finder finder(begun);
  Places boundaries;
  for (const int64_t mark : marks) {
    const auto next = std::lower_bound(
        begun.begin(), begun.end(), mark,
        [](const RecordedRequest& request, int64_t time) { return request.lower < time; });
    const auto place = static_cast<size_t>(next - begun.begin());
    if (place < begun.size() && (boundaries.empty() || place > boundaries.back())) {
      boundaries.push_back(place);
    }
  }
  const bool has_marks = boundaries.size() >= 2;
  boundaries = has_marks ? finder.from_marks(std::move(boundaries)) : finder.from_sequence();
  Iterations result = finder.cut(std::move(boundaries),
                                 has_marks ? BoundarySource::marks : BoundarySource::sequence);
  for (Iteration& iteration : result.whole) {
    iteration.begin += at_start;
    iteration.end += at_start;
  }
  return result;
}

}  // namespace headroom::memory
