// SegmentSource: the driver below the caching allocator, as far as it matters: where segments lie,
// and when there is no memory left for another.
//
// The simulator asks it for every segment, so a test or a recorded trace can dictate the addresses
// and watch every call. Not thread-safe. `DeviceMemory` is the one for predictions.
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"

namespace headroom::memory {

struct SegmentRequest {
  int64_t bytes = 0;
  uint32_t stream = 0;
  bool is_small = false;  // for the small pool
};

class SegmentSource {
 public:
  virtual ~SegmentSource() = default;

  // cudaMalloc and cudaFree. Nothing means out of memory.
  virtual std::optional<int64_t> allocate(const SegmentRequest& request) = 0;
  virtual void release(int64_t address, int64_t bytes) = 0;

  // Expandable segments: address space without memory behind it, and the memory itself, in pages.
  virtual std::optional<int64_t> reserve(const SegmentRequest& request) = 0;
  virtual void unreserve(int64_t address, int64_t bytes) = 0;
  virtual bool map(int64_t address, int64_t bytes) = 0;
  virtual void unmap(int64_t address, int64_t bytes) = 0;

  // Memory of the whole device: sets the address space of an expandable segment (9/8 of it) and
  // what a memory fraction is a fraction of.
  [[nodiscard]] virtual int64_t total_bytes() const = 0;
  // What is left for new segments; kUnlimited where nobody counts.
  [[nodiscard]] virtual int64_t free_bytes() const = 0;
};

// Ever higher addresses, and a budget of bytes. Which address cudaMalloc returns is the driver's
// secret; it decides only between cached blocks of equal size, so rising addresses are as good a
// guess as any and make replays repeatable.
class DeviceMemory final : public SegmentSource {
 public:
  // `free` is what segments may take in all, `total` what the device has.
  // REQUIRES: 0 <= free <= total.
  DeviceMemory(Bytes free, Bytes total);
  // A device that never fills up.
  DeviceMemory();

  std::optional<int64_t> allocate(const SegmentRequest& request) override;
  void release(int64_t address, int64_t bytes) override;
  std::optional<int64_t> reserve(const SegmentRequest& request) override;
  void unreserve(int64_t address, int64_t bytes) override;
  bool map(int64_t address, int64_t bytes) override;
  void unmap(int64_t address, int64_t bytes) override;
  [[nodiscard]] int64_t total_bytes() const override { return total_; }
  [[nodiscard]] int64_t free_bytes() const override { return free_; }

 private:
  std::optional<int64_t> take_addresses(int64_t bytes);

  int64_t free_;
  int64_t total_;
  int64_t next_address_;
};

}  // namespace headroom::memory
