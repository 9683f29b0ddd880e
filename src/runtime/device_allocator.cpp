#include "runtime/device_allocator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>

#include "base/units.h"
#include "runtime/clock.h"
#include "runtime/memory_wanted.h"

namespace headroom::runtime {
namespace {

constexpr int64_t kMostRequest = int64_t{1} << 46;
constexpr int64_t kUnservedForJudgement = 65'536;

int64_t address_of(const void* pointer) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer));
}
void* pointer_to(int64_t address) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}
// Of all devices that are open, for their default streams.
std::array<std::atomic<CudaContext*>, 64> open_contexts{};

}  // namespace

Result<std::unique_ptr<DeviceAllocator>> DeviceAllocator::open(const Driver& driver, int ordinal,
                                                               const Configuration& configuration) {
  std::unique_ptr<DeviceAllocator> device(new DeviceAllocator(ordinal, configuration));
  // One process of many uses one device, mostly; others are told from the second one on.
  const bool has_others =
      std::any_of(open_contexts.begin(), open_contexts.end(),
                  [](const auto& context) { return context.load() != nullptr; });
  DevicePages::Wishes wishes;
  wishes.without_virtual_memory = configuration.without_virtual_memory;
  wishes.needs_peers =
      !configuration.copies_name_devices && (configuration.world_size <= 1 || has_others);
  wishes.is_late = configuration.world_size > 1 && has_others;
  HEADROOM_ASSIGN(device->pages_, DevicePages::open(driver, ordinal, wishes));
  device->events_ =
      std::make_unique<EventQueue>(driver, device->pages_->context(), device->captures_);
  device->general_ = std::make_unique<GeneralArena>(device->pages_->page_bytes());
  device->start_ns_ = now_ns();
  open_contexts[static_cast<size_t>(ordinal) % open_contexts.size()] = device->pages_->context();
  if (!configuration.record_path.empty()) {
    memory::RecordingIdentity identity;
    identity.device = ordinal;
    identity.rank = configuration.rank;
    identity.world_size = configuration.world_size;
    identity.device_total_bytes = device->pages_->total_bytes();
    identity.start_unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count();
    auto writer = memory::RecordingWriter::open(
        path_for(configuration.record_path, ordinal, configuration.rank), identity);
    if (writer) {
      device->recording_ = std::move(*writer);
    } else {
      device->no_recording_ = writer.error().to_string();
    }
  }
  if (configuration.mode == Mode::run || configuration.mode == Mode::serve) device->load_plan();
  if (configuration.mode == Mode::run && device->candidate_ == nullptr) {
    device->begin_log();
  }
  return device;
}

void DeviceAllocator::record(memory::RecordKind kind, int64_t address, int64_t size,
                             CudaStream* stream) {
  if (recording_ == nullptr) return;
  memory::RecordingWriter::Event event;
  event.stream = address_of(stream);
  event.address = address;
  event.size = size;
  event.time_ns = now_ns() - start_ns_;
  recording_->event(kind, event);
}

void* DeviceAllocator::allocate(int64_t size, CudaStream* stream, std::string& out_of_memory) {
  if (size > kMostRequest) size = kMostRequest;  // no device has it: out of memory, as it should be
  Request request{size, round_up(size, kAlignment), stream};
  if (!events_->is_empty() && !is_capturing()) [[unlikely]]
    poll_events();
  if (lends_.load(std::memory_order_relaxed)) [[unlikely]]
    join_streams(stream);
  bool is_boundary = false;
  int64_t address = 0;
  {
    const std::lock_guard lock(lock_);
    if (log_ != nullptr) [[unlikely]] {
      request.log = logs_;
      request.serial = log_request(size, stream);
      if (log_->is_full()) give_up_log();
    }
    address = serve(request, is_boundary);
  }
  if (is_boundary) [[unlikely]] {
    at_boundary();
    if (address == 0) address = serve_behind_boundary(request);
  }
  if (address == 0) [[unlikely]] {
    void* const pointer = allocate_slowly(request, false, out_of_memory);
    if (pointer != nullptr) return pointer;
    MemoryWanted::ask(size, ordinal_);
    return allocate_slowly(request, true, out_of_memory);
  }
  if (recording_ != nullptr) [[unlikely]] {
    record(memory::RecordKind::alloc, address, size, stream);
  }
  return pointer_to(address);
}

// REQUIRES: the lock.
int64_t DeviceAllocator::serve(const Request& request, bool& is_boundary) {
  if (planned_ != nullptr && (!is_capturing() || pool_for(request.stream) == kGeneralPool))
      [[likely]] {
    const int64_t address = serve_planned(request, is_boundary);
    if (address != 0) [[likely]]
      return address;
  }
  if (candidate_ != nullptr || (planner_ != nullptr && planner_->has_candidate())) [[unlikely]] {
    is_boundary = follow_candidate(request) || is_boundary;
  }
  if (is_switch_due_ || is_pool_due_ || is_trim_due_) [[unlikely]]
    is_boundary = true;
  // What begins a pass is the plan's, not beside it for as long as it lives.
  if (is_switch_due_ && !is_capturing()) return 0;
  return serve_general(request);
}

// REQUIRES: the lock. 0 where more memory has to be mapped.
int64_t DeviceAllocator::serve_general(const Request& request) {
  const uint32_t block = try_general(request);
  return block == kNoNumber ? 0 : hand_out(block, request);
}

// The request at which a plan may have begun to serve. 0 as above.
int64_t DeviceAllocator::serve_behind_boundary(const Request& request) {
  const std::lock_guard lock(lock_);
  if (planned_ != nullptr && pool_for(request.stream) == kGeneralPool) {
    const uint32_t serial = request.log == logs_ ? request.serial : RequestLog::kNoSerial;
    const PlannedArena::Served first = planned_->serve_first(request.stream, request.size, serial);
    if (first.source != PlannedArena::Source::none) {
      statistics_.begin_block(request.rounded, request.size);
      ++statistics_.planned_requests;
      return first.address;
    }
  }
  return serve_general(request);
}

// REQUIRES: the lock. 0 where the plan has no room for it.
int64_t DeviceAllocator::serve_planned(const Request& request, bool& is_boundary) {
  const PlannedArena::Served served =
      planned_->allocate(request.stream, request.size, request.serial);
  if (served.begins_pass) [[unlikely]]
    is_boundary = is_pass_due_ = true;
  if (served.source == PlannedArena::Source::none) [[unlikely]] {
    ++statistics_.fallback_requests;
    // Where passes do not end any more, too, somebody must see that the plan is of no use.
    if (++plan_figures_.unserved % kUnservedForJudgement == 0) is_boundary = is_pass_due_ = true;
    return 0;
  }
  if (candidate_ != nullptr || (planner_ != nullptr && planner_->has_candidate())) [[unlikely]] {
    is_boundary = follow_candidate(request) || is_boundary;
  }
  statistics_.begin_block(request.rounded, request.size);
  if (served.source == PlannedArena::Source::planned) {
    ++statistics_.planned_requests;
  } else {
    ++statistics_.reused_requests;
  }
  return served.address;
}

// REQUIRES: the lock.
uint32_t DeviceAllocator::try_general(const Request& request) {
  const uint32_t range =
      general_->range_of(pool_for(request.stream), request.stream, request.rounded);
  return general_->take(range, request.rounded);
}

// REQUIRES: the lock; a live block that nobody has yet.
int64_t DeviceAllocator::hand_out(uint32_t number, const Request& request) {
  GeneralArena::Block& block = general_->block(number);
  block.requested = request.size;
  // Another log may have begun since it was asked for.
  block.serial = request.log == logs_ ? request.serial : RequestLog::kNoSerial;
  blocks_.insert(block.address, number);
  statistics_.begin_block(block.size, request.size);
  ++statistics_.general_requests;
  general_bytes_ += block.size;
  plan_figures_.general_peak = std::max(plan_figures_.general_peak, general_bytes_);
  return block.address;
}

int64_t DeviceAllocator::free(void* pointer) {
  const int64_t address = address_of(pointer);
  int64_t bytes = 0;
  std::vector<StreamUse> streams;
  {
    const std::lock_guard lock(lock_);
    if (PlannedArena* const arena = planned_at(address)) {
      PlannedArena::Block* const block = arena->find(address);
      if (block == nullptr || block->is_pending) return 0;
      bytes = round_up(block->requested, kAlignment);
      record(memory::RecordKind::free_requested, address, block->requested, nullptr);
      statistics_.end_block(bytes, block->requested);
      const bool hands_over = arena->hand_over(address);
      if (!block->has_uses && !hands_over) {
        release_planned(*arena, address);
        return bytes;
      }
      if (hands_over) await_users(*arena, address);
      block->is_pending = true;
      log_release(block->serial, RequestLog::Kind::release_asked);
    } else {
      const uint32_t number = blocks_.find(address);
      if (number == kNoNumber) return 0;
      GeneralArena::Block& block = general_->block(number);
      if (block.state != BlockState::live) return 0;  // released before
      bytes = block.size;
      record(memory::RecordKind::free_requested, address, block.requested, nullptr);
      statistics_.end_block(bytes, block.requested);
      if (!block.has_uses) {
        complete_general(number);
        return bytes;
      }
      general_->set_pending(number);
      log_release(block.serial, RequestLog::Kind::release_asked);
    }
    defer(address, bytes, streams);
  }
  const DriverScope scope(pages_->driver(), pages_->context());
  events_->add(address, streams, [this](int64_t done) { complete_pending(done); });
  return bytes;
}

bool DeviceAllocator::is_live(void* pointer) {
  const int64_t address = address_of(pointer);
  const std::lock_guard lock(lock_);
  if (PlannedArena* const arena = planned_at(address)) {
    const PlannedArena::Block* const block = arena->find(address);
    return block != nullptr && !block->is_pending;
  }
  const uint32_t number = blocks_.find(address);
  return number != kNoNumber && general_->block(number).state == BlockState::live;
}

// REQUIRES: the lock.
PlannedArena* DeviceAllocator::planned_at(int64_t address) const {
  if (planned_ != nullptr && planned_->contains(address)) return planned_.get();
  for (const auto& arena : retired_) {
    if (arena->contains(address)) return arena.get();
  }
  return nullptr;
}

// A block that other streams used is released: it waits. REQUIRES: the lock.
void DeviceAllocator::defer(int64_t address, int64_t bytes, std::vector<StreamUse>& streams) {
  const auto uses = uses_.find(address);
  streams = std::move(uses->second);
  uses_.erase(uses);
  statistics_.pending_blocks.add(1);
  statistics_.pending_bytes.add(bytes);
  statistics_.note_active();
}

// REQUIRES: the lock; a live or pending block of the arena.
void DeviceAllocator::release_planned(PlannedArena& arena, int64_t address) {
  const PlannedArena::Block& block = *arena.find(address);
  record(memory::RecordKind::free_completed, address, block.requested, nullptr);
  log_release(block.serial, RequestLog::Kind::release_done);
  arena.release(address);
}

// REQUIRES: the lock; the block is live or pending, and in the table.
void DeviceAllocator::complete_general(uint32_t number) {
  const GeneralArena::Block& block = general_->block(number);
  record(memory::RecordKind::free_completed, block.address, block.requested, nullptr);
  log_release(block.serial, RequestLog::Kind::release_done);
  general_bytes_ -= block.size;
  if (planned_ != nullptr && plan_figures_.passes == 0) [[unlikely]]
    note_gone(block.size);
  if (!pools_.empty() && general_->is_last_of_released(number)) [[unlikely]]
    is_pool_due_ = true;
  blocks_.erase(block.address);
  general_->give(number);
}

void DeviceAllocator::complete_pending(int64_t address) {
  const std::lock_guard lock(lock_);
  statistics_.pending_blocks.subtract(1);
  if (PlannedArena* const arena = planned_at(address)) {
    statistics_.pending_bytes.subtract(round_up(arena->find(address)->requested, kAlignment));
    release_planned(*arena, address);
    return;
  }
  const uint32_t number = blocks_.find(address);
  statistics_.pending_bytes.subtract(general_->block(number).size);
  complete_general(number);
}

void DeviceAllocator::poll_events() {
  const DriverScope scope(pages_->driver(), pages_->context());
  events_->poll([this](int64_t address) { complete_pending(address); });
}

bool DeviceAllocator::record_stream(void* pointer, CudaStream* stream) {
  const int64_t address = address_of(pointer);
  const std::lock_guard lock(lock_);
  const CudaStream* own = nullptr;
  int64_t requested = 0;
  bool* has_uses = nullptr;
  if (PlannedArena* const arena = planned_at(address)) {
    PlannedArena::Block* const block = arena->find(address);
    if (block == nullptr || block->is_pending) return false;
    own = arena->stream_at(address);
    requested = block->requested;
    has_uses = &block->has_uses;
  } else {
    const uint32_t number = blocks_.find(address);
    if (number == kNoNumber) return false;
    GeneralArena::Block& block = general_->block(number);
    if (block.state != BlockState::live) return false;
    own = general_->ranges()[general_->segments()[block.segment].range]->stream;
    requested = block.requested;
    has_uses = &block.has_uses;
  }
  const auto add = [&](const StreamUse& use) {
    *has_uses = true;
    std::vector<StreamUse>& streams = uses_[address];
    if (std::find(streams.begin(), streams.end(), use) == streams.end()) streams.push_back(use);
  };
  if (stream == nullptr) {
    for (const std::atomic<CudaContext*>& open : open_contexts) {
      CudaContext* const context = open.load(std::memory_order_acquire);
      if (context != nullptr && context != pages_->context()) add({nullptr, context});
    }
  }
  if (stream == own) return true;  // its own order is enough
  add({stream, nullptr});
  record(memory::RecordKind::stream_use, address, requested, stream);
  return true;
}

void DeviceAllocator::empty_cache() {
  const std::lock_guard driver_lock(driver_mutex_);
  const DriverScope scope(pages_->driver(), pages_->context());
  give_back_everything();
}

void DeviceAllocator::set_memory_fraction(double fraction) {
  if (!(fraction >= 0) || fraction > 1) return;
  const std::lock_guard driver_lock(driver_mutex_);
  pages_->set_limit(static_cast<int64_t>(fraction * static_cast<double>(pages_->total_bytes())));
}

std::optional<GeneralArena::Piece> DeviceAllocator::base_allocation(void* pointer) {
  const std::lock_guard driver_lock(driver_mutex_);
  const std::lock_guard lock(lock_);
  const int64_t address = address_of(pointer);
  const int64_t page = pages_->page_bytes();
  for (const ArenaMemory& memory : arena_memory_) {
    for (const GeneralArena::Piece& piece : memory.mapped) {
      if (address < piece.address || address >= piece.address + piece.bytes) continue;
      if (!pages_->is_virtual()) return piece;
      const int64_t into = (address - piece.address) / page * page;
      return GeneralArena::Piece{piece.address + into, page, piece.range};
    }
  }
  for (const GeneralArena::Segment& segment : general_->segments()) {
    if (!segment.is_in_use || address < segment.address ||
        address >= segment.address + segment.bytes) {
      continue;
    }
    if (!segment.is_paged)
      return GeneralArena::Piece{segment.address, segment.bytes, segment.range};
    return GeneralArena::Piece{segment.address + (address - segment.address) / page * page, page,
                               segment.range};
  }
  return std::nullopt;
}

DevicePages::Info DeviceAllocator::memory_info() {
  const DriverScope scope(pages_->driver(), pages_->context());
  return pages_->info();
}

void DeviceAllocator::iteration() {
  record(memory::RecordKind::iteration, 0, 0, nullptr);
  const std::lock_guard lock(lock_);
  if (log_ != nullptr) log_->add_mark();
  judge_mark();
}

void DeviceAllocator::expect_iterations() {
  const std::lock_guard lock(lock_);
  expects_iterations_ = true;
  if (planner_ != nullptr) planner_->expect_marks();
}

void DeviceAllocator::finish(std::chrono::steady_clock::time_point until) {
  if (recording_ != nullptr) recording_->close();
  Planner* planner = nullptr;
  {
    const std::lock_guard lock(lock_);
    planner = planner_.get();
    if (planner != nullptr) drop_log();  // nobody will read it; the planner holds it still
  }
  if (planner != nullptr) planner->stop(until);
}

Result<void> DeviceAllocator::check() {
  const std::lock_guard lock(lock_);
  return general_->check();
}

}  // namespace headroom::runtime
