#include "formats/ort_profile.h"

#include <optional>
#include <vector>

#include "text/json.h"
#include "text/json_cursor.h"
#include "text/json_items.h"

namespace headroom::formats {
namespace {

using text::JsonCursor;

constexpr int kNsDecimals = 3;  // times are microseconds
constexpr std::string_view kRun = "model_run";

struct RawEvent {
  std::string_view category, name, thread, start, duration;
  std::string_view operation, inputs, outputs, provider;
};

// Whose nodes run on the processor that profiles them, so that their times are those of the work.
bool is_of_processor(std::string_view provider) {
  return provider.empty() || provider == "CPUExecutionProvider" ||
         provider == "DnnlExecutionProvider" || provider == "XnnpackExecutionProvider";
}

void read_arguments(JsonCursor& cursor, RawEvent& event) {
  std::string_view key;
  cursor.enter_object();
  while (cursor.next_member(key)) {
    if (key == "op_name" && cursor.kind() == '"') {
      cursor.read_string(event.operation);
    } else if (key == "provider" && cursor.kind() == '"') {
      cursor.read_string(event.provider);
    } else if (key == "input_type_shape" && cursor.kind() == '[') {
      cursor.read_raw(event.inputs);
    } else if (key == "output_type_shape" && cursor.kind() == '[') {
      cursor.read_raw(event.outputs);
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

struct TypedShape {
  std::string type;
  std::vector<int64_t> sizes;
};

// [{"float":[1,256]},{"int64":[2]}]; nothing where it is not that.
std::optional<std::vector<TypedShape>> shapes_of(std::string_view text) {
  const Result<text::Json> json = text::parse_json(text, "shapes");
  if (!json || json->kind() != text::Json::Kind::array) return std::nullopt;
  std::vector<TypedShape> shapes;
  for (const text::Json& item : json->items()) {
    if (!item.is_object() || item.members().size() != 1) return std::nullopt;
    const auto& [type, sizes] = *item.members().begin();
    if (sizes.kind() != text::Json::Kind::array) return std::nullopt;
    TypedShape shape{std::string(type), {}};
    for (const text::Json& size : sizes.items()) {
      if (!size.is_integer()) return std::nullopt;
      shape.sizes.push_back(size.as_int());
    }
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

// A product's weight that was packed when the model was loaded is not among its inputs: [k, n]
// follows from its input [.., k] and its result [.., n].
void add_packed_weight(std::string_view operation, std::string_view outputs,
                       std::vector<TypedShape>& inputs) {
  const bool is_product =
      operation == "MatMul" || operation == "FusedMatMul" || operation == "Gemm";
  if (!is_product || inputs.empty() || inputs[0].sizes.size() < 2) return;
  if (inputs.size() > 1 && inputs[1].sizes.size() > 1) return;  // it is there
  const auto results = shapes_of(outputs);
  if (!results || results->size() != 1 || (*results)[0].sizes.size() < 2) return;
  inputs.insert(inputs.begin() + 1,
                {inputs[0].type, {inputs[0].sizes.back(), (*results)[0].sizes.back()}});
}

// As [[1,256],[2]] ["float","int64"]; "" where it is not that.
std::string detail_of(std::string_view operation, std::string_view inputs,
                      std::string_view outputs) {
  auto found = shapes_of(inputs);
  if (!found) return "";
  add_packed_weight(operation, outputs, *found);
  std::string shapes = "[";
  std::string types = "[";
  for (const TypedShape& input : *found) {
    shapes += shapes.size() > 1 ? ",[" : "[";
    for (size_t i = 0; i < input.sizes.size(); ++i) {
      shapes += (i == 0 ? "" : ",") + std::to_string(input.sizes[i]);
    }
    shapes += "]";
    types += (types.size() > 1 ? "," : "") + text::Json(input.type).dump();
  }
  return shapes + "] " + types + "]";
}

class Reader {
 public:
  Reader(text::ByteFeed feed, const TraceLimits& limits)
      : items_(std::move(feed), "traceEvents"), builder_(items_.name(), "ONNX Runtime", limits) {}

  Result<Trace> read() {
    for (;;) {
      HEADROOM_ASSIGN(const bool is_event, items_.next());
      if (!is_event) break;
      ++builder_.trace().records;
      HEADROOM_TRY(take(items_.item()));
    }
    builder_.take_faults(items_);
    if (builder_.trace().events.empty()) {
      return Error{ErrorCode::bad_input, "has no node that can be read", items_.name() + ": byte 0",
                   "write it with SessionOptions.enable_profiling"};
    }
    return builder_.finish();
  }

 private:
  Result<void> take(std::string_view text) {
    const TracePlace place{items_.offset()};
    RawEvent raw;
    if (!read_event(text, raw)) {
      builder_.note(place, "an event that is not JSON");
      return {};
    }
    const bool is_node = raw.category == "Node" && !raw.operation.empty();
    if (raw.category == "Kernel" || (is_node && !is_of_processor(raw.provider))) {
      return on_device(raw.provider);
    }
    const bool is_run = raw.category == "Session" && raw.name == kRun;
    if (!is_node && !is_run) return {};
    TraceEvent event;
    if (!builder_.set_times(event, text::fixed_point(raw.start, kNsDecimals),
                            text::fixed_point(raw.duration, kNsDecimals), place)) {
      return {};
    }
    event.kind = is_node ? TraceEventKind::host_operator : TraceEventKind::step;
    event.name = builder_.intern(is_node ? "onnx::" + plain(raw.operation) : std::string(kRun));
    event.track = builder_.track("", raw.thread, false);
    const std::string detail = is_node ? detail_of(raw.operation, raw.inputs.substr(0, most_text()),
                                                   raw.outputs.substr(0, most_text()))
                                       : "";
    if (!detail.empty()) event.detail = builder_.intern(detail);
    return builder_.add(event, place);
  }

  // Which node launched a kernel only their order would say, and not of what runs side by side.
  [[nodiscard]] Error on_device(std::string_view provider) const {
    constexpr size_t kMostName = 80;
    const std::string name(provider.substr(0, kMostName));
    return Error{
        ErrorCode::unavailable,
        "is of a run on " + (name.empty() ? "a device" : name) +
            ": node times are what launching took there, not what kernels take",
        items_.name(),
        "record it with Nsight Systems (`nsys profile`, then `nsys export --type sqlite`), "
        "with torch.profiler around the run, or on AMD with rocprofv3"};
  }

  [[nodiscard]] size_t most_text() const { return builder_.limits().name; }

  [[nodiscard]] std::string plain(std::string_view raw) const {
    raw = raw.substr(0, most_text());
    return text::has_escape(raw) ? text::unescape(raw) : std::string(raw);
  }

  text::JsonItems items_;
  TraceBuilder builder_;
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

Result<Trace> read_ort_profile(text::ByteFeed feed, const TraceLimits& limits) {
  return Reader(std::move(feed), limits).read();
}

}  // namespace headroom::formats
