#include "formats/rocprof.h"

#include <algorithm>
#include <map>

#include "formats/trace_words.h"
#include "text/json_cursor.h"
#include "text/json_walk.h"

namespace headroom::formats {
namespace {

using text::JsonCursor;

// In the order of Section.
const std::vector<std::string> kSections{"agents",          "kernel_symbols", "buffer_records",
                                         "kernel_dispatch", "memory_copy",    "hip_api"};
enum class Section { agents, symbols, kinds, dispatches, copies, calls };

constexpr std::string_view kFormat = "rocprofv3";
constexpr int kDepth = 4;  // of objects in one record
constexpr int64_t kGpu = 2;
constexpr size_t kMostKinds = 256;
constexpr size_t kMostOperations = 65'536;
constexpr size_t kMostAgents = 1024;

// The members of one record that matter, as they stand in the text.
struct Record {
  std::string_view type, product, compute_units;                                  // agents
  std::string_view kernel_id, formatted_name, kernel_name;                        // symbols
  std::string_view kind, operation, operations, thread, correlation, start, end;  // records
  std::string_view own_handle, agent, queue, stream, source_agent, destination_agent;
};

struct Field {
  std::string_view parent, key;
  std::string_view Record::*member;
};
constexpr Field kFields[] = {
    {"", "type", &Record::type},
    {"", "product_name", &Record::product},
    {"", "cu_count", &Record::compute_units},
    {"id", "handle", &Record::own_handle},
    {"", "kernel_id", &Record::kernel_id},
    {"", "formatted_kernel_name", &Record::formatted_name},
    {"", "kernel_name", &Record::kernel_name},
    {"", "kind", &Record::kind},
    {"", "operation", &Record::operation},
    {"", "operations", &Record::operations},
    {"", "thread_id", &Record::thread},
    {"correlation_id", "internal", &Record::correlation},
    {"", "start_timestamp", &Record::start},
    {"", "end_timestamp", &Record::end},
    {"dispatch_info", "kernel_id", &Record::kernel_id},
    {"agent_id", "handle", &Record::agent},
    {"queue_id", "handle", &Record::queue},
    {"stream_id", "handle", &Record::stream},
    {"src_agent_id", "handle", &Record::source_agent},
    {"dst_agent_id", "handle", &Record::destination_agent},
};

void read_object(JsonCursor& cursor, std::string_view parent, int depth, Record& record) {
  std::string_view key;
  cursor.enter_object();
  while (cursor.next_member(key)) {
    if (cursor.kind() == '{' && depth < kDepth) {
      read_object(cursor, key, depth + 1, record);
      continue;
    }
    const auto* const field =
        std::find_if(std::begin(kFields), std::end(kFields),
                     [&](const Field& one) { return one.parent == parent && one.key == key; });
    if (field == std::end(kFields)) {
      cursor.skip();
    } else if (cursor.kind() == '"') {
      cursor.read_string(record.*(field->member));
    } else {
      cursor.read_raw(record.*(field->member));
    }
  }
}

std::optional<int64_t> integer(std::string_view text) { return text::fixed_point(text, 0); }

class Reader {
 public:
  Reader(text::ByteFeed feed, const TraceLimits& limits)
      : walk_(std::move(feed), kSections), builder_(walk_.name(), kFormat, limits) {
    builder_.trace().is_rocm = true;
  }

  Result<Trace> read() {
    while (walk_.next()) HEADROOM_TRY(take());
    if (walk_.fault()) {
      builder_.note({walk_.fault()->offset}, walk_.fault()->message);
      builder_.trace().is_cut = true;
    }
    name_late_kernels();
    return builder_.finish();
  }

 private:
  Result<void> take() {
    Record record;
    JsonCursor cursor(walk_.item());
    read_object(cursor, "", 1, record);
    if (cursor.failed()) {
      builder_.note(place(), "a record that is not JSON");
      return {};
    }
    const auto section = static_cast<Section>(walk_.array());
    switch (section) {
      case Section::agents:
        take_agent(record);
        return {};
      case Section::symbols:
        return take_symbol(record);
      case Section::kinds:
        take_kind(record);
        return {};
      default:
        ++builder_.trace().records;
        return take_event(record, section);
    }
  }

  // Devices are numbered as they come, host processors left out.
  void take_agent(const Record& record) {
    const auto handle = integer(record.own_handle);
    if (!handle || integer(record.type) != kGpu || devices_.size() == kMostAgents) return;
    devices_.emplace(*handle, devices_.size());
    TraceDevice device;
    device.name = text::unescape(record.product.substr(0, builder_.limits().name));
    device.multiprocessors = std::max<int64_t>(integer(record.compute_units).value_or(0), 0);
    builder_.trace().devices.push_back(std::move(device));
  }

  Result<void> take_symbol(const Record& record) {
    const auto id = integer(record.kernel_id);
    const std::string_view name =
        record.formatted_name.empty() ? record.kernel_name : record.formatted_name;
    if (id && !name.empty() && symbols_.size() < builder_.limits().names)
      symbols_[*id] = builder_.intern_json(name);
    return builder_.check_limits(place());
  }

  // The names of one kind's operations; kinds are numbered as they come.
  void take_kind(const Record& record) {
    if (operations_.size() == kMostKinds) return;
    std::vector<std::string>& names = operations_.emplace_back();
    JsonCursor cursor(record.operations);
    if (record.operations.empty() || !cursor.enter_array()) return;
    std::string_view name;
    while (names.size() < kMostOperations && cursor.next_item() && cursor.read_string(name)) {
      names.emplace_back(name.substr(0, builder_.limits().name));
    }
  }

  [[nodiscard]] std::string operation_of(const Record& record) const {
    const int64_t kind = integer(record.kind).value_or(-1);
    const int64_t operation = integer(record.operation).value_or(-1);
    if (kind < 0 || operation < 0 || kind >= static_cast<int64_t>(operations_.size())) return "";
    const std::vector<std::string>& names = operations_[static_cast<size_t>(kind)];
    if (operation >= static_cast<int64_t>(names.size())) return "";
    return names[static_cast<size_t>(operation)];
  }

  Result<void> take_event(const Record& record, Section section) {
    TraceEvent event;
    if (!builder_.set_span(event, integer(record.start), integer(record.end), place())) return {};
    event.correlation = integer(record.correlation).value_or(0);
    if (section == Section::calls) {
      const std::string name = operation_of(record);
      event.kind = TraceEventKind::call;
      event.name = builder_.intern(name.empty() ? "HIP call" : name);
      event.track = builder_.track("", record.thread, false);
    } else if (section == Section::copies) {
      const bool is_down = operation_of(record).ends_with("DEVICE_TO_HOST");
      event.kind = TraceEventKind::copy;
      event.name = builder_.intern(rocm_copy_name(operation_of(record)));
      event.track = stream_of(record, is_down ? record.source_agent : record.destination_agent);
    } else {
      event.kind = TraceEventKind::kernel;
      event.name = kernel_name(integer(record.kernel_id).value_or(-1));
      event.track = stream_of(record, record.agent);
    }
    return builder_.add(event, place());
  }

  uint32_t stream_of(const Record& record, std::string_view agent) {
    const auto device = devices_.find(integer(agent).value_or(-1));
    const std::string number =
        device == devices_.end() ? std::string(agent) : std::to_string(device->second);
    return builder_.track(number, record.stream.empty() ? record.queue : record.stream, true);
  }

  // A symbol may stand behind the dispatches that use it.
  uint32_t kernel_name(int64_t id) {
    const auto symbol = symbols_.find(id);
    if (symbol != symbols_.end()) return symbol->second;
    const uint32_t name = builder_.intern("kernel " + std::to_string(id));
    late_[name] = id;
    return name;
  }
  void name_late_kernels() {
    if (late_.empty()) return;
    for (TraceEvent& event : builder_.trace().events) {
      const auto late = late_.find(event.name);
      const auto symbol = late == late_.end() ? symbols_.end() : symbols_.find(late->second);
      if (symbol != symbols_.end()) event.name = symbol->second;
    }
  }

  [[nodiscard]] TracePlace place() const { return {walk_.offset()}; }

  text::JsonWalk walk_;
  TraceBuilder builder_;
  std::map<int64_t, size_t> devices_;                 // by handle of the agent
  std::unordered_map<int64_t, uint32_t> symbols_;     // names by number of the kernel
  std::unordered_map<uint32_t, int64_t> late_;        // numbers by the name that stands in for one
  std::vector<std::vector<std::string>> operations_;  // names, by kind
};

}  // namespace

bool is_rocprof(std::string_view begin) {
  return begin.find("\"rocprofiler-sdk-tool\"") != std::string_view::npos;
}

Result<Trace> read_rocprof(text::ByteFeed feed, const TraceLimits& limits) {
  return Reader(std::move(feed), limits).read();
}

}  // namespace headroom::formats
