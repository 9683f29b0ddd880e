#include "runtime/device_pages.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/units.h"
#include "runtime/signals_blocked.h"

namespace headroom::runtime {
namespace {

// Address space is cheap (47 bits of it), and ranges that never move need room to grow: 64 times
// the device's memory is asked for, and halves of that where there is less.
constexpr int64_t kReservedTimes = 64;
constexpr int64_t kMostReserved = int64_t{1} << 44;
constexpr int64_t kLeastPage = 64 * kKiB;
constexpr int64_t kMostPage = kGiB;
constexpr int64_t kPlainPage = 2 * kMiB;  // in which cuMemAlloc counts
constexpr int64_t kPagesWithoutAsking = 16;

}  // namespace

Result<std::unique_ptr<DevicePages>> DevicePages::open(const Driver& driver, int ordinal,
                                                       const Wishes& wishes) {
  std::unique_ptr<DevicePages> pages(new DevicePages(driver));
  HEADROOM_TRY(pages->prepare(ordinal, wishes));
  return pages;
}

Result<void> DevicePages::prepare(int ordinal, const Wishes& wishes) {
  const auto failed = [&](const char* call, CudaResult error) {
    return Error{ErrorCode::unavailable,
                 std::string(call) + " failed: " + driver_.name_of(error),
                 "device " + std::to_string(ordinal),
                 {}};
  };
  if (const CudaResult error = driver_.init(0); error != 0) return failed("cuInit", error);
  if (const CudaResult error = driver_.device_get(&device_, ordinal); error != 0) {
    return failed("cuDeviceGet", error);
  }
  if (const CudaResult error = driver_.primary_context_retain(&context_, device_); error != 0) {
    return failed("cuDevicePrimaryCtxRetain", error);
  }
  size_t total = 0;
  if (const CudaResult error = driver_.device_total(&total, device_); error != 0) {
    return failed("cuDeviceTotalMem", error);
  }
  ordinal_ = ordinal;
  total_bytes_ = static_cast<int64_t>(total);
  limit_ = total_bytes_;
  page_bytes_ = kPlainPage;
  const DriverScope scope(driver_, context_);
  if (wishes.without_virtual_memory) {
    why_plain_ = "turned off by the configuration";
  } else if (!can_map_pages(wishes)) {
    forget_pages();
  }
  return {};
}

// What was found out about pages that are not to be: `why_plain_` says it all.
void DevicePages::forget_pages() {
  release_idle();
  reservations_.clear();
  vacant_.clear();
  peers_error_ = 0;
  page_bytes_ = kPlainPage;
}

bool DevicePages::can_map_pages(const Wishes& wishes) {
  int supported = 0;
  if (driver_.device_attribute(&supported, kAttributeVirtualMemory, device_) != 0 ||
      supported == 0) {
    why_plain_ = "the device has no virtual memory management";
    return false;
  }
  properties_.location.id = device_;
  share_handles();
  size_t granularity = 0;
  const CudaResult error = driver_.granularity(&granularity, &properties_, 0);
  const auto page = static_cast<int64_t>(granularity);
  if (error != 0 || page < kLeastPage || page > kMostPage || (page & (page - 1)) != 0) {
    why_plain_ = "the driver names no granularity of memory";
    return false;
  }
  page_bytes_ = page;
  const std::optional<int> lacking = add_peers();
  const auto needs = [&](const std::string& who) {
    why_plain_ = who +
                 ", and PyTorch copies between devices without peer access only what "
                 "cuMemAlloc gave, unless the shim is there (docs/run.md)";
    if (wishes.is_late) {
      why_plain_ +=
          "; the device that this process used first may have pages: copies from and to it fail";
    }
    return false;
  };
  if (wishes.needs_peers && lacking) {
    return needs("device " + std::to_string(*lacking) + " does not reach its memory");
  }
  if (!try_a_page()) return false;
  return !wishes.needs_peers || peers_error_ == 0 || needs(why_no_peers());
}

void DevicePages::share_handles() {
  int has = 0;
  if (driver_.device_attribute(&has, kAttributeHandlesArePosixFiles, device_) == 0 && has != 0) {
    properties_.handle_types = 1;
  }
  has = 0;
  if (driver_.device_attribute(&has, kAttributeGpuDirectWithVirtualMemory, device_) == 0 &&
      has != 0) {
    properties_.gpu_direct_capable = 1;
  }
}

// This device, and all that reach its memory; one of those that do not, if there is one.
std::optional<int> DevicePages::add_peers() {
  std::optional<int> lacking;
  access_.push_back({});
  access_[0].location.id = device_;
  int count = 0;
  if (driver_.device_count(&count) != 0) return lacking;
  for (int peer = 0; peer < count; ++peer) {
    CudaDevice other = 0;
    int can = 0;
    if (peer == ordinal_ || driver_.device_get(&other, peer) != 0) continue;
    if (driver_.can_access_peer(&can, other, device_) != 0 || can == 0) {
      lacking = peer;
      continue;
    }
    CudaAccess access;
    access.location.id = other;
    access_.push_back(access);
  }
  return lacking;
}

// What a device says that it supports is not always true (vGPUs).
bool DevicePages::try_a_page() {
  const std::optional<int64_t> address = reserve(page_bytes_);
  Outcome outcome = address ? map(*address, page_bytes_) : Outcome::failed;
  if (outcome == Outcome::failed && address &&
      (properties_.handle_types != 0 || properties_.gpu_direct_capable != 0)) {
    // Containers often forbid handles that can be exported.
    properties_.handle_types = 0;
    properties_.gpu_direct_capable = 0;
    outcome = map(*address, page_bytes_);
  }
  if (outcome == Outcome::failed) {
    why_plain_ = "mapping a page failed: " + last_error_;
    return false;
  }
  if (outcome == Outcome::done) {
    unmap(*address, page_bytes_);
    release_idle();
  }
  unreserve(*address, page_bytes_);
  return true;
}

bool DevicePages::add_reservation(int64_t least_bytes) {
  int64_t bytes = std::min(kMostReserved, total_bytes_ > kMostReserved / kReservedTimes
                                              ? kMostReserved
                                              : total_bytes_ * kReservedTimes);
  bytes = std::max(round_up(bytes, page_bytes_), least_bytes);
  for (;; bytes = round_up(std::max(bytes / 2, least_bytes), page_bytes_)) {
    CudaPointer pointer = 0;
    const CudaResult error = driver_.address_reserve(&pointer, static_cast<size_t>(bytes),
                                                     static_cast<size_t>(page_bytes_), 0, 0);
    if (error == 0) {
      auto* const handles = static_cast<CudaHandle*>(
          std::calloc(static_cast<size_t>(bytes / page_bytes_), sizeof(CudaHandle)));
      if (handles == nullptr) return false;
      Reservation reservation;
      reservation.address = static_cast<int64_t>(pointer);
      reservation.bytes = bytes;
      reservation.handles.reset(handles);
      reservations_.push_back(std::move(reservation));
      return true;
    }
    note("cuMemAddressReserve", error);
    if (bytes <= least_bytes) return false;
  }
}

std::optional<int64_t> DevicePages::reserve(int64_t bytes) {
  if (bytes <= 0 || bytes > kMostReserved) return std::nullopt;
  bytes = round_up(bytes, page_bytes_);
  const auto fits = std::find_if(vacant_.begin(), vacant_.end(),
                                 [&](const Span& span) { return span.bytes >= bytes; });
  if (fits != vacant_.end()) {
    const int64_t address = fits->address;
    fits->address += bytes;
    fits->bytes -= bytes;
    if (fits->bytes == 0) vacant_.erase(fits);
    return address;
  }
  if (reservations_.empty() || reservations_.back().bytes - reservations_.back().used < bytes) {
    if (!add_reservation(bytes)) return std::nullopt;
  }
  Reservation& last = reservations_.back();
  const int64_t address = last.address + last.used;
  last.used += bytes;
  return address;
}

void DevicePages::unreserve(int64_t address, int64_t bytes) {
  vacant_.push_back({address, round_up(bytes, page_bytes_)});
}

CudaHandle& DevicePages::handle_at(int64_t address) const {
  for (const Reservation& reservation : reservations_) {
    if (address >= reservation.address && address < reservation.address + reservation.bytes) {
      return reservation
          .handles[static_cast<size_t>((address - reservation.address) / page_bytes_)];
    }
  }
  check_failed(__FILE__, __LINE__, "address", "a page outside of all reservations");
}

DevicePages::Outcome DevicePages::take_page(CudaHandle& handle) {
  if (!idle_.empty()) {
    handle = idle_.back();
    idle_.pop_back();
    return Outcome::done;
  }
  if (page_bytes_ > limit_ - reserved_bytes_.load()) return Outcome::no_memory;
  CudaHandle made = 0;
  const CudaResult error =
      driver_.handle_create(&made, static_cast<size_t>(page_bytes_), &properties_, 0);
  if (error == kCudaOutOfMemory) return Outcome::no_memory;
  if (error != 0) {
    note("cuMemCreate", error);
    return Outcome::failed;
  }
  handle = made;
  reserved_bytes_ += page_bytes_;
  ++allocations_;
  return Outcome::done;
}

// Whether so much can be had, without taking it page by page, which costs seconds where a device is
// large and leaves nothing to others meanwhile. What the driver calls free is no last word: it may
// give up caches of its own (pools of cudaMallocAsync, of graphs) before it refuses. So where that
// is too little, one handle of it all is asked for.
bool DevicePages::has_room(int64_t bytes) {
  const int64_t missing = bytes - static_cast<int64_t>(idle_.size()) * page_bytes_;
  if (missing > limit_ - reserved_bytes_.load()) return missing <= 0;
  if (missing <= kPagesWithoutAsking * page_bytes_ || missing <= info().free_bytes) return true;
  CudaHandle handle = 0;
  const CudaResult error =
      driver_.handle_create(&handle, static_cast<size_t>(missing), &properties_, 0);
  if (error == 0) driver_.handle_release(handle);
  return error != kCudaOutOfMemory;  // any other error is met, and told, on the way
}

// All pages are taken before the first is mapped: where there are too few, nothing is to be
// unmapped, which captures forbid.
DevicePages::Outcome DevicePages::map(int64_t address, int64_t bytes) {
  if (!has_room(bytes)) return Outcome::no_memory;
  int64_t taken = 0;
  int64_t mapped = 0;
  Outcome outcome = Outcome::done;
  for (; taken < bytes; taken += page_bytes_) {
    outcome = take_page(handle_at(address + taken));
    if (outcome != Outcome::done) break;
  }
  for (; mapped < bytes && outcome == Outcome::done; mapped += page_bytes_) {
    const CudaResult error =
        driver_.map(static_cast<CudaPointer>(address + mapped), static_cast<size_t>(page_bytes_), 0,
                    handle_at(address + mapped), 0);
    if (error == 0) continue;
    note("cuMemMap", error);
    outcome = error == kCudaOutOfMemory ? Outcome::no_memory : Outcome::failed;
    break;
  }
  if (outcome == Outcome::done && !set_access(address, bytes)) outcome = Outcome::failed;
  if (outcome == Outcome::done) return outcome;
  if (mapped > 0) unmap(address, mapped);
  for (int64_t offset = mapped; offset < taken; offset += page_bytes_) {
    idle_.push_back(std::exchange(handle_at(address + offset), 0));
  }
  return outcome;
}

bool DevicePages::set_access(int64_t address, int64_t bytes) {
  CudaResult error = driver_.set_access(static_cast<CudaPointer>(address),
                                        static_cast<size_t>(bytes), access_.data(), access_.size());
  if (error != 0 && access_.size() > 1) {
    peers_error_ = error;
    access_.resize(1);  // without the peers, then
    error = driver_.set_access(static_cast<CudaPointer>(address), static_cast<size_t>(bytes),
                               access_.data(), 1);
  }
  if (error != 0) note("cuMemSetAccess", error);
  return error == 0;
}

void DevicePages::unmap(int64_t address, int64_t bytes) {
  const CudaResult error =
      driver_.unmap(static_cast<CudaPointer>(address), static_cast<size_t>(bytes));
  if (error != 0) note("cuMemUnmap", error);  // the process ends, or worse: the pages are lost
  for (int64_t offset = 0; offset < bytes; offset += page_bytes_) {
    CudaHandle& handle = handle_at(address + offset);
    if (error == 0) idle_.push_back(handle);
    handle = 0;
  }
}

void DevicePages::release_idle() {
  for (const CudaHandle handle : idle_) {
    if (const CudaResult error = driver_.handle_release(handle); error != 0) {
      note("cuMemRelease", error);
    }
    reserved_bytes_ -= page_bytes_;
    ++releases_;
  }
  idle_.clear();
}

DevicePages::Outcome DevicePages::allocate(int64_t bytes, int64_t& address) {
  if (bytes > limit_ - reserved_bytes_.load()) return Outcome::no_memory;
  CudaPointer pointer = 0;
  const CudaResult error = driver_.memory_allocate(&pointer, static_cast<size_t>(bytes));
  if (error == kCudaOutOfMemory) return Outcome::no_memory;
  if (error != 0) {
    note("cuMemAlloc", error);
    return Outcome::failed;
  }
  address = static_cast<int64_t>(pointer);
  reserved_bytes_ += bytes;
  ++allocations_;
  return Outcome::done;
}

void DevicePages::free(int64_t address, int64_t bytes) {
  if (const CudaResult error = driver_.memory_free(static_cast<CudaPointer>(address)); error != 0) {
    note("cuMemFree", error);
  }
  reserved_bytes_ -= bytes;
  ++releases_;
}

DevicePages::Info DevicePages::info() const {
  size_t free = 0;
  size_t total = 0;
  if (driver_.memory_info(&free, &total) != 0) return {0, total_bytes_, false};
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

bool DevicePages::synchronize() {
  const CudaResult error = driver_.context_synchronize();
  if (error != 0) note("cuCtxSynchronize", error);
  return error == 0;
}

struct DevicePages::Waiter {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  CudaResult result = kCudaSuccess;
};

// Nothing can be asked of a device that is at work on all streams, those of others included, but to
// wait for it. So a thread of its own does, which costs some 50 us, and who asked may give it up.
bool DevicePages::synchronize_within(std::chrono::milliseconds most) {
  const auto is_over = [](Waiter& waiter) {
    const std::lock_guard lock(waiter.mutex);
    return waiter.is_done;
  };
  if (waiter_ != nullptr && !is_over(*waiter_)) return false;
  waiter_ = std::make_shared<Waiter>();
  try {
    const SignalsBlocked blocked;
    std::thread([waiter = waiter_, &driver = driver_, context = context_] {
      CudaResult result = kCudaSuccess;
      {
        const DriverScope scope(driver, context);
        result = driver.context_synchronize();
      }
      const std::lock_guard lock(waiter->mutex);
      waiter->result = result;
      waiter->is_done = true;
      waiter->changed.notify_all();
    }).detach();
  } catch (const std::system_error&) {
    waiter_.reset();
    return synchronize();
  }
  std::unique_lock lock(waiter_->mutex);
  const bool is_done = waiter_->changed.wait_for(lock, most, [this] { return waiter_->is_done; });
  if (!is_done) last_error_ = "still at work after " + std::to_string(most.count()) + " ms";
  if (is_done && waiter_->result != kCudaSuccess) note("cuCtxSynchronize", waiter_->result);
  return is_done && waiter_->result == kCudaSuccess;
}

std::string DevicePages::why_no_peers() const {
  const CudaResult error = peers_error_;
  return error == 0 ? std::string() : "cuMemSetAccess for peers: " + driver_.name_of(error);
}

void DevicePages::note(const char* call, CudaResult error) {
  last_error_ = std::string(call) + ": " + driver_.name_of(error);
}

}  // namespace headroom::runtime
