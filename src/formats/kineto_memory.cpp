// The names of events and arguments: torch/csrc/autograd/profiler_kineto.cpp (reportMemoryUsage)
// and torch/csrc/profiler/kineto_shim; device types: c10/core/DeviceType.h.
#include "formats/kineto_memory.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/units.h"
#include "text/json_cursor.h"
#include "text/json_items.h"

namespace headroom::formats {
namespace {

using memory::TraceAction;
using memory::TraceEntry;

constexpr int64_t kCpu = 0;  // c10::DeviceType
constexpr int64_t kMaxDevices = 1024;
constexpr int64_t kMostBytes = int64_t{1} << 60;

// One event as the trace has it.
struct MemoryEvent {
  std::optional<int64_t> address;
  std::optional<int64_t> bytes;
  int64_t device_type = 0;
  int64_t device = 0;
  int64_t allocated = 0;
  int64_t reserved = 0;
  int64_t time_ns = 0;
  bool is_memory = false;
};

std::optional<int64_t> integer_here(text::JsonCursor& cursor, int decimals = 0) {
  std::string_view raw;
  if (cursor.kind() != '0') {
    cursor.skip();
    return std::nullopt;
  }
  if (!cursor.read_raw(raw)) return std::nullopt;
  return text::fixed_point(raw, decimals);
}

void read_arguments(text::JsonCursor& cursor, MemoryEvent& event) {
  if (cursor.kind() != '{') {
    cursor.skip();
    return;
  }
  std::string_view name;
  if (!cursor.enter_object()) return;
  while (cursor.next_member(name)) {
    if (name == "Addr") {
      event.address = integer_here(cursor);
    } else if (name == "Bytes") {
      event.bytes = integer_here(cursor);
    } else if (name == "Device Type") {
      event.device_type = integer_here(cursor).value_or(0);
    } else if (name == "Device Id") {
      event.device = integer_here(cursor).value_or(0);
    } else if (name == "Total Allocated") {
      event.allocated = integer_here(cursor).value_or(0);
    } else if (name == "Total Reserved") {
      event.reserved = integer_here(cursor).value_or(0);
    } else {
      cursor.skip();
    }
  }
}

// Nothing where the item is no object that can be read.
std::optional<MemoryEvent> read_event(std::string_view item) {
  MemoryEvent event;
  text::JsonCursor cursor(item);
  std::string_view name;
  if (!cursor.enter_object()) return std::nullopt;
  while (cursor.next_member(name)) {
    if (name == "name" && cursor.kind() == '"') {
      std::string_view value;
      if (cursor.read_string(value)) event.is_memory = value == "[memory]";
    } else if (name == "ts") {
      event.time_ns = integer_here(cursor, 3).value_or(0);
    } else if (name == "args") {
      read_arguments(cursor, event);
    } else {
      cursor.skip();
    }
  }
  if (cursor.failed()) return std::nullopt;
  return event;
}

class Collector {
 public:
  void take(std::string_view item) {
    // Most of a trace is something else: that is seen without reading it.
    if (item.find("\"ProfilerStep#") != std::string_view::npos) return take_step(item);
    if (item.find("\"[memory]\"") == std::string_view::npos) return;
    const auto event = read_event(item);
    if (!event || !event->is_memory) return;
    const int64_t bytes = event->bytes.value_or(0);
    const bool is_good = event->address && *event->address >= 0 && bytes != 0 &&
                         bytes > -kMostBytes && bytes < kMostBytes && event->device < kMaxDevices;
    if (!is_good) {
      ++passed_over_;
      return;
    }
    Device& device = devices_[{event->device_type, std::max<int64_t>(0, event->device)}];
    device.events.push_back({event->time_ns, *event->address, bytes, event->allocated});
    device.totals.peak_allocated_bytes =
        std::max(device.totals.peak_allocated_bytes, std::min(event->allocated, kMostBytes));
    device.totals.peak_reserved_bytes =
        std::max(device.totals.peak_reserved_bytes, std::min(event->reserved, kMostBytes));
  }

  // torch.profiler marks its steps on the host.
  void take_step(std::string_view item) {
    text::JsonCursor cursor(item);
    std::string_view name;
    std::string_view step;
    int64_t time_ns = 0;
    bool is_annotation = false;
    if (!cursor.enter_object()) return;
    while (cursor.next_member(name)) {
      std::string_view value;
      if (name == "ts") {
        time_ns = integer_here(cursor, 3).value_or(0);
      } else if ((name == "name" || name == "cat") && cursor.kind() == '"') {
        if (!cursor.read_string(value)) return;
        if (name == "name") step = value;
        if (name == "cat") is_annotation = value == "user_annotation";
      } else {
        cursor.skip();
      }
    }
    if (!is_annotation || cursor.failed()) return;
    steps_.push_back({true, snapshot_.sites.add_text(step), 0, time_ns / 1000});
  }

  Result<KinetoMemory> finish(const text::JsonItems& items) {
    KinetoMemory result;
    result.snapshot = std::move(snapshot_);
    result.snapshot.annotations = std::move(steps_);
    result.is_cpu = std::all_of(devices_.begin(), devices_.end(),
                                [](const auto& entry) { return entry.first.first == kCpu; });
    if (devices_.empty()) {
      return Error{ErrorCode::bad_input, "the trace holds no memory events", items.name(),
                   "record with torch.profiler.profile(profile_memory=True)"};
    }
    for (auto& [key, device] : devices_) {
      if (key.first == kCpu && !result.is_cpu) continue;
      sort_by_time(device);
      device.totals.unnamed_bytes = unnamed_bytes(device);
      result.snapshot.devices.push_back(trace_of(device, key.second));
      result.totals.push_back(device.totals);
    }
    result.is_partial = items.is_cut() || !items.faults().empty() || passed_over_ > 0;
    add_notes(items, result);
    return result;
  }

 private:
  struct Event {
    int64_t time_ns;
    int64_t address;
    int64_t bytes;
    int64_t allocated;  // in all, after it
  };
  struct Device {
    std::vector<Event> events;
    KinetoMemory::Totals totals;
  };

  // Threads write their events one after the other.
  static void sort_by_time(Device& device) {
    std::stable_sort(device.events.begin(), device.events.end(),
                     [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
  }

  // What the allocator counted beyond the blocks that are known to live; the least of it, as
  // events of different threads may stand in another order than they happened.
  static int64_t unnamed_bytes(const Device& device) {
    std::set<int64_t> live;
    int64_t from_before = 0;  // in blocks that are given back without having been allocated
    for (const Event& event : device.events) {
      if (event.bytes > 0) {
        live.insert(event.address);
      } else if (live.erase(event.address) == 0) {
        from_before = checked_add(from_before, -event.bytes).value_or(kMostBytes);
      }
    }
    int64_t named = from_before;
    int64_t least = kMostBytes;
    for (const Event& event : device.events) {
      // Sums that no device has: the file is not to be believed.
      const auto sum = checked_add(named, event.bytes);
      if (!sum || *sum < -kMostBytes || *sum > kMostBytes) return 0;
      named = *sum;
      least = std::min(least, checked_add(event.allocated, -named).value_or(0));
    }
    return std::max<int64_t>(0, least);
  }

  static memory::Snapshot trace_of(Device& device, int64_t number) {
    memory::Snapshot snapshot;
    snapshot.device = number;
    for (const Event& event : device.events) {
      TraceEntry entry;
      entry.address = event.address;
      entry.size = event.bytes < 0 ? -event.bytes : event.bytes;
      entry.time_us = event.time_ns / 1000;
      entry.action = event.bytes > 0 ? TraceAction::alloc : TraceAction::free_requested;
      snapshot.trace.push_back(entry);
      if (event.bytes > 0) continue;
      entry.action = TraceAction::free_completed;
      snapshot.trace.push_back(entry);
    }
    device.events = {};
    return snapshot;
  }

  void add_notes(const text::JsonItems& items, KinetoMemory& result) const {
    auto& notes = result.snapshot.notes;
    notes.emplace_back(
        "a profiler's trace has sizes as the allocator rounds them, no streams, no call stacks and "
        "no segments: streams are planned as one, and nothing is known of what was stranded where; "
        "torch.cuda.memory._record_memory_history() knows");
    if (result.is_cpu) notes.emplace_back("no GPU has memory events in it: these are the CPU's");
    if (passed_over_ > 0) {
      notes.push_back(std::to_string(passed_over_) + " memory events without an address or a size");
    }
    if (items.is_cut()) notes.emplace_back("the trace is cut off; what it holds was read");
    for (const text::JsonFault& fault : items.faults()) {
      if (notes.size() >= 8) break;
      notes.push_back("byte " + std::to_string(fault.offset) + ": " + fault.message);
    }
  }

  TorchSnapshot snapshot_;  // its texts
  std::vector<TorchAnnotation> steps_;
  std::map<std::pair<int64_t, int64_t>, Device> devices_;  // by type and number
  int64_t passed_over_ = 0;
};

}  // namespace

Result<KinetoMemory> parse_kineto_memory(text::ByteFeed feed) {
  text::JsonItems items(std::move(feed), "traceEvents");
  Collector collector;
  for (;;) {
    HEADROOM_ASSIGN(const bool has_item, items.next());
    if (!has_item) break;
    collector.take(items.item());
  }
  return collector.finish(items);
}

Result<KinetoMemory> read_kineto_memory(const std::string& path) {
  HEADROOM_ASSIGN(text::ByteFeed feed, text::ByteFeed::open(path));
  return parse_kineto_memory(std::move(feed));
}

}  // namespace headroom::formats
