#include "memory/packing/skyline.h"

#include <algorithm>
#include <bit>

namespace headroom::memory {
namespace {

// Murmur's finalizer: every bit of the result depends on every bit of x.
uint64_t mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

}  // namespace

Skyline::Skyline(const Sections& sections, int64_t capacity, std::span<const Obstacle> obstacles)
    : sections_(sections),
      capacity_(capacity),
      floor_(sections.count()),
      slack_(sections.count()),
      left_(sections.count()),
      crossing_(sections.count()),
      is_solid_(sections.count(), 1),
      offsets_(sections.items.size()),
      first_(sections.count(), kNoItem),
      next_(sections.items.size(), kNoItem),
      previous_(sections.items.size(), kNoItem),
      run_begins_(sections.count()),
      valleys_(sections.count()),
      leaves_(std::bit_ceil(std::max(sections.count(), 1U))),
      count_ending_(sections.count() + 1),
      size_ending_(sections.count() + 1) {
  tournament_.assign(size_t{2} * leaves_, 0);
  for (uint32_t leaf = 0; leaf < leaves_; ++leaf) {
    tournament_[leaves_ + leaf] = std::min(leaf, sections.count() - 1);
  }
  for (uint32_t node = leaves_ - 1; node > 0; --node) tournament_[node] = tournament_[2 * node];
  for (uint32_t s = 0; s < sections.count(); ++s) slack_[s] = capacity - sections.load[s];
  for (uint32_t i = sections.item_count(); i-- > 0;) {
    const PackingItem& item = sections.items[i];
    link(i);
    for (uint32_t s = item.begin; s < item.end; ++s) ++left_[s];
    for (uint32_t s = item.begin + 1; s < item.end; ++s) ++crossing_[s];
  }
  if (!obstacles.empty()) add_obstacles(obstacles);
  for (uint32_t s = 0; s < sections.count(); ++s) {
    if (left_[s] == 0) floor_[s] = kNoFloor;
    run_begins_.insert(s);
  }
  if (sections.count() > 0) rebuild_runs(0, sections.count());
}

void Skyline::add_obstacles(std::span<const Obstacle> obstacles) {
  std::vector<Obstacle> sorted(obstacles.begin(), obstacles.end());
  // What lies above the capacity is in nobody's way.
  std::erase_if(sorted, [&](const Obstacle& obstacle) { return obstacle.offset >= capacity_; });
  std::sort(sorted.begin(), sorted.end(),
            [](const Obstacle& a, const Obstacle& b) { return a.offset < b.offset; });
  obstacles_begin_.assign(size_t{sections_.count()} + 1, 0);
  for (const Obstacle& obstacle : sorted) {
    for (uint32_t s = obstacle.begin; s < obstacle.end; ++s) ++obstacles_begin_[s + 1];
  }
  for (uint32_t s = 0; s < sections_.count(); ++s) obstacles_begin_[s + 1] += obstacles_begin_[s];
  obstacles_.resize(obstacles_begin_.back());
  next_obstacle_.assign(obstacles_begin_.begin(), obstacles_begin_.end() - 1);
  std::vector<uint32_t> at = next_obstacle_;
  for (const Obstacle& obstacle : sorted) {
    const int64_t end = std::min(obstacle.offset + obstacle.size, capacity_);
    for (uint32_t s = obstacle.begin; s < obstacle.end; ++s) {
      obstacles_[at[s]++] = obstacle;
      slack_[s] -= end - obstacle.offset;
    }
  }
  for (uint32_t s = 0; s < sections_.count(); ++s) climb_obstacles(s);
}

int64_t Skyline::ceiling(uint32_t section) const {
  if (!has_obstacles()) return kNoFloor;
  const uint32_t next = next_obstacle_[section];
  return next == obstacles_begin_[section + 1] ? kNoFloor : obstacles_[next].offset;
}

void Skyline::climb_obstacles(uint32_t section) {
  while (floor_[section] < kNoFloor && ceiling(section) == floor_[section]) {
    floor_[section] += obstacles_[next_obstacle_[section]++].size;
    is_solid_[section] = 1;
  }
}

void Skyline::link(uint32_t item) {
  uint32_t& first = first_[sections_.items[item].begin];
  next_[item] = first;
  previous_[item] = kNoItem;
  if (first != kNoItem) previous_[first] = item;
  first = item;
}

void Skyline::unlink(uint32_t item) {
  const uint32_t next = next_[item];
  const uint32_t previous = previous_[item];
  if (next != kNoItem) previous_[next] = previous;
  (previous != kNoItem ? next_[previous] : first_[sections_.items[item].begin]) = next;
}

void Skyline::log_ground(uint32_t begin, uint32_t end) {
  solid_log_.insert(solid_log_.end(), is_solid_.begin() + begin, is_solid_.begin() + end);
  if (!has_obstacles()) return;
  obstacle_log_.insert(obstacle_log_.end(), next_obstacle_.begin() + begin,
                       next_obstacle_.begin() + end);
}

void Skyline::unlog_ground(uint32_t begin, uint32_t end) {
  const auto take_back = [&](auto& log, auto& ground) {
    const auto from = log.end() - (end - begin);
    std::copy(from, log.end(), ground.begin() + begin);
    log.erase(from, log.end());
  };
  take_back(solid_log_, is_solid_);
  if (has_obstacles()) take_back(obstacle_log_, next_obstacle_);
}

void Skyline::place(uint32_t item) {
  const PackingItem& placed = sections_.items[item];
  const int64_t floor = floor_[placed.begin];
  offsets_[item] = floor;
  unlink(item);
  log_ground(placed.begin, placed.end);
  actions_.push_back({item, placed.begin, placed.end, floor, 0});
  for (uint32_t s = placed.begin + 1; s < placed.end; ++s) --crossing_[s];
  for (uint32_t s = placed.begin; s < placed.end; ++s) {
    floor_[s] = --left_[s] == 0 ? kNoFloor : floor + placed.size;
    is_solid_[s] = 1;
  }
  if (has_obstacles()) {
    for (uint32_t s = placed.begin; s < placed.end; ++s) climb_obstacles(s);
  }
  rebuild_runs(placed.begin, placed.end);
}

void Skyline::raise(uint32_t begin, uint32_t end, int64_t floor) {
  log_ground(begin, end);
  actions_.push_back({kNoItem, begin, end, floor_[begin], floor});
  for (uint32_t s = begin; s < end; ++s) {
    slack_[s] -= floor - floor_[s];
    floor_[s] = floor;
    is_solid_[s] = 0;
    if (has_obstacles()) climb_obstacles(s);
  }
  rebuild_runs(begin, end);
}

void Skyline::undo(size_t moment) {
  uint32_t begin = sections_.count();
  uint32_t end = 0;
  while (actions_.size() > moment) {
    const Action action = actions_.back();
    actions_.pop_back();
    begin = std::min(begin, action.first);
    end = std::max(end, action.last);
    unlog_ground(action.first, action.last);
    std::fill(floor_.begin() + action.first, floor_.begin() + action.last, action.floor);
    if (action.item == kNoItem) {
      for (uint32_t s = action.first; s < action.last; ++s) {
        slack_[s] += action.height - action.floor;
      }
      continue;
    }
    link(action.item);
    for (uint32_t s = action.first; s < action.last; ++s) ++left_[s];
    for (uint32_t s = action.first + 1; s < action.last; ++s) ++crossing_[s];
  }
  if (begin < end) rebuild_runs(begin, end);
}

// Finds the runs again where floors or boundaries in [begin, end) changed, and judges them.
void Skyline::rebuild_runs(uint32_t begin, uint32_t end) {
  if (begin > 0) begin = run_begins_.at_or_before(begin - 1);
  if (end < sections_.count()) end = run_begins_.at_or_after(end + 1);
  for (uint32_t s = begin; s < end;) {
    uint32_t after = s + 1;
    while (after < end && floor_[after] == floor_[s] && !is_boundary(after)) ++after;
    for (uint32_t k = run_begins_.at_or_after(s + 1); k < after;
         k = run_begins_.at_or_after(k + 1)) {
      run_begins_.erase(k);
      valleys_[k].choices = Valley::kNone;
      set_leaf(k);
    }
    judge_run(s, after);
    s = after;
  }
}

// kNoFloor where both sides are closed; -1 where a neighbour is lower, so that this is no valley.
int64_t Skyline::rim_of(uint32_t begin, uint32_t end) const {
  int64_t rim = kNoFloor;
  if (begin > 0 && !is_boundary(begin)) rim = floor_[begin - 1];
  if (end < sections_.count() && !is_boundary(end)) rim = std::min(rim, floor_[end]);
  return rim > floor_[begin] ? rim : -1;
}

// Goes along a level run: what of the items inside it lives in each section. Looked at in order.
class Skyline::Inside {
 public:
  Inside(Skyline& skyline, uint32_t begin, uint32_t end)
      : sky_(skyline), begin_(begin), end_(end) {}
  ~Inside() {
    // Scratch is left as it was found, also where nobody looked at the whole run.
    std::fill(sky_.count_ending_.begin() + begin_, sky_.count_ending_.begin() + end_ + 1, 0);
    std::fill(sky_.size_ending_.begin() + begin_, sky_.size_ending_.begin() + end_ + 1, 0);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  // REQUIRES: called for the sections of the run one after the other.
  void enter(uint32_t section) {
    candidates_ -= sky_.count_ending_[section];
    material_ -= sky_.size_ending_[section];
    for (uint32_t i = sky_.first_[section]; i != kNoItem; i = sky_.next_[i]) {
      const PackingItem& item = sky_.sections_.items[i];
      if (item.end > end_) continue;
      material_ += item.size;
      sky_.size_ending_[item.end] += item.size;
      if (sky_.has_obstacles() && sky_.floor_[section] + item.size > sky_.ceiling_over(item)) {
        continue;
      }
      ++candidates_;
      ++sky_.count_ending_[item.end];
    }
  }
  [[nodiscard]] int32_t candidates() const { return candidates_; }
  [[nodiscard]] int64_t material() const { return material_; }  // bytes

 private:
  Skyline& sky_;
  uint32_t begin_;
  uint32_t end_;
  int32_t candidates_ = 0;
  int64_t material_ = 0;
};

void Skyline::judge_run(uint32_t begin, uint32_t end) {
  Valley& valley = valleys_[begin];
  run_begins_.insert(begin);
  valley = {};
  valley.begin = begin;
  valley.end = end;
  valley.floor = floor_[begin];
  valley.rim = floor_[begin] >= kNoFloor ? -1 : rim_of(begin, end);
  if (valley.rim < 0) return set_leaf(begin);
  Inside inside(*this, begin, end);
  for (uint32_t s = begin; s < end; ++s) {
    inside.enter(s);
    // What lies inside cannot fill the valley at s: the rest up to its rim is wasted.
    int64_t rim = std::min(valley.rim, ceiling(s));
    if (rim < kNoFloor) rim = std::min(rim, capacity_);  // an obstacle may reach beyond it
    const int64_t wasted =
        rim >= kNoFloor ? 0 : std::max<int64_t>(0, rim - valley.floor - inside.material());
    const int64_t slack = slack_[s] - wasted;
    const int32_t choices =
        slack < 0 ? Valley::kDeadEnd : inside.candidates() + (slack_[s] > 0 ? 1 : 0);
    if (choices < valley.choices || (choices == valley.choices && slack < valley.slack)) {
      valley.choices = choices;
      valley.candidates = inside.candidates();
      valley.slack = slack;
      valley.section = s;
    }
    if (choices == Valley::kDeadEnd) break;
  }
  set_leaf(begin);
}

bool Skyline::is_more_urgent(uint32_t a, uint32_t b) const {
  const Valley& first = valleys_[a];
  const Valley& second = valleys_[b];
  if (first.choices != second.choices) return first.choices < second.choices;
  if (first.slack != second.slack) return first.slack < second.slack;
  return a < b;
}

void Skyline::set_leaf(uint32_t section) {
  for (uint32_t node = (section + leaves_) / 2; node >= 1; node /= 2) {
    const uint32_t left = tournament_[2 * node];
    const uint32_t right = tournament_[2 * node + 1];
    tournament_[node] = is_more_urgent(right, left) ? right : left;
  }
}

const Valley& Skyline::most_urgent(uint32_t begin, uint32_t end) const {
  uint32_t best = begin;
  uint32_t left = begin + leaves_;
  uint32_t right = end + leaves_;
  const auto look_at = [&](uint32_t node) {
    if (is_more_urgent(tournament_[node], best)) best = tournament_[node];
  };
  for (; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) look_at(left++);
    if (right % 2 == 1) look_at(--right);
  }
  return valleys_[best];
}

std::pair<uint32_t, uint32_t> Skyline::bare_sections(const Valley& valley) {
  // Obstacles stand at a height of their own in every section.
  if (has_obstacles()) return {valley.section, valley.section + 1};
  Inside inside(*this, valley.begin, valley.end);
  uint32_t begin = valley.begin;
  for (uint32_t s = valley.begin; s < valley.end; ++s) {
    inside.enter(s);
    if (inside.candidates() == 0) continue;
    if (s > valley.section) return {begin, s};
    begin = s + 1;
  }
  return {begin, valley.end};
}

void Skyline::list_candidates(const Valley& valley, std::vector<uint32_t>& candidates) const {
  candidates.clear();
  for (uint32_t s = valley.begin; s <= valley.section; ++s) {
    for (uint32_t i = first_[s]; i != kNoItem; i = next_[i]) {
      const PackingItem& item = sections_.items[i];
      if (item.end <= valley.section || item.end > valley.end) continue;
      if (valley.floor + item.size <= ceiling_over(item)) candidates.push_back(i);
    }
  }
}

int64_t Skyline::next_height(const Valley& valley) const {
  int64_t height = std::min(valley.rim, ceiling(valley.section));
  for (uint32_t s = valley.begin; s < valley.end; ++s) {
    for (uint32_t i = first_[s]; i != kNoItem; i = next_[i]) {
      const PackingItem& item = sections_.items[i];
      if (item.end > valley.end) continue;
      const bool is_there = s <= valley.section && item.end > valley.section;
      height = std::min(height, is_there ? ceiling_over(item) : valley.floor + item.size);
    }
  }
  return height;
}

bool Skyline::has_support(uint32_t item) const {
  const PackingItem& placed = sections_.items[item];
  for (uint32_t s = placed.begin; s < placed.end; ++s) {
    if (is_solid_[s]) return true;
  }
  return false;
}

uint64_t Skyline::fingerprint(uint32_t begin, uint32_t end) const {
  uint64_t sum = mix((uint64_t{begin} << 32) + end);
  for (uint32_t s = begin; s < end; ++s) {
    const uint64_t ground = 2 * static_cast<uint64_t>(floor_[s]) + (is_solid_[s] ? 1 : 0);
    sum += mix(ground ^ mix(s + 1));
    for (uint32_t i = first_[s]; i != kNoItem; i = next_[i]) sum += mix(~uint64_t{i});
  }
  return mix(sum);
}

}  // namespace headroom::memory
