#include "formats/ort_profile.h"

#include <algorithm>
#include <array>

#include "text/json.h"
#include "text/json_cursor.h"
#include "text/json_items.h"

namespace headroom::formats {
namespace {

using text::JsonCursor;

constexpr size_t kFaultsKept = 20;
constexpr int kNsDecimals = 3;  // times are microseconds
constexpr std::string_view kRun = "model_run";

struct RawEvent {
  std::string_view category, name, thread, start, duration;
  std::string_view operation, inputs;
};

void read_arguments(JsonCursor& cursor, RawEvent& event) {
  std::string_view key;
  cursor.enter_object();
  while (cursor.next_member(key)) {
    if (key == "op_name" && cursor.kind() == '"') {
      cursor.read_string(event.operation);
    } else if (key == "input_type_shape" && cursor.kind() == '[') {
      cursor.read_raw(event.inputs);
    } else {
      cursor.skip();
    }
  }
}

bool read_event(std::string_view text, RawEvent& event) {
  JsonCursor cursor(text);
  std::string_view key;
  cursor.enter_object();
  while (cursor.next_member(key)) {
    std::string_view* const target = key == "cat"    ? &event.category
                                     : key == "name" ? &event.name
                                     : key == "tid"  ? &event.thread
                                     : key == "ts"   ? &event.start
                                     : key == "dur"  ? &event.duration
                                                     : nullptr;
    if (key == "args" && cursor.kind() == '{') {
      read_arguments(cursor, event);
    } else if (target == nullptr) {
      cursor.skip();
    } else if (cursor.kind() == '"') {
      cursor.read_string(*target);
    } else {
      cursor.read_raw(*target);
    }
  }
  return !cursor.failed();
}

// [{"float":[1,256]},{"int64":[2]}] as [[1,256],[2]] ["float","int64"]; "" where it is not that.
std::string detail_of(std::string_view inputs) {
  const Result<text::Json> json = text::parse_json(inputs, "shapes");
  if (!json || json->kind() != text::Json::Kind::array) return "";
  std::string shapes = "[";
  std::string types = "[";
  for (const text::Json& input : json->items()) {
    if (!input.is_object() || input.members().size() != 1) return "";
    const auto& [type, sizes] = *input.members().begin();
    if (sizes.kind() != text::Json::Kind::array) return "";
    shapes += shapes.size() > 1 ? ",[" : "[";
    bool is_first = true;
    for (const text::Json& size : sizes.items()) {
      if (!size.is_integer()) return "";
      shapes += (is_first ? "" : ",") + std::to_string(size.as_int());
      is_first = false;
    }
    shapes += "]";
    types += (types.size() > 1 ? "," : "") + text::Json(type).dump();
  }
  return shapes + "] " + types + "]";
}

class Reader {
 public:
  Reader(text::ByteFeed feed, const KinetoLimits& limits)
      : items_(std::move(feed), "traceEvents"), limits_(limits) {
    trace_.file = items_.name();
    trace_.format = kOnnxRuntime;
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
    if (!read_event(text, raw)) {
      note(items_.offset(), "an event that is not JSON");
      return {};
    }
    const bool is_node = raw.category == "Node" && !raw.operation.empty();
    const bool is_run = raw.category == "Session" && raw.name == kRun;
    if (!is_node && !is_run) return {};
    const auto start = text::fixed_point(raw.start, kNsDecimals);
    const auto duration = text::fixed_point(raw.duration, kNsDecimals);
    if (!start || !duration || *start < -kMaxTraceNs || *start > kMaxTraceNs || *duration < 0 ||
        *duration > kMaxTraceNs - *start) {
      note(items_.offset(), "an event without a time that makes sense");
      return {};
    }
    TraceEvent event;
    event.start_ns = *start;
    event.duration_ns = *duration;
    event.kind = is_node ? TraceEventKind::host_operator : TraceEventKind::annotation;
    event.name =
        is_node ? trace_.names.intern("onnx::" + plain(raw.operation)) : trace_.names.intern(kRun);
    event.track = track_of(raw.thread);
    const std::string detail = is_node ? detail_of(raw.inputs.substr(0, limits_.name)) : "";
    if (!detail.empty()) event.detail = trace_.names.intern(detail);
    trace_.events.push_back(event);
    return check_limits();
  }

  [[nodiscard]] std::string plain(std::string_view raw) const {
    raw = raw.substr(0, limits_.name);
    return text::has_escape(raw) ? text::unescape(raw) : std::string(raw);
  }

  uint32_t track_of(std::string_view thread) {
    const std::string name(thread.substr(0, 64));
    for (uint32_t i = 0; i < trace_.tracks.size(); ++i) {
      if (trace_.tracks[i].thread == name) return i;
    }
    if (trace_.tracks.size() == kMostThreads) return kMostThreads - 1;
    trace_.tracks.push_back({"", name, false});
    return static_cast<uint32_t>(trace_.tracks.size() - 1);
  }

  [[nodiscard]] Result<void> check_limits() const {
    const bool is_within = trace_.events.size() <= limits_.events &&
                           trace_.names.size() <= limits_.names &&
                           trace_.names.bytes() <= limits_.name_bytes;
    if (is_within) return {};
    return Error{ErrorCode::bad_input, "has more events or names than can be read",
                 trace_.file + ": byte " + std::to_string(items_.offset()), "profile fewer runs"};
  }

  void note(int64_t offset, std::string message) {
    ++trace_.fault_count;
    if (trace_.faults.size() < kFaultsKept) trace_.faults.push_back({offset, std::move(message)});
  }

  Result<Trace> finish() {
    for (const text::JsonFault& fault : items_.faults()) note(fault.offset, fault.message);
    trace_.is_cut = items_.is_cut();
    if (trace_.events.empty()) {
      return Error{ErrorCode::bad_input, "has no node that can be read", trace_.file + ": byte 0",
                   "write it with SessionOptions.enable_profiling"};
    }
    std::stable_sort(
        trace_.events.begin(), trace_.events.end(), [](const TraceEvent& a, const TraceEvent& b) {
          return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
        });
    return std::move(trace_);
  }

  static constexpr uint32_t kMostThreads = 4096;

  text::JsonItems items_;
  KinetoLimits limits_;
  Trace trace_;
};

}  // namespace

// Its first event is the session's: loading the model.
bool is_ort_profile(std::string_view begin) {
  const size_t first = begin.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (first == std::string_view::npos || begin[first] != '[') return false;
  const std::string_view event = begin.substr(first, begin.find('}', first) - first);
  return event.find("\"Session\"") != std::string_view::npos ||
         event.find("\"Node\"") != std::string_view::npos;
}

Result<Trace> read_ort_profile(text::ByteFeed feed, const KinetoLimits& limits) {
  return Reader(std::move(feed), limits).read();
}

Result<Trace> read_trace(const std::string& path, const KinetoLimits& limits) {
  if (path == "-") return read_kineto(path, limits);  // cannot be read twice
  HEADROOM_ASSIGN(text::ByteFeed peeked, text::ByteFeed::open(path));
  std::array<char, 1024> begin{};
  const Result<size_t> size = peeked.read(begin.data(), begin.size());
  if (!size || !is_ort_profile({begin.data(), *size})) return read_kineto(path, limits);
  HEADROOM_ASSIGN(text::ByteFeed feed, text::ByteFeed::open(path));
  return read_ort_profile(std::move(feed), limits);
}

}  // namespace headroom::formats
