#include "formats/kineto.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "base/units.h"
#include "text/json.h"
#include "text/json_cursor.h"
#include "text/json_items.h"

namespace headroom::formats {
namespace {

using text::JsonCursor;

constexpr size_t kFaultsKept = 20;
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
  std::string_view correlation, external_id, shapes, types, kernel, stream, device;
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
    Field{"Input Dims", &RawEvent::shapes},
    Field{"Input type", &RawEvent::types},
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
  Reader(text::ByteFeed feed, const KinetoLimits& limits)
      : items_(std::move(feed), "traceEvents"), limits_(limits) {
    trace_.file = items_.name();
    trace_.format = "Kineto";
  }

  Result<Trace> read() {
    for (;;) {
      HEADROOM_ASSIGN(const bool is_event, items_.next());
      if (!is_event) break;
      ++trace_.records;
      HEADROOM_TRY(take(items_.item()));
    }
    return finish();
  }

 private:
  Result<void> take(std::string_view text) {
    RawEvent raw;
    const std::string_view fault = read_event(text, raw);
    if (!fault.empty()) {
      note(items_.offset(), std::string(fault));
      return {};
    }
    if (raw.phase != "X") return {};
    if (raw.category == kWaits) {
      take_wait(raw);
      return {};
    }
    trace_.has_stacks |= raw.category == "python_function";
    const std::optional<TraceEventKind> kind = kind_of(raw.category);
    if (!kind) return {};
    return take_event(raw, *kind);
  }

  Result<void> take_event(const RawEvent& raw, TraceEventKind kind) {
    const std::optional<int64_t> start = text::fixed_point(raw.start, kNsDecimals);
    const std::optional<int64_t> duration = text::fixed_point(raw.duration, kNsDecimals);
    if (!start || !duration || *start < -kMaxTraceNs || *start > kMaxTraceNs || *duration < 0 ||
        *duration > kMaxTraceNs - *start) {
      note(items_.offset(), "an event without a time that makes sense");
      return {};
    }
    TraceEvent event;
    event.start_ns = *start;
    event.duration_ns = *duration;
    event.correlation = integer_or(raw.correlation, 0);
    event.external_id = integer_or(raw.external_id, 0);
    event.name = intern(raw.name);
    const bool is_step = raw.name.starts_with("ProfilerStep");  // an operator, in old traces
    event.kind =
        kind == TraceEventKind::host_operator && is_step ? TraceEventKind::annotation : kind;
    event.track = track_of(raw, is_device(kind));
    if (!raw.shapes.empty()) event.detail = intern_shapes(raw);
    if (kind == TraceEventKind::call && !raw.kernel.empty()) event.detail = intern(raw.kernel);
    if (is_device(kind) && !raw.collective.empty()) event.detail = intern_collective(raw);
    trace_.events.push_back(event);
    return check_limits();
  }

  [[nodiscard]] Result<void> check_limits() const {
    const char* what = nullptr;
    if (trace_.events.size() > limits_.events) what = "events";
    if (trace_.names.size() > limits_.names) what = "different names";
    if (trace_.names.bytes() > limits_.name_bytes) what = "text in names";
    if (what == nullptr) return {};
    return Error{ErrorCode::bad_input, std::string("has more ") + what + " than can be read",
                 trace_.file + ": byte " + std::to_string(items_.offset()), "record fewer steps"};
  }

  uint32_t intern(std::string_view raw) {
    raw = raw.substr(0, limits_.name);
    return text::has_escape(raw) ? trace_.names.intern(text::unescape(raw))
                                 : trace_.names.intern(raw);
  }

  // "[[4, 8], []] float;Scalar": one text for shapes and types, without spaces and line ends.
  uint32_t intern_shapes(const RawEvent& raw) {
    scratch_.clear();
    for (const char c : raw.shapes.substr(0, limits_.name)) {
      if (c != ' ' && c != '\n' && c != '\r' && c != '\t') scratch_ += c;
    }
    scratch_ += ' ';
    for (const char c : raw.types.substr(0, limits_.name)) {
      if (c != ' ' && c != '\n' && c != '\r' && c != '\t') scratch_ += c;
    }
    return trace_.names.intern(scratch_);
  }

  // "_allgather_base of 4096 in group 5"; without a number where each rank may have its own.
  uint32_t intern_collective(const RawEvent& raw) {
    scratch_ = raw.collective.substr(0, limits_.name);
    if (!raw.elements.empty() && !is_uneven(raw.collective))
      scratch_ += " of " + std::string(raw.elements.substr(0, 40));
    if (!raw.process_group.empty()) {
      scratch_ += " in group " + std::string(raw.process_group.substr(0, limits_.name));
    }
    return intern(scratch_);
  }

  // Kernels carry their device and stream; what has neither is on the row that it is drawn in.
  uint32_t track_of(const RawEvent& raw, bool device) {
    const std::string_view process = device && !raw.device.empty() ? raw.device : raw.pid;
    const std::string_view thread = device && !raw.stream.empty() ? raw.stream : raw.tid;
    scratch_.assign(device ? "d" : "h");
    scratch_.append(process.substr(0, 64)).append("\n").append(thread.substr(0, 64));
    const auto found = tracks_.find(scratch_);
    if (found != tracks_.end()) return found->second;
    const auto index = static_cast<uint32_t>(trace_.tracks.size());
    trace_.tracks.push_back(
        {std::string(process.substr(0, 64)), std::string(thread.substr(0, 64)), device});
    tracks_.emplace(scratch_, index);
    return index;
  }

  void take_wait(const RawEvent& raw) {
    TraceWait wait;
    wait.correlation = integer_or(raw.correlation, 0);
    wait.record_correlation = std::max<int64_t>(integer_or(raw.record_correlation, 0), 0);
    wait.stream = integer_or(raw.stream, -1);
    wait.wait_on_stream = integer_or(raw.wait_on_stream, -1);
    wait.device = integer_or(raw.device, -1);
    if (wait.correlation != 0 && trace_.waits.size() < limits_.events) trace_.waits.push_back(wait);
  }

  void note(int64_t offset, std::string message) {
    ++trace_.fault_count;
    if (trace_.faults.size() < kFaultsKept) trace_.faults.push_back({offset, std::move(message)});
  }

  Result<Trace> finish() {
    for (const text::JsonFault& fault : items_.faults()) note(fault.offset, fault.message);
    trace_.is_cut = items_.is_cut();
    if (trace_.events.empty() && trace_.fault_count > 0) {
      return Error{ErrorCode::bad_input,
                   "has no event that can be read: " + trace_.faults[0].message,
                   trace_.file + ": byte " + std::to_string(trace_.faults[0].offset), ""};
    }
    for (const auto& [name, value] : items_.members()) read_member(name, value);
    std::stable_sort(
        trace_.events.begin(), trace_.events.end(), [](const TraceEvent& a, const TraceEvent& b) {
          return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
        });
    return std::move(trace_);
  }

  // A member that is not as expected is as good as missing.
  void read_member(const std::string& name, const std::string& value) {
    if (name.starts_with("roctracer") || name.starts_with("hip_")) trace_.is_rocm = true;
    if (name != "deviceProperties" && name != "distributedInfo") return;
    const Result<text::Json> json = text::parse_json(value, trace_.file);
    if (!json) return;
    if (name == "distributedInfo" && json->is_object()) {
      const text::JsonView view(*json, trace_.file);
      if (const auto rank = view.get_int("rank", 0, INT32_MAX); rank) trace_.rank = *rank;
      if (const auto size = view.get_int("world_size", 1, INT32_MAX); size)
        trace_.world_size = *size;
    }
    if (name != "deviceProperties" || json->kind() != text::Json::Kind::array) return;
    for (const text::Json& item : json->items()) {
      if (!item.is_object() || trace_.devices.size() >= 1024) continue;
      const text::JsonView view(item, trace_.file);
      TraceDevice device;
      if (const auto label = view.get_string("name"); label) device.name = *label;
      if (const auto bytes = view.get_int("totalGlobalMem", 0, INT64_MAX); bytes) {
        device.memory_bytes = *bytes;
      }
      if (const auto count = view.get_int("numSms", 0, INT32_MAX); count) {
        device.multiprocessors = *count;
      }
      trace_.devices.push_back(std::move(device));
    }
  }

  text::JsonItems items_;
  KinetoLimits limits_;
  Trace trace_;
  std::unordered_map<std::string, uint32_t> tracks_;
  std::string scratch_;
};

}  // namespace

Result<Trace> read_kineto(text::ByteFeed feed, const KinetoLimits& limits) {
  return Reader(std::move(feed), limits).read();
}

Result<Trace> read_kineto(const std::string& path, const KinetoLimits& limits) {
  HEADROOM_ASSIGN(text::ByteFeed feed, text::ByteFeed::open(path));
  return read_kineto(std::move(feed), limits);
}

}  // namespace headroom::formats
