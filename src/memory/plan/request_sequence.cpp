#include "memory/plan/request_sequence.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace headroom::memory {
namespace {

// How far a shape symbol looks.
constexpr size_t kNear = 8;
constexpr size_t kMostFrees = 3;
// Below this many requests ahead, places are compared one by one; above, through a table.
constexpr size_t kSmallWindow = 6;
// What is left of a stretch is looked for at least this far in the other.
constexpr size_t kLeastSearch = 1024;
// A gap of so many requests on both sides is taken as requests replaced by others.
constexpr size_t kMostReplaced = 8;

// The finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA'14).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::vector<uint64_t> exact_symbols(std::span<const RecordedRequest> requests) {
  std::vector<uint64_t> symbols;
  symbols.reserve(requests.size());
  for (const RecordedRequest& request : requests) {
    symbols.push_back(
        mix(mix(static_cast<uint64_t>(request.size)) ^ static_cast<uint64_t>(request.stream)));
  }
  return symbols;
}

// How many requests later each ends, where that is near; 0 where it is not.
size_t nearby_life(std::span<const RecordedRequest> requests, size_t i) {
  for (size_t later = 1; later <= kNear && i + later < requests.size(); ++later) {
    if (requests[i + later].lower >= requests[i].upper) return later;
  }
  return 0;
}

std::vector<uint64_t> shape_symbols(std::span<const RecordedRequest> requests) {
  std::vector<int64_t> ends;
  ends.reserve(requests.size());
  for (const RecordedRequest& request : requests) ends.push_back(request.upper);
  std::sort(ends.begin(), ends.end());
  std::vector<uint64_t> symbols;
  symbols.reserve(requests.size());
  size_t ended = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    size_t same_size = 0;
    for (size_t back = 1; back <= kNear && back <= i && same_size == 0; ++back) {
      if (requests[i - back].size == requests[i].size) same_size = back;
    }
    size_t frees = 0;
    for (; ended < ends.size() && ends[ended] <= requests[i].lower; ++ended) ++frees;
    const uint64_t pattern =
        same_size + 16 * nearby_life(requests, i) + 256 * std::min(frees, kMostFrees);
    symbols.push_back(mix(mix(pattern) ^ static_cast<uint64_t>(requests[i].stream)));
  }
  return symbols;
}

std::vector<uint64_t> reversed(std::vector<uint64_t> values) {
  std::reverse(values.begin(), values.end());
  return values;
}

// First places of runs. Emptied at once, for it is filled again and again.
class RunTable {
 public:
  // For at most `runs` runs.
  void clear(size_t runs) {
    ++round_;
    size_t size = 64;
    while (size < 2 * runs) size *= 2;
    if (size > cells_.size()) cells_.assign(size, {});
    mask_ = size - 1;
  }
  void add(uint64_t run, uint32_t place) {
    Cell& cell = cells_[find(run)];
    if (cell.round != round_) cell = {run, round_, place};
  }
  [[nodiscard]] std::optional<uint32_t> place(uint64_t run) const {
    const Cell& cell = cells_[find(run)];
    if (cell.round != round_) return std::nullopt;
    return cell.place;
  }

 private:
  struct Cell {
    uint64_t run = 0;
    uint32_t round = 0;
    uint32_t place = 0;
  };
  // The run's cell, or the one where it would be.
  [[nodiscard]] size_t find(uint64_t run) const {
    size_t at = run & mask_;
    while (cells_[at].round == round_ && cells_[at].run != run) at = (at + 1) & mask_;
    return at;
  }

  std::vector<Cell> cells_;
  size_t mask_ = 0;
  uint32_t round_ = 0;
};

// Two stretches, each read in one direction, with places counted from where reading begins.
class Walk {
 public:
  Walk(const RequestSequence& sequence, Stretch first, Stretch second, bool from_end)
      : sequence_(sequence), first_(first), second_(second), from_end_(from_end) {}

  std::vector<Match> run() {
    size_t i = 0;
    size_t j = 0;
    while (i < first_.size() && j < second_.size()) {
      if (const auto kind = equal(i, j)) {
        add(i++, j++, *kind);
        continue;
      }
      const auto jump = next_agreement(i, j);
      if (!jump) break;
      const auto [skip_i, skip_j] = *jump;
      if (skip_i == skip_j && skip_i <= kMostReplaced) {
        for (size_t k = 0; k < skip_i; ++k) add(i + k, j + k, Match::Kind::replaced);
      }
      i += skip_i;
      j += skip_j;
    }
    if (from_end_) std::reverse(matches_.begin(), matches_.end());
    return std::move(matches_);
  }

 private:
  [[nodiscard]] size_t place(Stretch stretch, size_t i) const {
    return from_end_ ? stretch.end - 1 - i : stretch.begin + i;
  }
  [[nodiscard]] std::optional<Match::Kind> equal(size_t i, size_t j) const {
    const size_t a = place(first_, i);
    const size_t b = place(second_, j);
    if (sequence_.exact[a] == sequence_.exact[b]) return Match::Kind::exact;
    if (sequence_.shape[a] == sequence_.shape[b]) return Match::Kind::shape;
    return std::nullopt;
  }
  [[nodiscard]] uint64_t exact_run(Stretch stretch, size_t i) const {
    return (from_end_ ? sequence_.exact_before : sequence_.exact_after)[place(stretch, i)];
  }
  [[nodiscard]] uint64_t shape_run(Stretch stretch, size_t i) const {
    return (from_end_ ? sequence_.shape_before : sequence_.shape_after)[place(stretch, i)];
  }
  [[nodiscard]] bool runs_agree(size_t i, size_t j) const {
    return exact_run(first_, i) == exact_run(second_, j) ||
           shape_run(first_, i) == shape_run(second_, j);
  }

  void add(size_t i, size_t j, Match::Kind kind) {
    matches_.push_back(
        {static_cast<uint32_t>(place(first_, i)), static_cast<uint32_t>(place(second_, j)), kind});
  }

  using Jump = std::pair<size_t, size_t>;

  // The fewest requests to pass over, together, until runs agree. The window doubles, so what is
  // looked through is paid for by what is passed over; nothing is found at most once.
  [[nodiscard]] std::optional<Jump> next_agreement(size_t i, size_t j) {
    for (size_t sum = 1; sum <= kSmallWindow; ++sum) {
      // From equal skips outwards: as many requests here as there is the more natural reading.
      for (size_t off = sum % 2; off <= sum; off += 2) {
        for (const auto& [a, b] :
             {Jump{(sum - off) / 2, (sum + off) / 2}, Jump{(sum + off) / 2, (sum - off) / 2}}) {
          if (i + a < first_.size() && j + b < second_.size() && runs_agree(i + a, j + b)) {
            return Jump{a, b};
          }
        }
      }
    }
    // A short stretch is not looked for all along a long one.
    const auto [less, more] = std::minmax({first_.size() - i, second_.size() - j});
    const size_t longest = std::min(more, 8 * less + kLeastSearch);
    for (size_t window = 4 * kSmallWindow;; window *= 4) {
      if (const auto jump = agreement_within(i, j, window)) return jump;
      if (window >= longest) return std::nullopt;
    }
  }

  [[nodiscard]] std::optional<Jump> agreement_within(size_t i, size_t j, size_t window) {
    const size_t end_a = std::min(window, first_.size() - i);
    const size_t end_b = std::min(window, second_.size() - j);
    exact_places_.clear(end_b);
    shape_places_.clear(end_b);
    for (size_t b = 0; b < end_b; ++b) {
      exact_places_.add(exact_run(second_, j + b), static_cast<uint32_t>(b));
      shape_places_.add(shape_run(second_, j + b), static_cast<uint32_t>(b));
    }
    std::optional<Jump> best;
    const auto consider = [&](size_t a, std::optional<uint32_t> b) {
      if (b && (!best || a + *b < best->first + best->second)) best = Jump{a, *b};
    };
    for (size_t a = 0; a < end_a; ++a) {
      if (best && a >= best->first + best->second) break;
      consider(a, exact_places_.place(exact_run(first_, i + a)));
      consider(a, shape_places_.place(shape_run(first_, i + a)));
    }
    return best;
  }

  const RequestSequence& sequence_;
  Stretch first_;
  Stretch second_;
  bool from_end_;
  std::vector<Match> matches_;
  RunTable exact_places_;
  RunTable shape_places_;
};

}  // namespace

std::vector<uint64_t> run_hashes(std::span<const uint64_t> symbols, size_t length) {
  // h(i) = s(i) * B^(length-1) + ... + s(i + length - 1) modulo 2^64, mixed.
  constexpr uint64_t kBase = 0x2545f4914f6cdd1d;
  uint64_t highest = 1;
  for (size_t i = 1; i < length; ++i) highest *= kBase;
  std::vector<uint64_t> hashes(symbols.size());
  uint64_t rolling = 0;
  for (size_t i = 0; i < symbols.size() + length - 1; ++i) {
    const uint64_t entering = i < symbols.size() ? symbols[i] : 0;
    if (i >= length) rolling -= symbols[i - length] * highest;
    rolling = rolling * kBase + entering;
    if (i + 1 >= length) hashes[i + 1 - length] = mix(rolling);
  }
  return hashes;
}

RequestSequence make_sequence(std::span<const RecordedRequest> requests) {
  RequestSequence sequence;
  sequence.exact = exact_symbols(requests);
  sequence.shape = shape_symbols(requests);
  sequence.exact_after = run_hashes(sequence.exact, kExactRun);
  sequence.shape_after = run_hashes(sequence.shape, kShapeRun);
  sequence.exact_before = reversed(run_hashes(reversed(sequence.exact), kExactRun));
  sequence.shape_before = reversed(run_hashes(reversed(sequence.shape), kShapeRun));
  return sequence;
}

std::vector<Match> align(const RequestSequence& sequence, Stretch first, Stretch second,
                         bool from_end) {
  return Walk(sequence, first, second, from_end).run();
}

}  // namespace headroom::memory
