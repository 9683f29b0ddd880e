#include "memory/segment_source.h"

#include "base/check.h"
#include "memory/allocator_settings.h"

namespace headroom::memory {
namespace {

constexpr int64_t kFirstAddress = int64_t{1} << 32;
constexpr int64_t kLastAddress = int64_t{1} << 61;
// Of a device whose size nobody gave: large enough for any run, small enough that its expandable
// segments' address ranges fit below kLastAddress many times over.
constexpr int64_t kUnboundedDevice = int64_t{1} << 50;

}  // namespace

DeviceMemory::DeviceMemory(Bytes free, Bytes total)
    : free_(free.count), total_(total.count), next_address_(kFirstAddress) {
  HEADROOM_CHECK(0 <= free_ && free_ <= total_ && total_ <= kMaxRequest, "device memory size");
}

DeviceMemory::DeviceMemory() : DeviceMemory(Bytes{kUnboundedDevice}, Bytes{kUnboundedDevice}) {}

std::optional<int64_t> DeviceMemory::take_addresses(int64_t bytes) {
  if (bytes > kLastAddress - next_address_) return std::nullopt;
  const int64_t address = next_address_;
  next_address_ += bytes;
  return address;
}

std::optional<int64_t> DeviceMemory::allocate(const SegmentRequest& request) {
  if (request.bytes > free_) return std::nullopt;
  const auto address = take_addresses(request.bytes);
  if (address) free_ -= request.bytes;
  return address;
}

void DeviceMemory::release(int64_t /*address*/, int64_t bytes) { free_ += bytes; }

std::optional<int64_t> DeviceMemory::reserve(const SegmentRequest& request) {
  return take_addresses(request.bytes);
}

void DeviceMemory::unreserve(int64_t /*address*/, int64_t /*bytes*/) {}

bool DeviceMemory::map(int64_t /*address*/, int64_t bytes) {
  if (bytes > free_) return false;
  free_ -= bytes;
  return true;
}

void DeviceMemory::unmap(int64_t /*address*/, int64_t bytes) { free_ += bytes; }

}  // namespace headroom::memory
