// RequestLog: what was asked for, in order, for the planner's thread to read while it grows.
//
// Written under the lock of device_allocator.h, 16 bytes an entry, in chunks that never move; read
// by one other thread without it. A request is named by its serial: how many came before it. It
// ends where it has kMostEntries. Nothing is written before open() and after close().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/packing/recorded_requests.h"
#include "memory/plan/order_history.h"

namespace headroom::runtime {

class RequestLog {
 public:
  enum class Kind : uint8_t { request, release_asked, release_done, mark, stream, record, wait };
  struct Entry {
    // Size of a request; serial of a release; handle of a stream, also of one on which an event is
    // recorded or that waits for it; nothing of a mark.
    int64_t value = 0;
    uint32_t stream = 0;  // number of a stream; of an event, the end of its ticket
    Kind kind = Kind::request;
  };
  static constexpr uint32_t kNoSerial = 0xffffffff;
  static constexpr size_t kMostEntries = size_t{8} << 20;

  [[nodiscard]] size_t size() const { return size_.load(std::memory_order_acquire); }
  [[nodiscard]] bool is_full() const { return size() == kMostEntries; }

  // The serial of the request; kNoSerial where the log is full.
  uint32_t add_request(int64_t size, uint32_t stream) {
    return add({size, stream, Kind::request}) ? requests_++ : kNoSerial;
  }
  void add_release(uint32_t serial, Kind kind) {
    if (serial != kNoSerial) add({static_cast<int64_t>(serial), 0, kind});
  }
  // The handle of the stream with the next number.
  void add_stream(int64_t handle) { add({handle, streams_++, Kind::stream}); }
  [[nodiscard]] uint32_t streams() const { return streams_; }
  // An event is recorded on the stream, or the stream waits for it.
  void add_order(Kind kind, int64_t handle, memory::StreamOrder::Ticket ticket) {
    add({handle, static_cast<uint32_t>(ticket), kind});
  }
  // The optimizer has made a step.
  void add_mark() { add({0, 0, Kind::mark}); }
  // What was added so far lived before the log began. REQUIRES: nobody reads yet.
  void begin() { at_start_ = requests_; }

  struct Understood {
    std::vector<memory::RecordedRequest> requests;
    std::vector<int64_t> marks;             // times
    std::vector<memory::OrderEvent> order;  // of streams numbered as those of requests
    int64_t end = 0;  // after the last entry: what was not released yet ends here
  };
  // The first `count` entries as requests with lifetimes. For the reading thread.
  [[nodiscard]] Understood read(size_t count) const;

 private:
  static constexpr size_t kChunk = 4096;
  bool add(const Entry& entry);

  std::array<std::unique_ptr<Entry[]>, kMostEntries / kChunk> chunks_;
  std::atomic<size_t> size_ = 0;
  uint32_t requests_ = 0;
  uint32_t at_start_ = 0;
  uint32_t streams_ = 0;
};

}  // namespace headroom::runtime
