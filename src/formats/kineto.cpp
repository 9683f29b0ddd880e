#include "formats/kineto.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/units.h"
#include "text/json.h"
#include "text/json_cursor.h"
#include "text/json_items.h"

namespace headroom::formats {
namespace {

using text::JsonCursor;

constexpr int kNsDecimals = 3;  // times are microseconds
constexpr std::string_view kWaits = "cuda_sync";

// What a category holds; what is not in the table is not kept.
struct Category {
  std::string_view name;
  TraceEventKind kind;
};
constexpr std::array kCategories{
    Category{"cpu_op", TraceEventKind::host_operator},
    Category{"operator", TraceEventKind::host_operator},  // until 2022
    Category{"user_annotation", TraceEventKind::annotation},
    Category{"cuda_runtime", TraceEventKind::call},  // HIP's as well
    Category{"cuda_driver", TraceEventKind::call},
    Category{"hip_runtime", TraceEventKind::call},
    Category{"runtime", TraceEventKind::call},
    Category{"xpu_runtime", TraceEventKind::call},
    Category{"xpu_driver", TraceEventKind::call},
    Category{"privateuse1_runtime", TraceEventKind::call},
    Category{"kernel", TraceEventKind::kernel},
    Category{"gpu_memcpy", TraceEventKind::copy},
    Category{"memcpy", TraceEventKind::copy},
    Category{"gpu_memset", TraceEventKind::fill},
    Category{"memset", TraceEventKind::fill},
};

bool equals_ignoring_case(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
}

std::optional<TraceEventKind> kind_of(std::string_view category) {
  for (const Category& known : kCategories) {
    if (equals_ignoring_case(category, known.name)) return known.kind;
  }
  return std::nullopt;
}

// The members of one event that matter, as they stand in the text.
struct RawEvent {
  std::string_view phase, category, name, pid, tid, start, duration;
  std::string_view correlation, external_id, record_function, shapes, types, numbers, kernel,
      stream, device;
  std::string_view sync_kind, wait_on_stream, record_correlation;
  std::string_view collective, elements, process_group;
};

struct Field {
  std::string_view key;
  std::string_view RawEvent::*member;
};
constexpr std::array kTopFields{Field{"ph", &RawEvent::phase},    Field{"cat", &RawEvent::category},
                                Field{"name", &RawEvent::name},   Field{"pid", &RawEvent::pid},
                                Field{"tid", &RawEvent::tid},     Field{"ts", &RawEvent::start},
                                Field{"dur", &RawEvent::duration}};
constexpr std::array kArgumentFields{
    Field{"correlation", &RawEvent::correlation},
    Field{"External id", &RawEvent::external_id},
    Field{"external id", &RawEvent::external_id},
    Field{"Record function id", &RawEvent::record_function},
    Field{"Input Dims", &RawEvent::shapes},
    Field{"Input type", &RawEvent::types},
    Field{"Concrete Inputs", &RawEvent::numbers},
    Field{"kernel", &RawEvent::kernel},
    Field{"stream", &RawEvent::stream},
    Field{"device", &RawEvent::device},
    Field{"Collective name", &RawEvent::collective},
    Field{"In msg nelems", &RawEvent::elements},
    Field{"Process Group Name", &RawEvent::process_group},
    Field{"cuda_sync_kind", &RawEvent::sync_kind},
    Field{"wait_on_stream", &RawEvent::wait_on_stream},
    Field{"wait_on_cuda_event_record_corr_id", &RawEvent::record_correlation}};

// Reads the value at the cursor into the field of that key, or skips it.
template <size_t N>
bool read_field(JsonCursor& cursor, std::string_view key, const std::array<Field, N>& fields,
                RawEvent& event) {
  for (const Field& field : fields) {
    if (field.key != key) continue;
    std::string_view& target = event.*(field.member);
    return cursor.kind() == '"' ? cursor.read_string(target) : cursor.read_raw(target);
  }
  return cursor.skip();
}

// Whether the event can be one that is kept, as far as it is read.
bool may_be_kept(const RawEvent& event, std::string_view last_key) {
  if (last_key == "ph") return event.phase == "X";
  if (last_key != "cat") return true;
  return event.category == kWaits || kind_of(event.category).has_value();
}

// What of the text is wrong, or "".
std::string_view read_event(std::string_view text, RawEvent& event) {
  JsonCursor cursor(text);
  std::string_view key;
  cursor.enter_object();
  while (cursor.next_member(key)) {
    if (key == "args" && cursor.kind() == '{') {
      cursor.enter_object();
      while (cursor.next_member(key) && read_field(cursor, key, kArgumentFields, event)) {
      }
    } else {
      read_field(cursor, key, kTopFields, event);
      if (!may_be_kept(event, key)) return {};  // the rest is never looked at
    }
  }
  return cursor.failed() ? "an event that is not JSON" : "";
}

// Collectives of which each rank may send another number of elements.
bool is_uneven(std::string_view collective) {
  return collective.starts_with("all_to_all") || collective.starts_with("alltoall") ||
         collective == "gather" || collective == "scatter";
}

int64_t integer_or(std::string_view text, int64_t otherwise) {
  return text::fixed_point(text, 0).value_or(otherwise);
}

class Reader {
 public:
  Reader(text::ByteFeed feed, const TraceLimits& limits)
      : items_(std::move(feed), "traceEvents"), builder_(items_.name(), "Kineto", limits) {}

  Result<Trace> read() {
    for (;;) {
      HEADROOM_ASSIGN(const bool is_event, items_.next());
      if (!is_event) break;
      ++builder_.trace().records;
      HEADROOM_TRY(take(items_.item()));
    }
    builder_.take_faults(items_);
    bool lists_devices = false;
    for (const auto& [name, value] : items_.members()) {
      read_member(name, value);
      lists_devices |= name == "deviceProperties";
    }
    builder_.trace().lacks_devices = builder_.trace().is_cut && !lists_devices;
    return builder_.finish();
  }

 private:
  Result<void> take(std::string_view text) {
    RawEvent raw;
    const std::string_view fault = read_event(text, raw);
    if (!fault.empty()) {
      builder_.note({items_.offset()}, std::string(fault));
      return {};
    }
    if (raw.phase != "X") return {};
    if (raw.category == kWaits) {
      take_wait(raw);
      return {};
    }
    builder_.trace().has_stacks |= raw.category == "python_function";
    const std::optional<TraceEventKind> kind = kind_of(raw.category);
    if (!kind) return {};
    return take_event(raw, *kind);
  }

  Result<void> take_event(const RawEvent& raw, TraceEventKind kind) {
    const TracePlace place{items_.offset()};
    TraceEvent event;
    if (!builder_.set_times(event, text::fixed_point(raw.start, kNsDecimals),
                            text::fixed_point(raw.duration, kNsDecimals), place)) {
      return {};
    }
    event.correlation = integer_or(
        kind == TraceEventKind::host_operator ? raw.record_function : raw.correlation, 0);
    event.external_id = integer_or(raw.external_id, 0);
    event.name = builder_.intern_json(raw.name);
    event.kind = kind;
    // An operator, in old traces.
    const bool is_range =
        kind == TraceEventKind::annotation || kind == TraceEventKind::host_operator;
    if (is_range && raw.name.starts_with("ProfilerStep")) event.kind = TraceEventKind::step;
    event.track = track_of(raw, is_device(kind));
    if (!raw.shapes.empty()) event.detail = intern_shapes(raw);
    if (kind == TraceEventKind::call && !raw.kernel.empty()) {
      event.detail = builder_.intern_json(raw.kernel);
    }
    if (is_device(kind) && !raw.collective.empty()) event.detail = intern_collective(raw);
    return builder_.add(event, place);
  }

  // "[[4,8],[]] ["float","Scalar"]": one text for shapes and types, without other spaces; of a
  // convolution, whose work they do not give, what its other inputs were too.
  uint32_t intern_shapes(const RawEvent& raw) {
    scratch_.clear();
    append_unspaced(raw.shapes);
    scratch_ += ' ';
    append_unspaced(raw.types);
    if (raw.numbers.starts_with('[') && raw.name.find("conv") != std::string_view::npos) {
      scratch_ += ' ';
      append_unspaced(raw.numbers);
    }
    return builder_.intern(scratch_);
  }
  void append_unspaced(std::string_view text) {
    for (const char c : text.substr(0, builder_.limits().name)) {
      if (c != ' ' && c != '\n' && c != '\r' && c != '\t') scratch_ += c;
    }
  }

  // "_allgather_base of 4096 in group 5"; without a number where each rank may have its own.
  uint32_t intern_collective(const RawEvent& raw) {
    scratch_ = raw.collective.substr(0, builder_.limits().name);
    if (!raw.elements.empty() && !is_uneven(raw.collective))
      scratch_ += " of " + std::string(raw.elements.substr(0, 40));
    if (!raw.process_group.empty()) {
      scratch_ += " in group " + std::string(raw.process_group.substr(0, builder_.limits().name));
    }
    return builder_.intern(scratch_);
  }

  // Kernels carry their device and stream; what has neither is on the row that it is drawn in.
  uint32_t track_of(const RawEvent& raw, bool device) {
    const std::string_view process = device && !raw.device.empty() ? raw.device : raw.pid;
    const std::string_view thread = device && !raw.stream.empty() ? raw.stream : raw.tid;
    return builder_.track(process, thread, device);
  }

  void take_wait(const RawEvent& raw) {
    TraceWait wait;
    wait.correlation = integer_or(raw.correlation, 0);
    wait.record_correlation = std::max<int64_t>(integer_or(raw.record_correlation, 0), 0);
    wait.stream = integer_or(raw.stream, -1);
    wait.wait_on_stream = integer_or(raw.wait_on_stream, -1);
    wait.device = integer_or(raw.device, -1);
    std::vector<TraceWait>& waits = builder_.trace().waits;
    if (wait.correlation != 0 && waits.size() < builder_.limits().events) waits.push_back(wait);
  }

  // A member that is not as expected is as good as missing.
  void read_member(const std::string& name, const std::string& value) {
    Trace& trace = builder_.trace();
    if (name.starts_with("roctracer") || name.starts_with("hip_")) trace.is_rocm = true;
    if (name != "deviceProperties" && name != "distributedInfo") return;
    const Result<text::Json> json = text::parse_json(value, trace.file);
    if (!json) return;
    if (name == "distributedInfo" && json->is_object()) {
      const text::JsonView view(*json, trace.file);
      if (const auto rank = view.get_int("rank", 0, INT32_MAX); rank) trace.rank = *rank;
      if (const auto size = view.get_int("world_size", 1, INT32_MAX); size)
        trace.world_size = *size;
    }
    if (name != "deviceProperties" || json->kind() != text::Json::Kind::array) return;
    for (const text::Json& item : json->items()) {
      if (!item.is_object() || trace.devices.size() >= 1024) continue;
      const text::JsonView view(item, trace.file);
      TraceDevice device;
      if (const auto label = view.get_string("name"); label) device.name = *label;
      if (const auto bytes = view.get_int("totalGlobalMem", 0, INT64_MAX); bytes) {
        device.memory_bytes = *bytes;
      }
      if (const auto count = view.get_int("numSms", 0, INT32_MAX); count) {
        device.multiprocessors = *count;
      }
      trace.devices.push_back(std::move(device));
    }
  }

  text::JsonItems items_;
  TraceBuilder builder_;
  std::string scratch_;
};

}  // namespace

Result<Trace> read_kineto(text::ByteFeed feed, const TraceLimits& limits) {
  return Reader(std::move(feed), limits).read();
}

Result<Trace> read_kineto(const std::string& path, const TraceLimits& limits) {
  HEADROOM_ASSIGN(text::ByteFeed feed, text::ByteFeed::open(path));
  return read_kineto(std::move(feed), limits);
}

}  // namespace headroom::formats
