// DeviceAllocator's memory from the driver: how it is had where a request finds no room, and how it
// goes back, once the device is done with it. Everything here is under the driver lock.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/units.h"
#include "runtime/device_allocator.h"

namespace headroom::runtime {
namespace {

// PyTorch's segments, for where whole pieces come from the driver.
constexpr int64_t kSmallPiece = 2 * kMiB;
constexpr int64_t kLargePiece = 20 * kMiB;
constexpr int64_t kLeastOwnPiece = 10 * kMiB;
// Address space of one segment of small requests; large ones get as much as the device has memory.
constexpr int64_t kSmallSegment = kGiB;
// Where no plan was worth having: another look once so many times as much is reserved.
constexpr double kGrownReserve = 1.02;
// For what is only better, not needed: far more than hosts run ahead of devices by.
constexpr std::chrono::seconds kLongestWait{5};

}  // namespace

// Null where there is no memory; the last time, the plan's space is given up for it, too.
void* DeviceAllocator::allocate_slowly(const Request& request, bool is_last,
                                       std::string& out_of_memory) {
  const std::lock_guard driver_lock(driver_mutex_);
  const DriverScope scope(pages_->driver(), pages_->context());
  uint32_t block = kNoNumber;
  pages_->forget_last_error();  // of another request
  if (is_plan_outgrown()) give_up_plan();
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
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

// Whether the plan and what lies beside it need more, without what a trim would give back, than
// best fit was predicted to when it was made, with no more alive than then: requests do not come as
// they did. Of a plan from a file nothing was predicted here. REQUIRES: driver lock.
bool DeviceAllocator::is_plan_outgrown() {
  if (is_capturing() || configuration_.always_plans) return false;
  const std::lock_guard lock(lock_);
  const PlanFigures& f = plan_figures_;
  if (planned_ == nullptr || f.is_from_file || f.predicted_best_fit_bytes == 0) return false;
  const auto needed = static_cast<double>(pages_->reserved_bytes() - general_->collectable_bytes());
  // What awaits its events is in use: a device that falls behind is no reason.
  const int64_t live = statistics_.allocated_bytes.current() + statistics_.pending_bytes.current();
  return live <= f.allocated_before &&
         needed > kGrownReserve * static_cast<double>(f.predicted_best_fit_bytes);
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

}  // namespace headroom::runtime
