#include "runtime/device_allocator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>

#include "base/units.h"
#include "runtime/memory_wanted.h"

namespace headroom::runtime {
namespace {

// PyTorch's segments, for where whole pieces come from the driver.
constexpr int64_t kSmallPiece = 2 * kMiB;
constexpr int64_t kLargePiece = 20 * kMiB;
constexpr int64_t kLeastOwnPiece = 10 * kMiB;
// Address space of one segment of small requests; large ones get as much as the device has memory.
constexpr int64_t kSmallSegment = kGiB;
constexpr int64_t kMostRequest = int64_t{1} << 46;
constexpr int64_t kUnservedForJudgement = 65'536;
// Where no plan was worth having: another look once so many times as much is reserved.
constexpr double kGrownReserve = 1.02;
// For what is only better, not needed: far more than hosts run ahead of devices by.
constexpr std::chrono::seconds kLongestWait{5};

int64_t address_of(const void* pointer) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer));
}
void* pointer_to(int64_t address) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}
// Of all devices that are open, for their default streams.
std::array<std::atomic<CudaContext*>, 64> open_contexts{};

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Result<std::unique_ptr<DeviceAllocator>> DeviceAllocator::open(const Driver& driver, int ordinal,
                                                               const Configuration& configuration) {
  std::unique_ptr<DeviceAllocator> device(new DeviceAllocator(ordinal, configuration));
  HEADROOM_ASSIGN(device->pages_,
                  DevicePages::open(driver, ordinal, configuration.without_virtual_memory));
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
  if (is_switch_due_ || is_pool_due_) [[unlikely]]
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

// Null where there is no memory; the last time, the plan's space is given up for it, too.
void* DeviceAllocator::allocate_slowly(const Request& request, bool is_last,
                                       std::string& out_of_memory) {
  const std::lock_guard driver_lock(driver_mutex_);
  const DriverScope scope(pages_->driver(), pages_->context());
  uint32_t block = kNoNumber;
  pages_->forget_last_error();  // of another request
  Attempt attempt = grow(request, block);
  if (attempt == Attempt::no_memory) {
    if (!is_last) {
      const std::lock_guard lock(lock_);
      ++statistics_.retries;
    }
    if (give_back_everything()) attempt = grow(request, block);
    if (attempt == Attempt::no_memory && !is_last) {
      release_idle();
      return nullptr;
    }
    // The last reserve: planned space between requests.
    if (attempt == Attempt::no_memory && planned_ != nullptr && !is_capturing()) {
      retire_plan("out of memory");
      if (give_back_everything()) attempt = grow(request, block);
    }
  }
  if (attempt == Attempt::no_memory) {
    release_idle();
    {
      const std::lock_guard lock(lock_);
      look_again();
    }
    out_of_memory = out_of_memory_message(request);
    record(memory::RecordKind::out_of_memory, pages_->info().free_bytes, request.size,
           request.stream);
    return nullptr;
  }
  int64_t address = 0;
  {
    const std::lock_guard lock(lock_);
    address = hand_out(block, request);
  }
  record(memory::RecordKind::alloc, address, request.size, request.stream);
  return pointer_to(address);
}

// REQUIRES: driver lock.
DeviceAllocator::Attempt DeviceAllocator::grow(const Request& request, uint32_t& block) {
  uint32_t range = 0;
  {
    const std::lock_guard lock(lock_);
    range = general_->range_of(pool_for(request.stream), request.stream, request.rounded);
    block = general_->take(range, request.rounded);  // somebody may have freed it meanwhile
  }
  if (block != kNoNumber) return Attempt::done;
  return pages_->is_virtual() ? grow_by_pages(request, range, block)
                              : grow_by_piece(request, range, block);
}

// Where pages cannot be mapped at one place for another reason than that there are none, another
// segment is tried, once. One that succeeds shows that it was the place, which is avoided then.
DeviceAllocator::Attempt DeviceAllocator::grow_by_pages(const Request& request, uint32_t range,
                                                        uint32_t& block) {
  if (request.rounded > pages_->total_bytes()) return Attempt::no_memory;
  uint32_t failed = kNoNumber;  // segment
  for (;;) {
    const std::optional<GeneralArena::Growth> growth = place_growth(request, range, failed, block);
    if (block != kNoNumber) return Attempt::done;
    if (!growth) return Attempt::no_memory;
    const DevicePages::Outcome outcome = pages_->map(growth->address, growth->bytes);
    const std::lock_guard lock(lock_);
    note_reserved();
    if (outcome == DevicePages::Outcome::done) {
      block = general_->commit_growth(*growth, request.rounded);
      if (failed != kNoNumber) general_->avoid(failed);
      record(memory::RecordKind::segment_map, growth->address, growth->bytes, request.stream);
      return Attempt::done;
    }
    const uint32_t segment = general_->block(growth->block).segment;
    general_->abort_growth(*growth);
    if (outcome == DevicePages::Outcome::no_memory || failed != kNoNumber)
      return Attempt::no_memory;
    failed = segment;
  }
}

// Where pages are to be mapped, in address space that is reserved for it where there is none; or a
// block, where there was room after all. Neither: no address space is left.
std::optional<GeneralArena::Growth> DeviceAllocator::place_growth(const Request& request,
                                                                  uint32_t range, uint32_t but_not,
                                                                  uint32_t& block) {
  {
    // Under one lock with begin_growth(): what is released between the two would be enough.
    const std::lock_guard lock(lock_);
    block = general_->take(range, request.rounded);
    if (block != kNoNumber) return std::nullopt;
    if (const auto growth = general_->begin_growth(range, request.rounded, but_not)) return growth;
  }
  const int64_t wish = request.rounded <= kMostSmall
                           ? std::min(kSmallSegment, pages_->total_bytes())
                           : pages_->total_bytes();
  const int64_t bytes = round_up(std::max(wish, request.rounded), pages_->page_bytes());
  const std::optional<int64_t> address = pages_->reserve(bytes);
  if (!address) return std::nullopt;
  const std::lock_guard lock(lock_);
  general_->add_segment(range, *address, bytes, true);
  block = general_->take(range, request.rounded);
  if (block != kNoNumber) return std::nullopt;
  return general_->begin_growth(range, request.rounded, but_not);
}

DeviceAllocator::Attempt DeviceAllocator::grow_by_piece(const Request& request, uint32_t range,
                                                        uint32_t& block) {
  int64_t bytes = kSmallPiece;
  if (request.rounded > kMostSmall) {
    bytes = request.rounded < kLeastOwnPiece ? kLargePiece : round_up(request.rounded, kSmallPiece);
  }
  int64_t address = 0;
  if (pages_->allocate(bytes, address) != DevicePages::Outcome::done) return Attempt::no_memory;
  record(memory::RecordKind::segment_alloc, address, bytes, request.stream);
  const std::lock_guard lock(lock_);
  note_reserved();
  general_->add_segment(range, address, bytes, false);
  block = general_->take(range, request.rounded);
  return Attempt::done;
}

// REQUIRES: the lock and the driver lock; give_back() before either arena grows again.
DeviceAllocator::Collected DeviceAllocator::collect(int64_t keep_bytes) {
  Collected collected;
  collected.pages = general_->collect_pages(keep_bytes);
  collected.pieces = general_->collect_segments();
  collect_retired(collected);
  return collected;
}

// Waits for the device, which may still be at work on what was collected, and takes the memory
// away. Pages become idle ones. False where waiting is not allowed, or took too long: then all is
// as before. REQUIRES: driver lock.
bool DeviceAllocator::give_back(Collected collected, Wait wait) {
  if (!collected.is_empty()) {
    const bool is_done =
        !is_capturing() &&
        (wait == Wait::for_ever ? pages_->synchronize() : pages_->synchronize_within(kLongestWait));
    const std::lock_guard lock(lock_);
    if (is_done) ++statistics_.synchronisations;
    if (!is_done) {
      general_->restore(collected.pages);
      for (const GeneralArena::Piece& piece : collected.pieces) {
        general_->add_segment(piece.range, piece.address, piece.bytes, false);
      }
      arena_memory_.push_back({nullptr, {}, collected.spans});
      auto& orphans = arena_memory_.back().mapped;
      orphans = collected.retired_pages;
      orphans.insert(orphans.end(), collected.retired_pieces.begin(),
                     collected.retired_pieces.end());
      return false;
    }
  }
  for (const auto* const pages : {&collected.pages, &collected.retired_pages}) {
    for (const GeneralArena::Piece& piece : *pages) {
      pages_->unmap(piece.address, piece.bytes);
      record(memory::RecordKind::segment_unmap, piece.address, piece.bytes, nullptr);
    }
  }
  for (const auto* const pieces : {&collected.pieces, &collected.retired_pieces}) {
    for (const GeneralArena::Piece& piece : *pieces) {
      pages_->free(piece.address, piece.bytes);
      record(memory::RecordKind::segment_free, piece.address, piece.bytes, nullptr);
    }
  }
  for (const GeneralArena::Piece& span : collected.spans) {
    pages_->unreserve(span.address, span.bytes);
  }
  return true;
}

// Everything that no block lies in goes back to the driver. REQUIRES: driver lock.
bool DeviceAllocator::give_back_everything() {
  if (is_capturing()) return false;
  events_->drain([this](int64_t address) { complete_pending(address); });
  Collected collected;
  {
    const std::lock_guard lock(lock_);
    collected = collect(0);
  }
  const bool is_done = give_back(std::move(collected), Wait::for_ever);
  release_idle();
  return is_done;
}

// Who is refused leaves what there was to others: NCCL, cuBLAS, another process.
// REQUIRES: driver lock.
void DeviceAllocator::release_idle() {
  pages_->release_idle();
  const std::lock_guard lock(lock_);
  note_reserved();
}

// REQUIRES: the lock and the driver lock.
void DeviceAllocator::note_reserved() {
  const auto follow = [](Figure& figure, int64_t now) {
    if (now > figure.current()) figure.add(now - figure.current());
    if (now < figure.current()) figure.subtract(figure.current() - now);
  };
  follow(statistics_.reserved_bytes, pages_->reserved_bytes());
  follow(statistics_.pieces, pages_->allocations() - pages_->releases());
  plan_figures_.reserved_peak =
      std::max(plan_figures_.reserved_peak, statistics_.reserved_bytes.current());
  statistics_.free_peak_bytes = std::max(statistics_.free_peak_bytes, general_->free_bytes());
  statistics_.free_peak_blocks = std::max(statistics_.free_peak_blocks, general_->free_blocks());
  const auto decided_at = static_cast<double>(plan_figures_.reserved_without_plan);
  if (static_cast<double>(pages_->reserved_bytes()) > kGrownReserve * decided_at) look_again();
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
      if (!block->has_uses) {
        release_planned(*arena, address);
        return bytes;
      }
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

std::string DeviceAllocator::out_of_memory_message(const Request& request) {
  const DevicePages::Info info = pages_->info();
  const std::lock_guard lock(lock_);
  ++statistics_.out_of_memory;
  const int64_t allocated = statistics_.allocated_bytes.current();
  const int64_t reserved = pages_->reserved_bytes();
  return "CUDA out of memory. Tried to allocate " + format_bytes(Bytes{request.size}) + ". GPU " +
         std::to_string(ordinal_) + " has a total capacity of " +
         format_bytes(Bytes{info.total_bytes}) + " of which " +
         format_bytes(Bytes{info.free_bytes}) + " is free. Of the allocated memory " +
         format_bytes(Bytes{allocated}) + " is allocated by PyTorch, and " +
         format_bytes(Bytes{reserved - allocated}) + " is reserved by PyTorch but unallocated. " +
         (is_capturing() ? "While a graph is captured Headroom gives back none of that"
                         : "Headroom gave back every page in which nothing lies before it said "
                           "so") +
         (pages_->last_error().empty() ? std::string() : " (" + pages_->last_error() + ")") + ".";
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
