// Recordings of our own (docs/formats/recording.md): what a run did with a device's memory, written
// while it runs and readable wherever it was killed.
//
// This header is the format: a file of slots of 32 bytes behind a header of 64. writer.h writes it
// inside the process that is recorded, reader.h reads it. All numbers are little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memory/call_sites.h"

namespace headroom::memory {

inline constexpr std::string_view kRecordingMagic = "\x89HDRMREC";
inline constexpr uint32_t kRecordingVersion = 1;
inline constexpr size_t kRecordingHeaderBytes = 64;
inline constexpr size_t kRecordingSlotBytes = 32;

// What a slot holds. Kinds below kFirstLong take one slot; the others say how many they take, so
// that a reader can pass over what it does not know.
enum class RecordKind : uint8_t {
  nothing = 0,  // the file ends here: what follows was set aside and never written
  stream = 1,   // stream: its index; address: the handle
  alloc = 2,
  free_requested = 3,
  free_completed = 4,  // no stream uses it any more
  segment_alloc = 5,   // from the driver; sizes of segments are real ones
  segment_free = 6,
  segment_map = 7,
  segment_unmap = 8,
  out_of_memory = 9,        // address: free on the device; size: what was asked for
  stream_use = 10,          // stream: a stream that uses the block at address beside its own
  event_record = 11,        // address: the event's handle
  event_wait = 12,          // stream waits for the event at address
  stream_synchronize = 13,  // the host waits for the stream
  device_synchronize = 14,
  iteration = 15,  // address: its number; it begins here
  phase = 16,      // stack: the text that names it; it begins here
  end = 17,        // the run closed its recording; address: events that were dropped
  text = 128,
  call_stack = 129,
  setting = 130,  // two texts: key, and value
};
inline constexpr uint8_t kFirstLong = 128;

// One slot as it lies in the file. A long record's first slot has the number of slots in `stream`,
// its own number in `stack`, its length in `address` (bytes of a text, frames of a stack), and its
// content from `size` on, through the slots behind it.
struct RecordingSlot {
  RecordKind kind = RecordKind::nothing;
  uint8_t reserved = 0;
  uint16_t stream = 0;  // the index of a stream record
  uint32_t stack = 0;   // the number of a call_stack record; 0: none
  int64_t address = 0;
  int64_t size = 0;     // bytes, as requested
  int64_t time_ns = 0;  // since the header's start
};
static_assert(sizeof(RecordingSlot) == kRecordingSlotBytes);

struct RecordingHeader {
  char magic[8] = {};
  uint32_t version = kRecordingVersion;
  uint32_t slot_bytes = kRecordingSlotBytes;
  int64_t start_unix_ns = 0;
  int32_t device = 0;
  int32_t rank = 0;
  int32_t world_size = 1;
  uint32_t reserved = 0;
  int64_t device_total_bytes = 0;  // 0: not known
  int64_t reserved_too[2] = {};
};
static_assert(sizeof(RecordingHeader) == kRecordingHeaderBytes);

// A recording as it was read: events in order, everything they name resolved.
struct RunRecording {
  int64_t device = 0;
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t start_unix_ns = 0;
  int64_t device_total_bytes = 0;
  std::vector<int64_t> streams;       // handles, by index
  std::vector<RecordingSlot> events;  // no definitions among them; indices are in range
  CallSites sites;  // `stack` of an event, or of a phase `text`, is its number here
  std::vector<std::pair<std::string, std::string>> settings;
  bool is_complete = false;    // it has its last word
  int64_t dropped_events = 0;  // that the run could not write
  bool is_partial = false;     // the file was cut, or holds or lost what could not be read
  std::vector<std::string> notes;
};

}  // namespace headroom::memory
