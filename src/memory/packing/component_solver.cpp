#include "memory/packing/component_solver.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/parallel.h"
#include "memory/packing/components.h"
#include "memory/packing/local_search.h"
#include "memory/packing/orders.h"
#include "memory/packing/solved_parts.h"
#include "memory/packing/stretched.h"

namespace headroom::memory {
namespace {

// A large problem gets fewer orders: beyond these placements, only the first few.
constexpr int64_t kOrderPlacements = 480'000;
constexpr size_t kFewOrders = 3;      // a quick plan's, and for each repetition
constexpr size_t kFewestOrders = 4;   // where there is time to search
constexpr size_t kHalfOfOrders = 10;  // then one exact search that hardly turns back
constexpr int64_t kPlacementsPerItem = 4;
constexpr int kPromotions = 4;
constexpr int64_t kNearness = 1000;  // an order within 1/1000 of the target of the best is promoted
constexpr int64_t kRepairable = 20;  // plans further than 1/20 above the target are not
constexpr size_t kStarts = 4;
constexpr int64_t kStartShare = 10;  // of the effort, for each start
constexpr uint32_t kMostExactItems = 20'000;
constexpr int64_t kMostExactLengths = 8'000'000;  // sections of all items: a byte each to undo
constexpr int64_t kFirstNodes = 2'000;
constexpr double kNoise = 0.5;

int64_t common_divisor(const Sections& sections) {
  int64_t divisor = 0;
  for (const PackingItem& item : sections.items) divisor = std::gcd(divisor, item.size);
  return std::max<int64_t>(divisor, 1);
}

// The first orders of the portfolio, until one meets the target.
Placement best_of_few(const Sections& part, int64_t target) {
  Placement best;
  for (size_t i = 0; i < kFewOrders; ++i) {
    Placement placement = first_fit(part, make_order(part, i));
    if (i == 0 || placement.height < best.height) best = std::move(placement);
    if (best.height <= target) break;
  }
  return best;
}

bool is_small_enough_for_exact(const Sections& sections) {
  int64_t lengths = 0;
  for (const PackingItem& item : sections.items) lengths += item.end - item.begin;
  return sections.item_count() <= kMostExactItems && lengths <= kMostExactLengths;
}

}  // namespace

ComponentSolver::ComponentSolver(const Sections& sections, int64_t target,
                                 const SynthesisOptions& options)
    : sections_(sections),
      target_(target),
      options_(options),
      unit_(common_divisor(sections)),
      is_exact_(is_small_enough_for_exact(sections)),
      left_(options.placements + kPlacementsPerItem * sections.item_count()),
      proven_bound_(sections.highest_load) {}

void ComponentSolver::solve() {
  const auto affordable = static_cast<size_t>(kOrderPlacements / (sections_.item_count() + 1));
  const size_t orders = std::min(order_count(), std::max(kFewestOrders, affordable));
  const size_t half = std::min(orders, kHalfOfOrders);
  try_orders(0, kFewOrders);
  if (!is_done()) try_stretched();
  if (is_done() || options_.depth == SynthesisDepth::quick) return;
  try_orders(kFewOrders, half);
  if (!is_done()) promote(0, half);
  if (!is_done() && is_exact_ && options_.depth == SynthesisDepth::search) search_round(0, 0, 1);
  if (!is_done()) try_orders(half, orders);
  if (!is_done()) promote(half, orders);
  if (is_done() || options_.depth == SynthesisDepth::first_fit) return;
  choose_starts();
  search();
}

bool ComponentSolver::is_done() const {
  return best_.height <= std::max(target_, proven_bound_) || is_out_of_time();
}

bool ComponentSolver::is_out_of_time() const {
  return options_.is_out_of_time && options_.is_out_of_time();
}

void ComponentSolver::run_round(size_t tasks, const Task& task) const {
  std::atomic<size_t> winner = tasks;
  for_each_in_parallel(tasks, options_.threads, [&](size_t number) {
    const auto is_cut_short = [&] { return winner < number || is_out_of_time(); };
    if (number > 0 && is_cut_short()) return;
    if (!task(number, is_cut_short)) return;
    size_t before = winner;
    while (number < before && !winner.compare_exchange_weak(before, number)) {
    }
  });
}

void ComponentSolver::adopt(const Placement& placement, const std::string& method) {
  if (!best_.offsets.empty() && placement.height >= best_.height) return;
  best_ = placement;
  method_ = method;
}

// The orders [first, last) of the portfolio.
void ComponentSolver::try_orders(size_t first, size_t last) {
  placements_.resize(std::max(placements_.size(), last));
  run_round(last - first, [&](size_t number, const auto& /*is_cut_short*/) {
    Placement& placement = placements_[first + number];
    placement = first_fit(sections_, make_order(sections_, first + number));
    return placement.height <= target_;
  });
  for (size_t i = first; i < last; ++i) {
    if (placements_[i].offsets.empty()) continue;  // cut short
    adopt(placements_[i], "first fit: " + std::string(order_name(i)));
    if (best_.height <= target_) return;
  }
}

// The part with its longest lifetimes stretched: its repetitions are planned once, side by side.
void ComponentSolver::try_stretched() {
  const std::optional<Sections> longer = stretched(sections_, target_);
  if (!longer) return;
  Placement placement;
  placement.offsets.resize(longer->items.size());
  SolvedParts<Placement> solved;
  for (const Component& component : cut_into_components(*longer, placement.offsets)) {
    Sections part = sections_of(*longer, component);
    const Placement* plan = solved.find(part, component.base);
    if (plan == nullptr) {
      Placement made = best_of_few(part, target_ - component.base);
      plan = &solved.add(std::move(part), component.base, std::move(made));
    }
    for (size_t i = 0; i < component.items.size(); ++i) {
      placement.offsets[component.items[i]] = component.base + plan->offsets[i];
    }
  }
  for (uint32_t i = 0; i < sections_.item_count(); ++i) {
    placement.height = std::max(placement.height, placement.offsets[i] + sections_.items[i].size);
  }
  adopt(placement, "first fit of each repetition");
}

// What ended up too high goes first, and all is placed again, a few times over: cures plans that
// fail by some small items of long life. Only for orders of [first, last) that came near the best.
void ComponentSolver::promote(size_t first, size_t last) {
  std::vector<size_t> near;
  const int64_t affordable = kOrderPlacements / kPromotions / (sections_.item_count() + 1);
  for (size_t i = first; i < last && std::ssize(near) < affordable; ++i) {
    if (placements_[i].height - best_.height <= target_ / kNearness) near.push_back(i);
  }
  std::vector<Placement> improved(near.size());
  run_round(near.size(), [&](size_t number, const auto& is_cut_short) {
    Placement placement = placements_[near[number]];
    std::vector<uint32_t> order = make_order(sections_, near[number]);
    improved[number] = placement;
    const auto is_too_high = [&](uint32_t item) {
      return placement.offsets[item] + sections_.items[item].size > target_;
    };
    for (int i = 0; i < kPromotions && improved[number].height > target_ && !is_cut_short(); ++i) {
      if (std::is_partitioned(order.begin(), order.end(), is_too_high)) break;  // the same again
      std::stable_partition(order.begin(), order.end(), is_too_high);
      placement = first_fit(sections_, order);
      if (placement.height < improved[number].height) improved[number] = placement;
    }
    return improved[number].height <= target_;
  });
  for (size_t i = 0; i < near.size(); ++i) {
    if (improved[i].offsets.empty()) continue;
    adopt(improved[i], "first fit: " + std::string(order_name(near[i])) + ", promoted");
    if (best_.height <= target_) return;
  }
}

void ComponentSolver::choose_starts() {
  starts_ = std::move(placements_);
  std::erase_if(starts_, [](const auto& placement) { return placement.offsets.empty(); });
  std::stable_sort(starts_.begin(), starts_.end(),
                   [](const auto& a, const auto& b) { return a.height < b.height; });
  starts_.resize(std::min(starts_.size(), kStarts));
}

void ComponentSolver::search() {
  const size_t tasks = task_count();
  if (is_exact_) search_round(0, 1, tasks);  // solve() has done the first task
  if (!is_done()) repair_starts();
  for (int round = 1; !is_done() && left_ > 0; ++round) search_round(round, 0, tasks);
}

// A short local search from each of several plans: which of them can be repaired does not show in
// how high they are.
void ComponentSolver::repair_starts() {
  if (best_.height - target_ > target_ / kRepairable) return;
  run_round(starts_.size(), [&](size_t number, const auto& is_cut_short) {
    Effort effort;
    effort.is_out_of_time = is_cut_short;
    effort.placements = left_ / kStartShare;
    LocalSearch(sections_, starts_[number], options_.seed + number).lower(target_, effort);
    return starts_[number].height <= target_;
  });
  left_ -= left_ / kStartShare * static_cast<int64_t>(starts_.size());
  for (const Placement& start : starts_) {
    adopt(start, "local search");
    if (best_.height <= target_) return;
  }
}

// The target itself, and every other time a capacity between it and what is there, from halfway to
// a sixteenth below: a part whose bound cannot be met, or not yet, is still improved.
int64_t ComponentSolver::capacity_of(int round) const {
  const int64_t low = std::max(target_, proven_bound_);
  if (round % 2 == 0 && proven_bound_ <= target_) return low;
  const int64_t between = best_.height - ((best_.height - low) >> (1 + round / 2 % 4));
  return std::max(low, between / unit_ * unit_);
}

void ComponentSolver::note_impossible(int64_t capacity) {
  proven_bound_ = std::max(proven_bound_, (capacity / unit_ + 1) * unit_);
}

size_t ComponentSolver::task_count() const { return is_exact_ ? kCandidateOrderCount + 1 : 1; }

// Tasks [first, last) of a round, side by side: exact searches in several orders of candidates, and
// behind them a local search.
void ComponentSolver::search_round(int round, size_t first, size_t last) {
  const int64_t capacity = capacity_of(round);
  int64_t nodes = std::max<int64_t>(kFirstNodes, sections_.item_count() * 3 / 2);
  for (int i = 0; i < round && nodes < left_; ++i) nodes = nodes * 5 / 4;
  const int64_t share = std::max<int64_t>(1, std::min(left_, is_exact_ ? nodes : left_));
  const size_t local = task_count() - 1;
  std::vector<std::optional<Placement>> found(last);
  std::vector<char> impossible(last);
  run_round(last - first, [&](size_t task, const auto& is_cut_short) {
    const size_t number = first + task;
    Effort effort;
    effort.is_out_of_time = is_cut_short;
    const uint64_t seed = options_.seed + 1000 * static_cast<uint64_t>(round) + number;
    if (number == local) {
      Placement placement = best_;
      effort.placements = share;
      LocalSearch(sections_, placement, seed).lower(target_, effort);
      found[number] = std::move(placement);
    } else {
      effort.placements = nodes * 100;
      ExactSearch exact(sections_, capacity);
      const ExactLimits limits{nodes, static_cast<CandidateOrder>(number), round == 0 ? 0 : kNoise,
                               seed};
      const ExactOutcome outcome = exact.run(limits, effort);
      impossible[number] = outcome == ExactOutcome::impossible ? 1 : 0;
      if (outcome == ExactOutcome::impossible) return true;
      if (outcome == ExactOutcome::gave_up) return false;
      Placement placement{exact.offsets(), 0};
      for (uint32_t i = 0; i < sections_.item_count(); ++i) {
        placement.height =
            std::max(placement.height, placement.offsets[i] + sections_.items[i].size);
      }
      found[number] = std::move(placement);
    }
    return found[number]->height <= target_;
  });
  left_ -= share * static_cast<int64_t>(last - first);
  for (size_t number = first; number < last; ++number) {
    if (impossible[number] != 0) return note_impossible(capacity);
    if (!found[number]) continue;
    adopt(*found[number], number == local ? "local search" : "exact search");
    if (best_.height <= target_) return;
  }
}

}  // namespace headroom::memory
