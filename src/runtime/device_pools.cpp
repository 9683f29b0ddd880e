// DeviceAllocator's private pools: what a graph captures is served from one, and its addresses stay
// mapped and unshared until every graph that shares it has released it. Then its memory goes back
// to the driver: at once where nothing lies in it, else at the first request after its last block
// is gone; never during a capture, which forbids waiting for the device.
#include <algorithm>
#include <utility>

#include "runtime/device_allocator.h"

namespace headroom::runtime {

// REQUIRES: the lock.
uint32_t DeviceAllocator::pool_for(CudaStream* stream) const {
  for (const Pool& pool : pools_) {
    if (pool.is_begun && (!pool.filter || pool.filter(stream))) return pool.number;
  }
  return kGeneralPool;
}

// A thread that saw no capture holds one of these locks until it has done what one forbids; others
// see it now.
void DeviceAllocator::await_others() {
  { const std::lock_guard driver_lock(driver_mutex_); }
  events_->await_others();
}

void DeviceAllocator::begin_pool(PoolId id, Filter filter) {
  add_pool(id, std::move(filter));
  await_others();
}

void DeviceAllocator::add_pool(PoolId id, Filter filter) {
  const std::lock_guard lock(lock_);
  auto pool = std::find_if(pools_.begin(), pools_.end(),
                           [&](const Pool& known) { return known.id == id && !known.is_released; });
  if (pool == pools_.end()) {
    Pool made;
    made.id = id;
    made.number = ++pools_made_;
    pool = pools_.insert(pools_.end(), std::move(made));
  }
  pool->filter = std::move(filter);
  if (!pool->is_begun) captures_.fetch_add(1, std::memory_order_acq_rel);
  pool->is_begun = true;
  ++pool->uses;
}

void DeviceAllocator::end_pool(PoolId id) {
  const std::lock_guard lock(lock_);
  for (Pool& pool : pools_) {
    if (!(pool.id == id) || !pool.is_begun) continue;
    pool.is_begun = false;
    pool.filter = nullptr;
    captures_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

void DeviceAllocator::release_pool(PoolId id) {
  {
    const std::lock_guard lock(lock_);
    const auto pool = std::find_if(pools_.begin(), pools_.end(), [&](const Pool& known) {
      return known.id == id && !known.is_released;
    });
    if (pool == pools_.end() || --pool->uses > 0) return;  // another graph replays from it
    pool->is_released = true;
    general_->release_pool(pool->number);
    is_pool_due_ = true;
  }
  const std::lock_guard driver_lock(driver_mutex_);
  if (is_capturing()) return;
  const DriverScope scope(pages_->driver(), pages_->context());
  give_back_pools();
}

void DeviceAllocator::begin_capture() {
  captures_.fetch_add(1, std::memory_order_acq_rel);
  captures_elsewhere_.fetch_add(1, std::memory_order_acq_rel);
  await_others();
}

void DeviceAllocator::end_capture() {
  int begun = captures_elsewhere_.load(std::memory_order_acquire);
  while (begun > 0 && !captures_elsewhere_.compare_exchange_weak(begun, begun - 1)) {
  }
  if (begun > 0) captures_.fetch_sub(1, std::memory_order_acq_rel);
}

// REQUIRES: driver lock; no capture.
void DeviceAllocator::give_back_pools() {
  Collected collected;
  {
    const std::lock_guard lock(lock_);
    if (!std::exchange(is_pool_due_, false)) return;
    collected.pages = general_->collect_released_pages();
    collected.pieces = general_->collect_released_segments();
  }
  // Where the device cannot be waited for, it goes with all else the next time that memory is
  // needed.
  if (!collected.is_empty() && give_back(std::move(collected), Wait::for_a_while))
    pages_->release_idle();
  const std::lock_guard lock(lock_);
  note_reserved();
  std::erase_if(pools_, [&](const Pool& pool) {
    if (!pool.is_released || pool.is_begun) return false;
    std::vector<GeneralArena::Piece> spans;
    if (!general_->drop_pool(pool.number, spans)) return false;
    for (const GeneralArena::Piece& span : spans) pages_->unreserve(span.address, span.bytes);
    return true;
  });
}

}  // namespace headroom::runtime
