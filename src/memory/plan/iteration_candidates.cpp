#include "memory/plan/iteration_candidates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <utility>

namespace headroom::memory {
namespace {

// Runs of several lengths: short ones survive what is random, long ones tell layers apart.
struct RunKind {
  bool is_exact;
  size_t length;
};
constexpr RunKind kRunKinds[] = {{true, 4}, {true, 32}, {false, 8}, {false, 48}};

// Of the distances between occurrences, so many must be near their median, shorter by a third of it
// at most, or longer by two thirds, as something may stand between two iterations (an evaluation);
// and the occurrences must span at least half of the recording.
constexpr double kRegularShare = 0.8;
constexpr double kMostShorter = 1.0 / 3;
constexpr double kMostLonger = 2.0 / 3;
constexpr double kLeastSpan = 0.5;

struct Group {
  size_t votes = 0;
  double irregularity = 0;
  BoundaryCandidate candidate;
};

size_t median_gap(const std::vector<size_t>& places, std::vector<size_t>& gaps) {
  gaps.clear();
  for (size_t i = 1; i < places.size(); ++i) gaps.push_back(places[i] - places[i - 1]);
  const auto middle = gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2);
  std::nth_element(gaps.begin(), middle, gaps.end());
  return *middle;
}

// The mean deviation of distances from their median, as a share of it; nothing if irregular.
// Occurrences at less than half of it are left out: the first step makes its optimizer states in a
// loop that looks like all later steps.
std::optional<double> irregularity_of(std::vector<size_t>& places, size_t all,
                                      std::vector<size_t>& gaps, size_t& period) {
  period = median_gap(places, gaps);
  size_t kept = 1;
  for (size_t i = 1; i < places.size(); ++i) {
    if (2 * (places[i] - places[kept - 1]) >= period) places[kept++] = places[i];
  }
  if (kept < 2) return std::nullopt;
  places.resize(kept);
  period = median_gap(places, gaps);
  const double span = static_cast<double>(places.back() - places.front() + period);
  if (span < kLeastSpan * static_cast<double>(all)) return std::nullopt;
  size_t regular = 0;
  double deviation = 0;
  for (const size_t gap : gaps) {
    const double off = std::abs(static_cast<double>(gap) - static_cast<double>(period));
    deviation += off;
    const double most = gap > period ? kMostLonger : kMostShorter;
    if (off <= most * static_cast<double>(period)) ++regular;
  }
  if (static_cast<double>(regular) < kRegularShare * static_cast<double>(gaps.size())) {
    return std::nullopt;
  }
  return deviation / static_cast<double>(gaps.size()) / static_cast<double>(period);
}

// By number of occurrences and, in steps of 5 %, their distance.
using Groups = std::map<std::pair<size_t, int>, Group>;
constexpr double kStepsPerOctave = 14;

// Adds the regular runs of one kind.
void collect(std::span<const uint64_t> hashes, Groups& groups) {
  std::vector<std::pair<uint64_t, size_t>> runs;
  runs.reserve(hashes.size());
  for (size_t i = 0; i < hashes.size(); ++i) runs.emplace_back(hashes[i], i);
  std::sort(runs.begin(), runs.end());
  std::vector<size_t> places;
  std::vector<size_t> gaps;
  for (size_t i = 0; i < runs.size();) {
    places.clear();
    const uint64_t hash = runs[i].first;
    for (; i < runs.size() && runs[i].first == hash; ++i) places.push_back(runs[i].second);
    if (places.size() < 2) continue;
    size_t period = 0;
    const auto irregularity = irregularity_of(places, hashes.size(), gaps, period);
    if (!irregularity) continue;
    const double octaves = std::log2(static_cast<double>(period));
    Group& group = groups[{places.size(), static_cast<int>(kStepsPerOctave * octaves)}];
    if (group.votes++ == 0 || *irregularity < group.irregularity) {
      group.irregularity = *irregularity;
      group.candidate = {places, period};
    }
  }
}

}  // namespace

std::vector<BoundaryCandidate> boundary_candidates(const RequestSequence& sequence) {
  Groups groups;
  for (const RunKind& kind : kRunKinds) {
    collect(run_hashes(kind.is_exact ? sequence.exact : sequence.shape, kind.length), groups);
  }
  std::vector<Group> ranked;
  ranked.reserve(groups.size());
  for (auto& [key, group] : groups) ranked.push_back(std::move(group));
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Group& a, const Group& b) { return a.votes > b.votes; });
  if (ranked.size() > kMostCandidates) ranked.resize(kMostCandidates);
  std::vector<BoundaryCandidate> candidates;
  candidates.reserve(ranked.size());
  for (Group& group : ranked) candidates.push_back(std::move(group.candidate));
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.places.size() < b.places.size(); });
  return candidates;
}

}  // namespace headroom::memory
