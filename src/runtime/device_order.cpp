// DeviceAllocator's streams: what the program has them wait for, and joins (planned_arena.h).
#include <algorithm>
#include <utility>

#include "runtime/device_allocator.h"

namespace headroom::runtime {

memory::StreamOrder::Ticket DeviceAllocator::record_event(CudaStream* stream) {
  {
    // An event of a capture is an edge of its graph, and orders no streams.
    const DriverScope scope(pages_->driver(), pages_->context());
    if (events_->is_captured(stream)) return 0;
  }
  const std::lock_guard lock(lock_);
  const memory::StreamOrder::Ticket event = order_.record(handle_of(stream));
  record(memory::RecordKind::event_record, static_cast<int64_t>(event), 0, stream);
  if (log_ != nullptr) log_->add_order(RequestLog::Kind::record, handle_of(stream), event);
  return event;
}

void DeviceAllocator::wait_event(CudaStream* stream, memory::StreamOrder::Ticket event) {
  if (event == 0) return;
  {
    const DriverScope scope(pages_->driver(), pages_->context());
    if (events_->is_captured(stream)) return;
  }
  const std::lock_guard lock(lock_);
  order_.wait(handle_of(stream), event);
  if (planned_ != nullptr) planned_->note_wait();
  record(memory::RecordKind::event_wait, static_cast<int64_t>(event), 0, stream);
  if (log_ != nullptr) log_->add_order(RequestLog::Kind::wait, handle_of(stream), event);
}

void DeviceAllocator::forbid_joins() {
  allows_joins_ = false;
  const std::lock_guard lock(lock_);
  if (planner_ != nullptr) planner_->forbid_joins();
  for (PlannedArena* const arena : {planned_.get(), candidate_.get()}) {
    if (arena != nullptr) arena->forbid_joins();
  }
}

// REQUIRES: the lock, where others know the device.
void DeviceAllocator::follow_order(PlannedArena& arena) {
  arena.set_order(&order_);
  if (!allows_joins_) arena.forbid_joins();
}

// Before a request, where the plan lends in the program's order.
void DeviceAllocator::join_streams(CudaStream* stream) {
  if (is_capturing()) return;
  record_for_join();
  Join join;
  uint32_t lender = 0;
  CudaStream* waits = nullptr;
  {
    const std::lock_guard lock(lock_);
    if (planned_ == nullptr) return;
    const auto wanted = planned_->wanted_join(stream);
    if (!wanted || !joins_.contains(*wanted)) return;
    lender = *wanted;
    waits = planned_->borrower();
    join = std::move(joins_[lender]);
    joins_.erase(lender);
    planned_->have_joined(lender);
  }
  const DriverScope scope(pages_->driver(), pages_->context());
  const bool is_done = events_->join(waits, join.events);
  events_->give_back(join.events);
  if (!is_done) return;
  const std::lock_guard lock(lock_);
  for (const memory::StreamOrder::Ticket ticket : join.tickets) {
    order_.wait(handle_of(waits), ticket);
  }
}

// Events behind what lenders have released, while the streams that may be at work on it are quiet.
void DeviceAllocator::record_for_join() {
  for (;;) {
    std::optional<PlannedArena::WantedEvents> wanted;
    const PlannedArena* arena = nullptr;
    Join join;
    {
      const std::lock_guard lock(lock_);
      arena = planned_.get();
      if (arena == nullptr || !arena->is_join_due()) return;
      wanted = planned_->wanted_events();
      if (!wanted) return;
      for (CudaStream* const one : wanted->streams) {
        join.tickets.push_back(order_.record_ours(handle_of(one)));
      }
      planned_->have_recorded(wanted->lender);
    }
    const DriverScope scope(pages_->driver(), pages_->context());
    join.events = events_->record_all(wanted->streams);
    {
      const std::lock_guard lock(lock_);
      const bool is_kept = planned_.get() == arena && !join.events.empty();
      if (is_kept) std::swap(joins_[wanted->lender], join);
    }
    events_->give_back(join.events);  // of the lender's last ones, or of no use
  }
}

// Another plan is to serve: events that are of no use any more. REQUIRES: the lock.
std::vector<CudaEvent*> DeviceAllocator::take_joins() {
  std::vector<CudaEvent*> events;
  for (const auto& [lender, join] : joins_) {
    events.insert(events.end(), join.events.begin(), join.events.end());
  }
  joins_.clear();
  return events;
}

// The block is handed over behind events of its own stream, and of those that may be at work on it.
// REQUIRES: the lock.
void DeviceAllocator::await_users(PlannedArena& arena, int64_t address) {
  std::vector<StreamUse>& uses = uses_[address];
  uses.push_back({arena.stream_at(address), nullptr});
  for (CudaStream* const stream : arena.users(address)) uses.push_back({stream, nullptr});
  std::sort(uses.begin(), uses.end());
  uses.erase(std::unique(uses.begin(), uses.end()), uses.end());
}

}  // namespace headroom::runtime
