#include "pack/recorded_file.h"

#include <algorithm>
#include <array>
#include <utility>

#include "formats/byte_source.h"
#include "formats/kineto_memory.h"
#include "memory/recording/reader.h"
#include "text/byte_feed.h"
#include "text/gzip.h"

namespace headroom::pack {
namespace {

constexpr Bytes kMostBytes{64 * kGiB};
constexpr size_t kMostShown = 100;  // bytes of a text of the file in a note

enum class Kind { none, snapshot, recording, trace };

// A pickle of protocol 2 or later begins with 0x80, JSON with a brace or, as an array of events,
// with a bracket.
Kind kind_of(std::string_view unpacked) {
  if (memory::is_recording(unpacked)) return Kind::recording;
  if (unpacked.starts_with('\x80')) return Kind::snapshot;
  if (unpacked.starts_with("\xEF\xBB\xBF")) unpacked.remove_prefix(3);
  const size_t first = unpacked.find_first_not_of(" \t\r\n");
  const bool is_json =
      first != std::string_view::npos && (unpacked[first] == '{' || unpacked[first] == '[');
  return is_json ? Kind::trace : Kind::none;
}

Result<Kind> kind_of(text::ByteFeed feed) {
  std::array<char, 64> first{};
  size_t have = 0;
  while (have < first.size()) {
    HEADROOM_ASSIGN(const size_t more, feed.read(first.data() + have, first.size() - have));
    if (more == 0) break;
    have += more;
  }
  return kind_of(std::string_view(first.data(), have));
}

RecordedFile from_trace(formats::KinetoMemory trace) {
  RecordedFile file;
  file.kind = "profiler trace";
  file.snapshot = std::move(trace.snapshot);
  for (const auto& totals : trace.totals) {
    file.counted.push_back(
        {totals.peak_allocated_bytes, totals.peak_reserved_bytes, totals.unnamed_bytes});
  }
  file.is_partial = trace.is_partial;
  return file;
}

// Where an iteration begins, in the words that PyTorch's own profiler has for it.
void add_iterations(const memory::RunRecording& recording, formats::TorchSnapshot& snapshot) {
  for (const memory::RecordingSlot& event : recording.events) {
    if (event.kind != memory::RecordKind::iteration) continue;
    const std::string name = "ProfilerStep#" + std::to_string(event.address);
    snapshot.annotations.push_back(
        {true, snapshot.sites.add_text(name), recording.device, event.time_ns / 1000});
  }
}

std::vector<memory::OrderEvent> order_of(const memory::RunRecording& recording) {
  std::vector<memory::OrderEvent> order;
  for (size_t i = 0; i < recording.events.size(); ++i) {
    const memory::RecordingSlot& event = recording.events[i];
    const bool is_wait = event.kind == memory::RecordKind::event_wait;
    if (!is_wait && event.kind != memory::RecordKind::event_record) continue;
    order.push_back({static_cast<int64_t>(i) + 1, recording.streams[event.stream],
                     static_cast<memory::StreamOrder::Ticket>(event.address), is_wait});
  }
  return order;
}

RecordedFile from_recording(memory::RunRecording recording) {
  RecordedFile file;
  file.order = order_of(recording);
  file.kind = "recording";
  file.is_partial = recording.is_partial;
  formats::TorchSnapshot& snapshot = file.snapshot;
  memory::Snapshot device = memory::snapshot_of(recording);
  if (device.segments.empty()) file.counted.emplace_back();  // nothing says what was reserved
  if (!device.trace.empty()) snapshot.devices.push_back(std::move(device));
  snapshot.sites = std::move(recording.sites);
  add_iterations(recording, snapshot);
  snapshot.notes = std::move(recording.notes);
  for (const auto& [key, value] : recording.settings) {
    if (key == "generated_by") {
      snapshot.notes.push_back("generated, not recorded: " + value.substr(0, kMostShown));
    }
    if (key != "PYTORCH_CUDA_ALLOC_CONF" && key != "PYTORCH_ALLOC_CONF") continue;
    auto parsed = memory::parse_allocator_config(value);
    if (parsed) {
      snapshot.settings = *parsed;
    } else {
      snapshot.notes.push_back(key + " was passed over: " + parsed.error().to_string());
    }
  }
  return file;
}

RecordedFile from_snapshot(formats::TorchSnapshot snapshot) {
  RecordedFile file;
  file.kind = "PyTorch snapshot";
  file.snapshot = std::move(snapshot);
  return file;
}

using Read = Result<std::optional<RecordedFile>>;

}  // namespace

Read read_recorded_file(const std::string& file) {
  HEADROOM_ASSIGN(text::ByteFeed feed, text::ByteFeed::open(file));
  HEADROOM_ASSIGN(const Kind kind, kind_of(std::move(feed)));
  switch (kind) {
    case Kind::snapshot: {
      HEADROOM_ASSIGN(auto snapshot, formats::read_torch_snapshot(file));
      return std::optional(from_snapshot(std::move(snapshot)));
    }
    case Kind::recording: {
      HEADROOM_ASSIGN(const std::string content, text::read_input(file, kMostBytes));
      HEADROOM_ASSIGN(auto recording, memory::parse_recording(content, file));
      return std::optional(from_recording(std::move(recording)));
    }
    case Kind::trace: {
      HEADROOM_ASSIGN(auto trace, formats::read_kineto_memory(file));
      return std::optional(from_trace(std::move(trace)));
    }
    default:
      return std::optional<RecordedFile>();
  }
}

Read parse_recorded_file(std::string_view content, const std::string& name) {
  if (text::is_gzip(content)) {
    HEADROOM_ASSIGN(const std::string unpacked, text::gunzip(content, name, kMostBytes));
    if (!text::is_gzip(unpacked)) return parse_recorded_file(unpacked, name);
  }
  HEADROOM_ASSIGN(const Kind kind, kind_of(text::ByteFeed(content, name)));
  switch (kind) {
    case Kind::snapshot: {
      formats::ByteSource source(content, name);
      HEADROOM_ASSIGN(auto snapshot, formats::parse_torch_snapshot(source));
      return std::optional(from_snapshot(std::move(snapshot)));
    }
    case Kind::recording: {
      HEADROOM_ASSIGN(auto recording, memory::parse_recording(content, name));
      return std::optional(from_recording(std::move(recording)));
    }
    case Kind::trace: {
      HEADROOM_ASSIGN(auto trace, formats::parse_kineto_memory(text::ByteFeed(content, name)));
      return std::optional(from_trace(std::move(trace)));
    }
    default:
      return std::optional<RecordedFile>();
  }
}

}  // namespace headroom::pack
