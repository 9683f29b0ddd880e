// RecordingWriter: appends to a recording from inside the process that is recorded.
//
// The file is mapped, a window of a mebibyte at a time, whose room is asked of the disk before it
// is used: an event is a store of 32 bytes, a process that is killed loses nothing that it wrote,
// and a full disk ends the recording and not the run. A record becomes visible by its first byte,
// which is stored last. Nothing is allocated after open(); call stacks and texts that were written
// before are found in tables of fixed size, and what does not fit there is written as unknown (0).
//
// Thread-safe: one mutex for all. About 50 ns an event with a known stack. No third-party code, no
// exceptions, nothing printed: it lives in the runtime too.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "memory/recording/run_recording.h"

namespace headroom::memory {

struct RecordingIdentity {
  int32_t device = 0;
  int32_t rank = 0;
  int32_t world_size = 1;
  int64_t device_total_bytes = 0;
  int64_t start_unix_ns = 0;
};

class RecordingWriter {
 public:
  // Makes the file, or replaces it.
  static Result<std::unique_ptr<RecordingWriter>> open(const std::string& path,
                                                       const RecordingIdentity& identity);
  RecordingWriter(const RecordingWriter&) = delete;
  RecordingWriter& operator=(const RecordingWriter&) = delete;
  // Closes, if close() was not called.
  ~RecordingWriter();

  struct Frame {
    std::string_view function;
    std::string_view file;
    int32_t line = 0;
  };
  // The number of a stack, innermost frame first; 0 where there is no room to know it. At most
  // kMostFrames are kept.
  uint32_t stack(std::span<const Frame> frames);

  struct Event {
    int64_t stream = 0;  // the handle
    uint32_t stack = 0;
    int64_t address = 0;
    int64_t size = 0;
    int64_t time_ns = 0;
  };
  // REQUIRES: a kind of one slot, other than nothing, stream, phase and end.
  void event(RecordKind kind, const Event& event);
  void phase(std::string_view name, int64_t time_ns);
  void setting(std::string_view key, std::string_view value);

  // Writes the last word and cuts the file to its length. Later calls do nothing.
  void close();
  // The disk was full or the file system refused: events since then are counted and dropped.
  [[nodiscard]] int64_t dropped_events() const { return dropped_.load(); }

  static constexpr size_t kMostFrames = 256;
  static constexpr size_t kMostTextBytes = 4096;
  static constexpr size_t kMostStreams = 1024;

 private:
  // A table of fixed size from what was written to its number, by 128 bits of hash.
  struct Known {
    uint64_t first = 0;
    uint64_t second = 0;
    uint32_t number = 0;  // 0: vacant
  };
  struct Table {
    static constexpr size_t kSlots = size_t{1} << 16;
    std::unique_ptr<std::array<Known, kSlots>> slots;
    uint32_t count = 0;
  };

  explicit RecordingWriter(int file) : file_(file) {}
  char* place(size_t slots);
  bool next_window();
  void publish(char* at, const RecordingSlot& slot);
  static Known* find(Table& table, std::string_view bytes);
  uint32_t text(std::string_view text);
  void write_long(RecordKind kind, uint32_t number, int64_t length, std::string_view content);
  uint16_t stream_index(int64_t handle);

  std::mutex mutex_;
  int file_;
  char* window_ = nullptr;
  size_t window_used_ = 0;
  int64_t window_offset_ = 0;  // in the file
  bool is_closed_ = false;
  bool is_full_ = false;  // no other window can be had
  Table texts_;
  Table stacks_;
  std::array<int64_t, kMostStreams> streams_{};
  size_t stream_count_ = 0;
  std::atomic<int64_t> dropped_ = 0;
};

}  // namespace headroom::memory
