#include "formats/execution_trace.h"

#include <algorithm>

#include "formats/chakra.h"
#include "formats/operator_detail.h"
#include "text/json.h"
#include "text/json_cursor.h"
#include "text/json_items.h"

namespace headroom::formats {
namespace {

using text::JsonCursor;

constexpr const char* kHowToRecord =
    "record it with torch.profiler.ExecutionTraceObserver beside the trace";

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

// Operators in the making.
class Operators {
 public:
  Operators(std::string file, const TraceLimits& limits) : limits_(limits) {
    execution_.file = std::move(file);
  }

  ExecutionTrace& trace() { return execution_; }
  // `shapes` and `types` are JSON.
  Result<void> add(int64_t id, std::string_view name, std::string_view shapes,
                   std::string_view types, int64_t place) {
    ExecutedOperator operation;
    operation.name = execution_.names.intern(name.substr(0, limits_.name));
    if (shapes.size() <= limits_.name && types.size() <= limits_.name) {
      const std::string detail = operator_detail(shapes, types);
      if (!detail.empty()) operation.detail = execution_.names.intern(detail);
    }
    execution_.operators.emplace(id, operation);
    if (execution_.operators.size() <= limits_.events && execution_.names.size() <= limits_.names &&
        execution_.names.bytes() <= limits_.name_bytes) {
      return {};
    }
    return Error{ErrorCode::bad_input, "has more nodes or names than can be read",
                 execution_.file + ": byte " + std::to_string(place), "record fewer steps"};
  }

  void note(int64_t offset, const std::string& message) {
    ++execution_.fault_count;
    if (execution_.first_fault.empty()) {
      execution_.first_fault = TracePlace{offset}.text() + ": " + message;
    }
  }

  Result<ExecutionTrace> finish() {
    if (!execution_.operators.empty()) return std::move(execution_);
    return Error{ErrorCode::bad_input, "has no operator with an id of the profiler",
                 execution_.file + ": byte 0", kHowToRecord};
  }

 private:
  TraceLimits limits_;
  ExecutionTrace execution_;
};

// What is read of Chakra's: chakra_nodes.h. Pieces of an operator have its shapes each.
Result<ExecutionTrace> read_chakra_operators(text::ByteFeed feed, const TraceLimits& limits) {
  ChakraNodes nodes(std::move(feed));
  Operators operators(nodes.name(), limits);
  ChakraNode node;
  for (;;) {
    HEADROOM_ASSIGN(const bool is_node, nodes.next(node));
    if (!is_node) break;
    ++operators.trace().nodes;
    if (!node.is_readable) operators.note(nodes.place(), "a message that is no node");
    if (!node.is_readable || !node.is_on_host || node.record_id <= 0 || node.name.empty()) continue;
    const bool is_short = node.shapes.size() <= limits.name && node.types.size() <= limits.name;
    HEADROOM_TRY(operators.add(node.record_id, whole_name(node),
                               is_short ? json_of_python(node.shapes) : "",
                               is_short ? json_of_python(node.types) : "", nodes.place()));
  }
  operators.trace().schema = nodes.schema();
  operators.trace().is_cut = !nodes.fault().empty();
  if (!nodes.fault().empty()) operators.note(nodes.place(), nodes.fault());
  return operators.finish();
}

class Reader {
 public:
  Reader(text::ByteFeed feed, const TraceLimits& limits)
      : items_(std::move(feed), "nodes"), operators_(items_.name(), limits), limits_(limits) {}

  Result<ExecutionTrace> read() {
    for (;;) {
      const Result<bool> is_node = items_.next();
      if (!is_node) {
        return Error{is_node.error().code, is_node.error().message, is_node.error().where,
                     kHowToRecord};
      }
      if (!*is_node) break;
      ++operators_.trace().nodes;
      HEADROOM_TRY(take(items_.item()));
    }
    for (const text::JsonFault& fault : items_.faults()) {
      operators_.note(fault.offset, fault.message);
    }
    operators_.trace().is_cut = items_.is_cut();
    for (const auto& [name, value] : items_.members()) {
      if (name == "schema" && value.size() >= 2) {
        operators_.trace().schema = text::unescape(value.substr(1, value.size() - 2));
      }
    }
    return operators_.finish();
  }

 private:
  Result<void> take(std::string_view text) {
    Node node;
    if (!read_node(text, node)) {
      operators_.note(items_.offset(), "a node that is not JSON");
      return {};
    }
    const int64_t id = text::fixed_point(node.id, 0).value_or(0);
    if (id <= 0 || node.name.empty()) return {};
    return operators_.add(id, text::unescape(node.name.substr(0, limits_.name)), node.shapes,
                          node.types, items_.offset());
  }

  text::JsonItems items_;
  Operators operators_;
  TraceLimits limits_;
};

}  // namespace

Result<ExecutionTrace> read_execution_trace(text::ByteFeed feed, const TraceLimits& limits) {
  constexpr size_t kBeginning = 1024;  // as much as tells the formats apart
  HEADROOM_ASSIGN(const std::string_view beginning, feed.peek(kBeginning));
  if (is_chakra(beginning)) return read_chakra_operators(std::move(feed), limits);
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
