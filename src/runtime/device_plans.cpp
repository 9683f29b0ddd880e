// DeviceAllocator's plans: how one comes to serve, and how it is given up.
//
//   recording -> the planner makes a candidate -> the candidate follows the requests until it knows
//   where it is -> at the beginning of an iteration the device is waited for once, what is free is
//   unmapped, the plan's arena is mapped -> it serves; blocks that were alive stay where they are.
//
// A plan whose passes keep asking for more beside it than it is worth is held against a new one,
// made from a new log; memory running out ends it.
#include <algorithm>
#include <bit>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/units.h"
#include "memory/plan/servable_plan.h"
#include "runtime/clock.h"
#include "runtime/device_allocator.h"

namespace headroom::runtime {
namespace {

// A candidate that does not find its place within so many iterations' worth of requests is dropped.
constexpr uint32_t kMostFollowed = 8;
constexpr uint32_t kMostFollowedOfFile = 64;
constexpr uint32_t kLeastFollowed = 4096;
// What a pass may take beside the plan, as a share of it, before a new plan is thought of.
constexpr double kPoorShare = 0.03;
constexpr int kPoorPasses = 3;  // of the last kJudgedPasses
constexpr uint32_t kJudgedPasses = 12;
// A new plan must save so much of the memory that the old one needs.
constexpr double kWorthReplanning = 0.98;
// Unless that one has slots for less than this share of what lies between marks, so often in a row.
constexpr double kServedShare = 0.8;
constexpr uint32_t kPoorMarks = 4;
// A plan that there is no memory for may have come at a bad moment: so often a new one is made.
constexpr int64_t kMostSwitchesWithoutMemory = 3;
constexpr int64_t kMostOutgrown = 2;
constexpr double kNoWorse = 1.005;
// Pages are given back where they are more than this part of what is reserved.
constexpr int64_t kFewPages = 100;
// Passes after which a log that led to no plan is given up.
constexpr int64_t kMostLoggedPasses = 64;

}  // namespace

void DeviceAllocator::load_plan() {
  if (configuration_.plan_path.empty()) return;
  const std::string path = path_for(configuration_.plan_path, ordinal_, configuration_.rank);
  const auto plan = memory::read_servable_plan(path);
  if (!plan) {
    plan_figures_.refused = plan.error().to_string();
    return;
  }
  CompiledPlan compiled = compile_plan(*plan);
  compiled.is_of_file = true;
  candidate_ =
      std::make_unique<PlannedArena>(std::make_shared<const CompiledPlan>(std::move(compiled)));
  follow_order(*candidate_);
}

// REQUIRES: no lock, or the driver lock.
void DeviceAllocator::begin_log() {
  auto log = std::make_shared<RequestLog>();
  if (planner_ != nullptr) {
    planner_->watch(nullptr);  // no look at an older one is due
  } else {
    const std::string& out = configuration_.plan_out;
    std::unique_ptr<Planner> planner;
    std::string refused;
    try {
      planner = std::make_unique<Planner>(
          out.empty() ? out : path_for(out, ordinal_, configuration_.rank),
          configuration_.always_plans);
    } catch (const std::system_error& error) {
      refused = std::string("no thread for the planner: ") + error.what();
    }
    const std::lock_guard lock(lock_);
    if (planner == nullptr) {
      plan_figures_.refused = std::move(refused);
      return;
    }
    planner_ = std::move(planner);
    if (expects_iterations_) planner_->expect_marks();
    if (!allows_joins_) planner_->forbid_joins();
  }
  {
    const std::lock_guard lock(lock_);
    log_ = log;
    ++logs_;
    number_streams_of_plans();
    // What is alive now was there before. What awaits its events is over; it forgets the last log.
    for (const GeneralArena::Segment& segment : general_->segments()) {
      if (!segment.is_in_use) continue;
      for (uint32_t i = segment.first; i != kNoNumber; i = general_->block(i).next) {
        GeneralArena::Block& block = general_->block(i);
        if (block.state == BlockState::live) {
          block.serial = log_request(block.requested, general_->ranges()[segment.range]->stream);
        } else {
          block.serial = RequestLog::kNoSerial;
        }
      }
    }
    const auto log_arena = [this](PlannedArena& arena) {
      for (const PlannedArena::Shown& shown : arena.blocks()) {
        arena.find(shown.address)->serial = shown.block.is_pending
                                                ? RequestLog::kNoSerial
                                                : log_request(shown.block.requested, shown.stream);
      }
    };
    if (planned_ != nullptr) log_arena(*planned_);
    for (const auto& arena : retired_) log_arena(*arena);
    log->begin();
  }
  planner_->watch(std::move(log));
}

// REQUIRES: the lock.
uint32_t DeviceAllocator::number_of_stream(CudaStream* stream) {
  uint32_t number = 0;
  while (number < streams_.size() && streams_[number] != stream) ++number;
  if (number == streams_.size()) streams_.push_back(stream);
  return number;
}

// Where a plan of a file served from the beginning no log has seen who came first: its tracks did,
// and a plan that is kept names streams by that. REQUIRES: the lock.
void DeviceAllocator::number_streams_of_plans() {
  const auto number_those_of = [this](const PlannedArena& arena) {
    for (uint32_t track = 0; track < arena.plan().tracks.size(); ++track) {
      if (arena.has_stream(track)) number_of_stream(arena.stream_of(track));
    }
  };
  for (const auto& arena : retired_) number_those_of(*arena);
  if (planned_ != nullptr) number_those_of(*planned_);
}

// REQUIRES: the lock.
uint32_t DeviceAllocator::log_request(int64_t size, CudaStream* stream) {
  const uint32_t number = number_of_stream(stream);
  while (log_->streams() < streams_.size()) log_->add_stream(handle_of(streams_[log_->streams()]));
  const uint32_t serial = log_->add_request(size, number);
  if (planner_->is_due(log_->size())) planner_->look();
  return serial;
}

// Nobody writes it any more. REQUIRES: the lock.
void DeviceAllocator::drop_log() {
  if (log_ != nullptr) planner_->dispose(std::exchange(log_, nullptr));
}

// Nothing more fits into it. The planner looks a last time and lets go of it, too.
// REQUIRES: the lock.
void DeviceAllocator::give_up_log() {
  planner_->look();
  drop_log();
  go_without_plan("no iterations in " + std::to_string(RequestLog::kMostEntries >> 20) +
                  " Mi events");
}

// Best fit serves alone, until more is reserved than now. REQUIRES: the lock.
void DeviceAllocator::go_without_plan(std::string why) {
  PlanFigures& f = plan_figures_;
  f.refused = std::move(why);
  if (planned_ != nullptr) return;  // judge_pass() sees to it
  f.reserved_without_plan = std::max(f.reserved_peak, statistics_.reserved_bytes.current());
}

// A new log, at the next boundary that somebody sees. REQUIRES: the lock.
void DeviceAllocator::look_again() {
  if (std::exchange(plan_figures_.reserved_without_plan, 0) == 0) return;
  is_switch_due_ = is_log_due_ = true;
}

// REQUIRES: the lock. True where it is time for the switch.
bool DeviceAllocator::follow_candidate(const Request& request) {
  // At a boundary that is due anyway a candidate would serve before it found its place.
  if (is_switch_due_) return false;
  if (planner_ != nullptr && planner_->has_candidate()) accept_candidate();
  if (candidate_ == nullptr || is_switch_due_) return false;
  if (pool_for(request.stream) != kGeneralPool) return false;
  const PlannedArena::Followed followed = candidate_->follow(request.stream, request.size);
  ++followed_;
  // In the first iteration what stays is asked for, too, and would lie in slots of the plan for
  // ever: one of a file waits until a pass was whole.
  const bool is_of_file = candidate_->plan().is_of_file;
  if (is_of_file ? followed.ends_pass : followed.begins_pass) {
    is_switch_due_ = true;
    return true;
  }
  const uint32_t most = is_of_file ? kMostFollowedOfFile : kMostFollowed;
  if (followed_ > kLeastFollowed && followed_ / most > candidate_->plan().longest) {
    plan_figures_.refused =
        is_of_file ? "the plan is of other work" : "what was planned did not come again";
    dropped_ = std::move(candidate_);
    followed_ = 0;
    is_switch_due_ = is_log_due_ = true;
    return true;
  }
  return false;
}

// In the place of the plan that serves: it needs less memory, or serves what that one does not.
// REQUIRES: the lock.
bool DeviceAllocator::is_worth_it(const CompiledPlan& plan) const {
  const PlanFigures& f = plan_figures_;
  const int64_t need = *std::max_element(f.general_needs.begin(), f.general_needs.end());
  const auto now = static_cast<double>(planned_->plan().bytes + need);
  const double most = f.poor_marks >= kPoorMarks ? kNoWorse : kWorthReplanning;
  return static_cast<double>(plan.bytes) <= most * now;
}

// REQUIRES: the lock.
void DeviceAllocator::accept_candidate() {
  std::unique_ptr<Planner::Candidate> made = planner_->take();
  if (made == nullptr) return;
  drop_log();
  plan_figures_.predicted_planned_bytes = made->prediction.planned_bytes;
  plan_figures_.predicted_best_fit_bytes = made->prediction.best_fit_bytes;
  if (made->arena == nullptr) {
    go_without_plan("best fit needs no more than a plan would");
    return;
  }
  if (planned_ != nullptr && !is_worth_it(made->arena->plan())) {
    plan_figures_.refused = "a new plan would not save enough";
    dropped_ = std::move(made->arena);
    is_switch_due_ = true;
    return;
  }
  candidate_ = std::move(made->arena);
  follow_order(*candidate_);
  for (uint32_t track = 0; track < made->streams.size(); ++track) {
    candidate_->set_stream(track, streams_[made->streams[track]]);
  }
  followed_ = 0;
  candidate_origin_ = {made->marks > 0, static_cast<int64_t>(made->iterations),
                       static_cast<int64_t>(made->kinds), made->seconds};
}

void DeviceAllocator::at_boundary() {
  if (is_capturing()) return;  // and nobody waits for the lock
  const std::lock_guard driver_lock(driver_mutex_);
  if (is_capturing()) return;
  const DriverScope scope(pages_->driver(), pages_->context());
  give_back_pools();
  std::unique_ptr<PlannedArena> next;  // ours alone from here: others may get a new candidate
  PlanOrigin origin;
  std::unique_ptr<PlannedArena> dropped;
  bool begins_log = false;
  bool passes = false;
  bool trims = false;
  {
    const std::lock_guard lock(lock_);
    trims = std::exchange(is_trim_due_, false);
    dropped = std::move(dropped_);
    if (std::exchange(is_switch_due_, false)) {
      next = std::move(candidate_);
      origin = std::exchange(candidate_origin_, {});
      begins_log = std::exchange(is_log_due_, false) && next == nullptr &&
                   configuration_.mode == Mode::run && log_ == nullptr;
    }
    passes = std::exchange(is_pass_due_, false) && planned_ != nullptr;
  }
  if (next != nullptr) {
    switch_to(std::move(next), origin);
  } else if (begins_log) {
    begin_log();
  } else if (passes) {
    judge_pass();
  } else if (trims) {
    trim_in_first_pass();
  }
}

// REQUIRES: driver lock.
void DeviceAllocator::switch_to(std::unique_ptr<PlannedArena> next, const PlanOrigin& origin) {
  const int64_t began = now_ns();
  bool had_plan = false;
  Collected collected;
  {
    const std::lock_guard lock(lock_);
    had_plan = planned_ != nullptr;
    if (had_plan) retired_.push_back(std::move(planned_));
    serves_ = lends_ = false;
    collected = collect(0);
  }
  const bool is_done = give_back(std::move(collected), Wait::for_a_while);
  const int64_t waited = now_ns() - began;
  if (!is_done || !map_arena(*next)) {
    pages_->release_idle();
    const std::lock_guard lock(lock_);
    note_reserved();
    plan_figures_.refused = is_done ? "no memory for the plan's " +
                                          format_bytes(Bytes{next->plan().bytes}) +
                                          " beside what is in use"
                                    : "the device could not be waited for: " + pages_->last_error();
    // The plan that served until now is gone: a new log, once, as a plan served.
    if (had_plan || ++plan_figures_.switches_without_memory < kMostSwitchesWithoutMemory) {
      is_switch_due_ = is_log_due_ = true;
    }
    return;
  }
  pages_->release_idle();
  std::vector<CudaEvent*> joins;
  {
    const std::lock_guard lock(lock_);
    joins = take_joins();
  }
  events_->give_back(joins);
  start_serving(std::move(next), origin, waited, began);
}

void DeviceAllocator::start_serving(std::unique_ptr<PlannedArena> next, const PlanOrigin& origin,
                                    int64_t waited_ns, int64_t began_ns) {
  const std::lock_guard lock(lock_);
  PlanFigures& f = plan_figures_;
  const bool is_first = f.switches++ == 0;
  if (is_first) {
    f.reserved_floor = statistics_.reserved_bytes.peak;
    f.allocated_floor = statistics_.allocated_bytes.peak;
    f.reserved_before = std::max(f.reserved_before, f.reserved_floor);
    f.allocated_before = std::max(f.allocated_before, f.allocated_floor);
    f.began_from_file = next->plan().is_of_file;
  }
  note_reserved();
  if (is_first) {
    statistics_.reserved_bytes.reset_peak();
    statistics_.allocated_bytes.reset_peak();
    f.reserved_peak = statistics_.reserved_bytes.current();
  }
  planned_ = std::move(next);
  f.is_from_file = planned_->plan().is_of_file;
  f.origin = origin;
  serves_ = true;
  lends_ = planned_->plan().lends_in_order;
  f.plan_bytes = planned_->plan().bytes;
  f.refused.clear();
  f.switch_wait_ns = waited_ns;
  f.switch_ns = now_ns() - began_ns;
  f.passes = 0;
  f.next_trim = 1;
  f.gone_bytes = 0;
  f.was_lending = true;
  f.poor_passes = 0;
  f.unserved = 0;
  f.general_needs.fill(0);
  f.poor_marks = 0;
  f.planned_at_mark = statistics_.planned_requests;
  f.requests_at_mark =
      f.planned_at_mark + statistics_.reused_requests + statistics_.fallback_requests;
  f.general_at_start = f.general_peak = general_bytes_;
}

// An optimizer's step is done: between two of them lies an iteration. A plan that was made without
// marks, of what repeats within one, and has no slot for much of it, is held against a new one.
// REQUIRES: the lock.
void DeviceAllocator::judge_mark() {
  PlanFigures& f = plan_figures_;
  if (planned_ == nullptr || candidate_ != nullptr) return;  // which still finds its place
  if (f.origin.is_marked || f.poor_marks == kPoorMarks) return;
  const int64_t planned = statistics_.planned_requests;
  const int64_t all = planned + statistics_.reused_requests + statistics_.fallback_requests;
  // Where every parameter has an optimizer, many marks are one iteration's.
  if (all - f.requests_at_mark < 2 * int64_t{planned_->plan().longest}) return;
  const bool is_poor = static_cast<double>(planned - f.planned_at_mark) <
                       kServedShare * static_cast<double>(all - f.requests_at_mark);
  f.poor_marks = is_poor ? f.poor_marks + 1 : 0;
  f.requests_at_mark = all;
  f.planned_at_mark = planned;
  if (f.poor_marks < kPoorMarks) return;
  is_switch_due_ = is_log_due_ = true;
  // Its passes are shorter than iterations.
  f.replan_after = std::max(f.replan_after, 2 * f.passes + 16 * kMostLoggedPasses);
}

// A piece of memory for each track. All or nothing. REQUIRES: driver lock.
bool DeviceAllocator::map_arena(PlannedArena& arena) {
  ArenaMemory memory;
  memory.arena = &arena;
  bool is_done = true;
  for (uint32_t i = 0; i < arena.plan().tracks.size() && is_done; ++i) {
    const int64_t bytes = round_up(arena.plan().tracks[i].bytes, pages_->page_bytes());
    int64_t address = 0;
    if (bytes == 0) continue;
    if (pages_->is_virtual()) {
      const std::optional<int64_t> span = pages_->reserve(bytes);
      if (!span) {
        is_done = false;
        break;
      }
      address = *span;
      memory.spans.push_back({address, bytes, 0});
      is_done = pages_->map(address, bytes) == DevicePages::Outcome::done;
    } else {
      is_done = pages_->allocate(bytes, address) == DevicePages::Outcome::done;
    }
    if (is_done) memory.mapped.push_back({address, bytes, i});
    arena.place(i, address);
  }
  if (is_done) {
    arena_memory_.push_back(std::move(memory));
    return true;
  }
  // Nothing was ever placed in it.
  for (const GeneralArena::Piece& piece : memory.mapped) {
    if (pages_->is_virtual()) {
      pages_->unmap(piece.address, piece.bytes);
    } else {
      pages_->free(piece.address, piece.bytes);
    }
  }
  for (const GeneralArena::Piece& span : memory.spans) pages_->unreserve(span.address, span.bytes);
  return false;
}

// The plan serves no more; its blocks stay where they are until they are released. Nor does one
// that has not found its place yet: there would be no memory for it, and a new log begins instead.
// REQUIRES: driver lock.
void DeviceAllocator::retire_plan(const std::string& why) {
  std::unique_ptr<PlannedArena> older;  // freed without the lock
  const std::lock_guard lock(lock_);
  if (candidate_ != nullptr) older = std::exchange(dropped_, std::move(candidate_));
  if (planner_ != nullptr && planner_->has_candidate()) drop_log();  // and with it what it led to
  retired_.push_back(std::move(planned_));
  serves_ = lends_ = false;
  plan_figures_.refused = why;
  is_switch_due_ = is_log_due_ = true;  // at the next boundary that somebody sees
}

// For one that needs more than best fit did; its idle pages go back where the device is done soon.
// Once a new log begins; after that best fit serves. REQUIRES: driver lock.
void DeviceAllocator::give_up_plan() {
  const bool is_last = plan_figures_.outgrown + 1 >= kMostOutgrown;
  if (is_last && planner_ != nullptr) planner_->watch(nullptr);  // and whatever it found
  retire_plan("the plan and what did not come as planned needed more than best fit did");
  Collected collected;
  {
    const std::lock_guard lock(lock_);
    ++plan_figures_.outgrown;
    if (is_last) {
      drop_log();
      is_log_due_ = false;
      go_without_plan(plan_figures_.refused);
    }
    collected = collect(0);
  }
  give_back(std::move(collected), Wait::for_a_while);
  release_idle();
}

// Pages of arenas that serve no more, where nothing lies; and the arenas in which nothing does.
// REQUIRES: the lock and the driver lock.
void DeviceAllocator::collect_retired(Collected& collected) {
  std::erase_if(arena_memory_, [&](ArenaMemory& memory) {
    if (memory.arena == planned_.get() && memory.arena != nullptr) return false;
    std::vector<PlannedArena::Shown> blocks;
    if (memory.arena != nullptr) blocks = memory.arena->blocks();
    const int64_t step = pages_->page_bytes();
    // By address, so that one look-up does for a page: they do not overlap.
    std::sort(blocks.begin(), blocks.end(),
              [](const auto& a, const auto& b) { return a.address < b.address; });
    const auto is_idle = [&](int64_t address, int64_t bytes) {
      const auto above = std::partition_point(
          blocks.begin(), blocks.end(),
          [&](const PlannedArena::Shown& block) { return block.address < address + bytes; });
      return above == blocks.begin() ||
             std::prev(above)->address + std::prev(above)->room <= address;
    };
    std::vector<GeneralArena::Piece> left;
    for (const GeneralArena::Piece& piece : memory.mapped) {
      if (!pages_->is_virtual()) {
        (is_idle(piece.address, piece.bytes) ? collected.retired_pieces : left).push_back(piece);
        continue;
      }
      if (blocks.empty()) {
        collected.retired_pages.push_back(piece);
        continue;
      }
      for (int64_t at = piece.address; at < piece.address + piece.bytes; at += step) {
        (is_idle(at, step) ? collected.retired_pages : left).push_back({at, step, piece.range});
      }
    }
    memory.mapped = std::move(left);
    if (!memory.mapped.empty() || !blocks.empty()) return false;
    collected.spans.insert(collected.spans.end(), memory.spans.begin(), memory.spans.end());
    const auto arena = std::find_if(retired_.begin(), retired_.end(), [&](const auto& retired) {
      return retired.get() == memory.arena;
    });
    if (arena != retired_.end()) {
      collected.arenas.push_back(std::move(*arena));
      retired_.erase(arena);
    }
    return true;
  });
}

// An iteration has ended. REQUIRES: driver lock.
void DeviceAllocator::judge_pass() {
  Collected collected;
  bool begins_log = false;
  {
    const std::lock_guard lock(lock_);
    PlanFigures& f = plan_figures_;
    const int64_t need = f.general_peak - f.general_at_start;
    f.general_needs[static_cast<size_t>(f.passes) % f.general_needs.size()] = need;
    f.general_at_start = f.general_peak = general_bytes_;
    ++f.passes;
    const int64_t poor =
        std::max(static_cast<int64_t>(kPoorShare * static_cast<double>(f.plan_bytes)),
                 8 * pages_->page_bytes());
    const bool is_lost = f.unserved > 2 * int64_t{planned_->plan().longest} + kLeastFollowed;
    f.poor_passes =
        (f.poor_passes << 1 | (need > poor || is_lost ? 1U : 0U)) & ((1U << kJudgedPasses) - 1);
    f.unserved = 0;
    begins_log = configuration_.mode == Mode::run && log_ == nullptr && candidate_ == nullptr &&
                 std::popcount(f.poor_passes) >= kPoorPasses && f.passes >= f.replan_after;
    if (begins_log) f.replan_after = 2 * f.passes + kMostLoggedPasses;
    if (log_ != nullptr && f.passes + kPoorPasses >= f.replan_after) drop_log();
    // What a lender needed elsewhere for once, as soon as it is released.
    if (std::exchange(f.was_lending, planned_->is_lending()) && !f.was_lending) {
      f.next_trim = f.passes + 1;
    }
    // Pages that only the time before the plan needed, at ever longer distances.
    if (f.passes >= f.next_trim) {
      f.next_trim = 2 * f.passes;
      const int64_t keep = *std::max_element(f.general_needs.begin(), f.general_needs.end());
      collected = collect_spare(keep);
    }
  }
  give_back_spare(std::move(collected));
  if (begins_log) begin_log();
}

// Pages that nothing lies in, but for so many bytes of them; none where they are few.
// REQUIRES: the lock and the driver lock.
DeviceAllocator::Collected DeviceAllocator::collect_spare(int64_t keep_bytes) {
  const int64_t spare = general_->collectable_bytes() - keep_bytes;
  if (spare <= statistics_.reserved_bytes.current() / kFewPages && retired_.empty()) return {};
  ++plan_figures_.trims;
  return collect(keep_bytes);
}

// REQUIRES: driver lock.
void DeviceAllocator::give_back_spare(Collected collected) {
  if (collected.is_empty()) return;
  give_back(std::move(collected), Wait::for_a_while);
  pages_->release_idle();
  const std::lock_guard lock(lock_);
  note_reserved();
}

// What was alive at the switch has bytes of the plan, too, and is there twice until it goes: so
// its pages are given back before this pass is at its highest. Once for each hundredth of what is
// reserved. REQUIRES: the lock.
void DeviceAllocator::note_gone(int64_t bytes) {
  plan_figures_.gone_bytes += bytes;
  if (plan_figures_.gone_bytes <= statistics_.reserved_bytes.current() / kFewPages) return;
  plan_figures_.gone_bytes = 0;
  is_trim_due_ = true;
}

// REQUIRES: driver lock.
void DeviceAllocator::trim_in_first_pass() {
  Collected collected;
  {
    const std::lock_guard lock(lock_);
    if (planned_ == nullptr) return;
    const PlanFigures& f = plan_figures_;
    collected = collect_spare(std::max<int64_t>(f.general_peak - f.general_at_start, 0));
  }
  give_back_spare(std::move(collected));
}

}  // namespace headroom::runtime
