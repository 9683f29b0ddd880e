#include "memory/packing/exact_search.h"

#include <algorithm>

namespace headroom::memory {
namespace {

constexpr size_t kFailures = size_t{1} << 18;  // 2 MiB

}  // namespace

ExactSearch::ExactSearch(const Sections& sections, int64_t capacity,
                         std::span<const Obstacle> obstacles)
    : sections_(sections),
      capacity_(capacity),
      skyline_(sections, capacity, obstacles),
      failures_(kFailures) {}

ExactOutcome ExactSearch::run(const ExactLimits& limits, Effort& effort) {
  limits_ = limits;
  random_.seed(limits.seed);
  nodes_ = 0;
  effort_ = &effort;
  frames_.clear();
  pool_.clear();
  skyline_.undo(0);
  Step step = enter(0, sections_.count());
  while (step == Step::enter || !frames_.empty()) {
    if (step == Step::give_up) return ExactOutcome::gave_up;
    step = step == Step::enter ? enter(enter_begin_, enter_end_) : go_on(step);
  }
  if (step == Step::give_up) return ExactOutcome::gave_up;
  return step == Step::succeed ? ExactOutcome::found : ExactOutcome::impossible;
}

// Searches [begin, end), or the parts that it has fallen into.
ExactSearch::Step ExactSearch::enter(uint32_t begin, uint32_t end) {
  const auto first = static_cast<uint32_t>(pool_.size());
  for (uint32_t s = begin; s < end;) {
    if (skyline_.left_at(s) == 0) {
      ++s;
      continue;
    }
    uint32_t after = s + 1;
    while (after < end && !skyline_.is_boundary(after)) ++after;
    pool_.push_back(s);
    pool_.push_back(after);
    s = after;
  }
  const auto last = static_cast<uint32_t>(pool_.size());
  if (last == first) return Step::succeed;
  if (last == first + 2) {
    begin = pool_[first];
    end = pool_[first + 1];
    pool_.resize(first);
    return enter_valley(begin, end);
  }
  const size_t now = skyline_.moment();
  frames_.push_back({begin, end, now, now, first, last, first, {}, true});
  return go_on(Step::succeed);
}

ExactSearch::Step ExactSearch::enter_valley(uint32_t begin, uint32_t end) {
  const size_t before = skyline_.moment();
  const bool is_alive = raise_bare_ground(begin, end);
  const Valley valley = skyline_.most_urgent(begin, end);
  if (++nodes_ > limits_.nodes || !effort_->spend(1 + (valley.end - valley.begin) / 64)) {
    return Step::give_up;
  }
  if (!is_alive || is_known_failure(begin, end)) {
    skyline_.undo(before);
    return Step::fail;
  }
  rank_candidates(valley);
  const auto first = static_cast<uint32_t>(pool_.size());
  for (const auto& [rank, item] : ranked_) pool_.push_back(item);
  const auto last = static_cast<uint32_t>(pool_.size());
  frames_.push_back({begin, end, before, skyline_.moment(), first, last, first, valley, false});
  return next_alternative(frames_.back());
}

// Where nothing can lie on the ground of a valley, it goes up to the rim: there is no choice.
// False at a dead end.
bool ExactSearch::raise_bare_ground(uint32_t begin, uint32_t end) {
  for (;;) {
    const Valley valley = skyline_.most_urgent(begin, end);
    if (valley.choices == Valley::kDeadEnd) return false;
    if (valley.candidates > 0 || valley.choices > 1) return true;
    const auto [first, last] = skyline_.bare_sections(valley);
    const int64_t height = last - first > 1 ? valley.rim : skyline_.next_height(valley);
    for (uint32_t s = first; s < last; ++s) {
      if (height - valley.floor > skyline_.slack_at(s)) return false;
    }
    skyline_.raise(first, last, height);
  }
}

double ExactSearch::rank_of(uint32_t item, const Valley& valley) {
  const PackingItem& candidate = sections_.items[item];
  const auto length = static_cast<double>(candidate.end - candidate.begin);
  const auto size = static_cast<double>(candidate.size);
  const auto capacity = static_cast<double>(capacity_);
  const auto luck = static_cast<double>(random_() >> 11) * 0x1p-53;
  double rank = 0;
  switch (limits_.order) {
    case CandidateOrder::length:
      rank = length + size / capacity;
      break;
    case CandidateOrder::area:
      rank = length * size;
      break;
    case CandidateOrder::size:
      rank = size + length / sections_.count();
      break;
    case CandidateOrder::exact_height:
      rank = length * size;
      if (valley.floor + candidate.size == valley.rim) rank += capacity * sections_.count();
      break;
  }
  return rank * (1 + limits_.noise * luck);
}

// Best first; only what has support and room.
void ExactSearch::rank_candidates(const Valley& valley) {
  skyline_.list_candidates(valley, candidates_);
  ranked_.clear();
  for (const uint32_t item : candidates_) {
    if (valley.floor + sections_.items[item].size > capacity_) continue;
    if (skyline_.has_support(item)) ranked_.emplace_back(-rank_of(item, valley), item);
  }
  std::sort(ranked_.begin(), ranked_.end());
}

// What a finished step means for the frame on top.
ExactSearch::Step ExactSearch::go_on(Step result) {
  Frame& frame = frames_.back();
  if (frame.is_split) {
    if (result != Step::succeed || frame.at == frame.last) return leave(result);
    enter_begin_ = pool_[frame.at];
    enter_end_ = pool_[frame.at + 1];
    frame.at += 2;
    return Step::enter;
  }
  if (result == Step::succeed) return leave(result);
  skyline_.undo(frame.moment);
  return next_alternative(frame);
}

ExactSearch::Step ExactSearch::next_alternative(Frame& frame) {
  enter_begin_ = frame.begin;
  enter_end_ = frame.end;
  while (frame.at < frame.last) {
    const uint32_t at = frame.at++;
    if (has_twin_before(frame, at)) continue;
    skyline_.place(pool_[at]);
    return Step::enter;
  }
  if (frame.at == frame.last) {
    ++frame.at;
    if (raise(frame.valley)) return Step::enter;
  }
  remember_failure(frame.begin, frame.end);
  return leave(Step::fail);
}

ExactSearch::Step ExactSearch::leave(Step result) {
  const Frame& frame = frames_.back();
  if (result == Step::fail) skyline_.undo(frame.before);
  pool_.resize(frame.first);
  frames_.pop_back();
  return result;
}

// An equal item was tried in the same place.
bool ExactSearch::has_twin_before(const Frame& frame, uint32_t at) const {
  const PackingItem& item = sections_.items[pool_[at]];
  return std::any_of(pool_.begin() + frame.first, pool_.begin() + at, [&](uint32_t other) {
    const PackingItem& twin = sections_.items[other];
    return twin.begin == item.begin && twin.end == item.end && twin.size == item.size;
  });
}

// Leaves the ground empty at the valley's section, up to where something could lie.
bool ExactSearch::raise(const Valley& valley) {
  const uint32_t section = valley.section;
  const int64_t height = skyline_.next_height(valley);
  if (height >= Skyline::kNoFloor || height - valley.floor > skyline_.slack_at(section)) {
    return false;
  }
  skyline_.raise(section, section + 1, height);
  return true;
}

bool ExactSearch::is_known_failure(uint32_t begin, uint32_t end) const {
  if (!has_failures_) return false;
  const uint64_t state = skyline_.fingerprint(begin, end);
  return failures_[state % kFailures] == state;
}

void ExactSearch::remember_failure(uint32_t begin, uint32_t end) {
  const uint64_t state = skyline_.fingerprint(begin, end);
  failures_[state % kFailures] = state;
  has_failures_ = true;
}

}  // namespace headroom::memory
