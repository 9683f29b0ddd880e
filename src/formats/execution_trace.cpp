#include "formats/execution_trace.h"

#include <algorithm>

#include "text/json.h"
#include "text/json_cursor.h"
#include "text/json_items.h"

namespace headroom::formats {
namespace {

using text::JsonCursor;

// The members of one node that matter, as they stand in the text.
struct Node {
  std::string_view name, id, shapes, types;
};

std::string_view read_value(JsonCursor& cursor) {
  std::string_view value;
  if (cursor.kind() == '"') {
    cursor.read_string(value);
  } else {
    cursor.read_raw(value);
  }
  return value;
}

// [{"name": "rf_id", "type": "uint64", "value": 5}, ..]: since 1.0.2.
void read_attributes(JsonCursor& cursor, Node& node) {
  cursor.enter_array();
  while (cursor.next_item()) {
    if (cursor.kind() != '{') {
      cursor.skip();
      continue;
    }
    std::string_view key, name, value;
    cursor.enter_object();
    while (cursor.next_member(key)) {
      const std::string_view text = read_value(cursor);
      if (key == "name") name = text;
      if (key == "value") value = text;
    }
    if (name == "rf_id") node.id = value;
  }
}

// {"values": .., "shapes": .., "types": ..}: since 1.0.2.
void read_inputs(JsonCursor& cursor, Node& node) {
  std::string_view key;
  cursor.enter_object();
  while (cursor.next_member(key)) {
    const std::string_view text = read_value(cursor);
    if (key == "shapes") node.shapes = text;
    if (key == "types") node.types = text;
  }
}

bool read_node(std::string_view text, Node& node) {
  JsonCursor cursor(text);
  std::string_view key;
  cursor.enter_object();
  while (cursor.next_member(key)) {
    if (key == "attrs" && cursor.kind() == '[') {
      read_attributes(cursor, node);
    } else if (key == "inputs" && cursor.kind() == '{') {
      read_inputs(cursor, node);
    } else {
      const std::string_view value = read_value(cursor);
      if (key == "name") node.name = value;
      if (key == "rf_id") node.id = value;
      if (key == "input_shapes") node.shapes = value;
      if (key == "input_types") node.types = value;
    }
  }
  return !cursor.failed();
}

// "Tensor(float)" is float; "GenericList[Tensor(float),Tensor(float)]" too, where all are; what is
// no tensor is "Scalar".
std::string element_of(std::string_view type) {
  constexpr std::string_view kTensor = "Tensor(";
  std::string element;
  for (size_t at = type.find(kTensor); at != std::string_view::npos;
       at = type.find(kTensor, at + 1)) {
    const size_t begin = at + kTensor.size();
    const std::string one(type.substr(begin, type.find(')', begin) - begin));
    if (!element.empty() && element != one) return "Scalar";
    element = one;
  }
  return element.empty() ? "Scalar" : element;
}

// Shapes and types as a trace keeps them: "[[4,8],[]] [\"float\",\"Scalar\"]"; "" where they are
// not as many.
std::string detail_of(const Node& node) {
  const Result<text::Json> shapes = text::parse_json(node.shapes, "shapes");
  const Result<text::Json> types = text::parse_json(node.types, "types");
  if (!shapes || !types || !shapes->is_array() || !types->is_array()) return "";
  if (shapes->size() != types->size() || shapes->size() == 0) return "";
  text::Json plain_shapes = text::Json::array();
  text::Json plain_types = text::Json::array();
  for (size_t i = 0; i < types->size(); ++i) {
    const text::Json& type = types->items()[i];
    if (!type.is_string()) return "";
    const std::string element = element_of(type.as_string());
    plain_types.push_back(element);
    plain_shapes.push_back(element == "Scalar" ? text::Json::array() : shapes->items()[i]);
  }
  return plain_shapes.dump() + " " + plain_types.dump();
}

class Reader {
 public:
  Reader(text::ByteFeed feed, const TraceLimits& limits)
      : items_(std::move(feed), "nodes"), limits_(limits) {
    execution_.file = items_.name();
  }

  Result<ExecutionTrace> read() {
    for (;;) {
      HEADROOM_ASSIGN(const bool is_node, items_.next());
      if (!is_node) break;
      ++execution_.nodes;
      HEADROOM_TRY(take(items_.item()));
    }
    for (const text::JsonFault& fault : items_.faults()) note(fault.offset, fault.message);
    execution_.is_cut = items_.is_cut();
    for (const auto& [name, value] : items_.members()) {
      if (name == "schema" && value.size() >= 2) {
        execution_.schema = text::unescape(value.substr(1, value.size() - 2));
      }
    }
    if (execution_.operators.empty()) {
      return Error{ErrorCode::bad_input, "has no operator with an id of the profiler",
                   execution_.file + ": byte 0",
                   "record it with torch.profiler.ExecutionTraceObserver beside the trace"};
    }
    return std::move(execution_);
  }

 private:
  Result<void> take(std::string_view text) {
    Node node;
    if (!read_node(text, node)) {
      note(items_.offset(), "a node that is not JSON");
      return {};
    }
    const int64_t id = text::fixed_point(node.id, 0).value_or(0);
    if (id <= 0 || node.name.empty()) return {};
    ExecutedOperator operation;
    operation.name = execution_.names.intern(text::unescape(node.name.substr(0, limits_.name)));
    if (node.shapes.size() <= limits_.name && node.types.size() <= limits_.name) {
      const std::string detail = detail_of(node);
      if (!detail.empty()) operation.detail = execution_.names.intern(detail);
    }
    execution_.operators.emplace(id, operation);
    if (execution_.operators.size() <= limits_.events && execution_.names.size() <= limits_.names &&
        execution_.names.bytes() <= limits_.name_bytes) {
      return {};
    }
    return Error{ErrorCode::bad_input, "has more nodes or names than can be read",
                 execution_.file + ": byte " + std::to_string(items_.offset()),
                 "record fewer steps"};
  }

  void note(int64_t offset, const std::string& message) {
    ++execution_.fault_count;
    if (execution_.first_fault.empty()) {
      execution_.first_fault = TracePlace{offset}.text() + ": " + message;
    }
  }

  text::JsonItems items_;
  TraceLimits limits_;
  ExecutionTrace execution_;
};

}  // namespace

Result<ExecutionTrace> read_execution_trace(text::ByteFeed feed, const TraceLimits& limits) {
  return Reader(std::move(feed), limits).read();
}

Result<ExecutionTrace> read_execution_trace(const std::string& path) {
  HEADROOM_ASSIGN(text::ByteFeed feed, text::ByteFeed::open(path));
  return read_execution_trace(std::move(feed));
}

Joined join(Trace& trace, const ExecutionTrace& execution) {
  // Old profilers have one id for both purposes.
  const bool has_record_ids =
      std::any_of(trace.events.begin(), trace.events.end(), [](const TraceEvent& event) {
        return event.kind == TraceEventKind::host_operator && event.correlation != 0;
      });
  Joined joined;
  for (TraceEvent& event : trace.events) {
    if (event.kind != TraceEventKind::host_operator) continue;
    ++joined.operators;
    const auto found =
        execution.operators.find(has_record_ids ? event.correlation : event.external_id);
    if (found == execution.operators.end()) continue;
    if (execution.names.at(found->second.name) != trace.name_of(event)) {
      ++joined.others;
      continue;
    }
    ++joined.joined;
    if (found->second.detail == kNone) continue;
    const std::string_view detail = execution.names.at(found->second.detail);
    // A profiler's may say more (formats/kineto.cpp).
    if (event.detail != kNone && trace.names.at(event.detail).starts_with(detail)) continue;
    event.detail = trace.names.intern(detail);
    ++joined.shaped;
  }
  return joined;
}

bool is_same_run(const Joined& joined) {
  constexpr int64_t kTolerated = 20;  // one in so many: names that a profiler changes
  return joined.joined > kTolerated * joined.others;
}

}  // namespace headroom::formats
