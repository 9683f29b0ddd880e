// DeviceAllocator: all that the runtime knows about one device.
//
// States of an address range (docs/algorithms/runtime.md has the whole picture):
//
//   reserved       address space; no memory behind it, nobody's
//   mapped idle    memory behind it, no block in it: free blocks, and planned space between
//   requests planned-live   a request in its slot of the plan dynamic-live   a request in planned
//   space that is idle, or by best fit in the general arena awaiting event released, but another
//   stream may still use it: as live as before, to all others captured       of a private pool:
//   never unmapped, never another's, until the pool is released moving         its pages are being
//   mapped or unmapped by the holder of the driver lock
//
// Invariants:
//  1. No byte is in two ranges that are live or awaiting events.
//  2. A page is unmapped only if no block that is live or awaiting lies in it, no private pool owns
//     it, and the device has done all work that was queued before (synchronised after the blocks in
//     it were released).
//  3. Memory that a block had goes to another stream only by way of 2.
//  4. What is handed out is mapped, readable and writable by the device and its peers.
//  5. Where there is no memory, everything that 2 allows has been given back before anyone is told.
//
// Locks, in the order in which they may be taken:
//   driver lock  a mutex: mapping, unmapping, waiting. Held for as long as the driver takes.
//   event lock   inside EventQueue.
//   lock         a spin lock around all bookkeeping: no driver call under it, constant time for
//                planned requests, logarithmic for others.
// A request that finds room takes the last one only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "memory/recording/writer.h"
#include "runtime/address_table.h"
#include "runtime/configuration.h"
#include "runtime/device_pages.h"
#include "runtime/event_queue.h"
#include "runtime/general_arena.h"
#include "runtime/spin_lock.h"
#include "runtime/statistics.h"

namespace headroom::runtime {

// A capture's pool, by PyTorch's pair of numbers.
struct PoolId {
  uint64_t first = 0;
  uint64_t second = 0;
  bool operator==(const PoolId&) const = default;
};

class DeviceAllocator {
 public:
  static Result<std::unique_ptr<DeviceAllocator>> open(const Driver& driver, int ordinal,
                                                       const Configuration& configuration);

  // Null where there is no memory: then `out_of_memory` is the message. REQUIRES: size > 0.
  void* allocate(int64_t size, CudaStream* stream, std::string& out_of_memory);
  // False where the pointer is not a live block of this device.
  bool free(void* pointer);
  bool record_stream(void* pointer, CudaStream* stream);
  void empty_cache();
  void set_memory_fraction(double fraction);
  [[nodiscard]] double memory_fraction() const { return memory_fraction_.load(); }
  // The segment that holds the pointer; nothing where it is not a live block.
  std::optional<GeneralArena::Piece> base_allocation(void* pointer);

  using Filter = std::function<bool(CudaStream*)>;
  void begin_pool(PoolId id, Filter filter);
  void end_pool(PoolId id);
  void release_pool(PoolId id);

  [[nodiscard]] int ordinal() const { return ordinal_; }
  [[nodiscard]] const DevicePages& pages() const { return *pages_; }
  void read(headroom_statistics& out);
  void reset_peaks();
  void reset_accumulated();
  DevicePages::Info memory_info();
  int64_t unknown_frees();
  void count_unknown_free();
  std::string snapshot_json();
  std::string report_json();
  void iteration();
  void finish();

  // Tests the invariants of the parts; for tests, and slow.
  Result<void> check();

 private:
  struct Request {
    int64_t size = 0;     // as asked for
    int64_t rounded = 0;  // to kAlignment
    CudaStream* stream = nullptr;
  };
  struct Pool {
    PoolId id;
    uint32_t number = kGeneralPool;
    Filter filter;
    bool is_begun = false;
  };

  DeviceAllocator(int ordinal, const Configuration& configuration)
      : ordinal_(ordinal), configuration_(configuration) {}

  void* allocate_slowly(const Request& request, std::string& out_of_memory);
  uint32_t try_general(const Request& request);
  // What one attempt to get memory from the driver came to.
  enum class Attempt : uint8_t { done, no_memory };
  Attempt grow(const Request& request, uint32_t& block);
  Attempt grow_by_pages(const Request& request, uint32_t range, uint32_t& block);
  Attempt grow_by_piece(const Request& request, uint32_t range, uint32_t& block);
  int64_t hand_out(uint32_t block, const Request& request);
  uint32_t pool_for(CudaStream* stream) const;
  void complete_general(uint32_t block);
  void complete_pending(int64_t address);
  void poll_events();
  bool give_back_everything();
  void note_reserved();
  std::string out_of_memory_message(const Request& request);
  void record(memory::RecordKind kind, int64_t address, int64_t size, CudaStream* stream);
  [[nodiscard]] bool is_capturing() const { return captures_.load(std::memory_order_acquire) > 0; }

  const int ordinal_;
  const Configuration configuration_;
  std::unique_ptr<DevicePages> pages_;  // driver lock
  std::unique_ptr<EventQueue> events_;
  std::unique_ptr<memory::RecordingWriter> recording_;
  int64_t start_ns_ = 0;
  std::atomic<double> memory_fraction_ = 1;
  std::atomic<int> captures_ = 0;  // pools that are begun

  std::mutex driver_mutex_;
  SpinLock lock_;  // all below
  std::unique_ptr<GeneralArena> general_;
  AddressTable blocks_;  // live and pending ones of the general arena
  std::unordered_map<int64_t, std::vector<CudaStream*>> uses_;  // by address
  std::vector<Pool> pools_;
  Statistics statistics_;
};

}  // namespace headroom::runtime
