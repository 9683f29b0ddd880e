// Recordings of our own: any bytes give a recording or an Error with a place; what a recording
// names is there, and it can be used as a snapshot.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "memory/packing/recorded_requests.h"
#include "memory/recording/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto read = memory::parse_recording(bytes, "fuzz");
  if (!read) {
    HEADROOM_CHECK(!read.error().where.empty(), "an error without a place");
    return 0;
  }
  for (const memory::RecordingSlot& event : read->events) {
    const bool is_phase = event.kind == memory::RecordKind::phase;
    HEADROOM_CHECK(event.stack < (is_phase ? read->sites.text_count() : read->sites.stack_count()),
                   "a stack that is not there");
    HEADROOM_CHECK(is_phase || event.stream < read->streams.size(), "no such stream");
  }
  const memory::Snapshot snapshot = memory::snapshot_of(*read);
  HEADROOM_CHECK(snapshot.trace.size() == read->events.size(), "an entry for each event");
  static_cast<void>(memory::recorded_requests(snapshot));
  static_cast<void>(memory::recorded_peaks(snapshot, {}));
  return 0;
}
