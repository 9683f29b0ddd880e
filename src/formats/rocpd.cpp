#include "formats/rocpd.h"

#include <algorithm>
#include <unordered_map>

#include "base/units.h"
#include "formats/sqlite_trace.h"
#include "formats/trace_words.h"

namespace headroom::formats {
namespace {

constexpr std::string_view kDispatches = "rocpd_kernel_dispatch";
constexpr std::string_view kCopies = "rocpd_memory_copy";
constexpr std::string_view kRegions = "rocpd_region";
constexpr std::string_view kEvents = "rocpd_event";
constexpr std::string_view kStrings = "rocpd_string";
constexpr std::string_view kSymbols = "rocpd_info_kernel_symbol";
constexpr std::string_view kAgents = "rocpd_info_agent";
constexpr size_t kMostDevices = 1024;
constexpr size_t kMostRuns = 256;

// The identifiers of the runs in the file, "" or "_0000a1b2..", of tables with that beginning.
std::vector<std::string> runs_of(const SqliteFile& file, std::string_view table) {
  std::vector<std::string> runs;
  for (const std::string& name : file.tables()) {
    if (!name.starts_with(table) || runs.size() == kMostRuns) continue;
    const std::string rest = name.substr(table.size());
    const bool is_identifier = std::all_of(rest.begin(), rest.end(), [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == '_';
    });
    if (rest.empty() || (rest.front() == '_' && is_identifier)) runs.push_back(rest);
  }
  return runs;
}

// One run of the file; numbers in its tables are its own.
class RunReader {
 public:
  RunReader(const SqliteFile& file, std::string run, int64_t number, TraceBuilder& builder)
      : file_(file), run_(std::move(run)), number_(number), builder_(builder) {}

  Result<void> read() {
    HEADROOM_TRY(read_names(kStrings, {"id", "string"}, strings_));
    HEADROOM_TRY(read_names(kSymbols, {"id", "display_name", "kernel_name"}, symbols_));
    HEADROOM_TRY(read_agents());
    HEADROOM_TRY(read_stacks());
    HEADROOM_TRY(read_regions());
    HEADROOM_TRY(read_work(kDispatches, TraceEventKind::kernel));
    return read_work(kCopies, TraceEventKind::copy);
  }

 private:
  using Numbers = std::unordered_map<int64_t, uint32_t>;

  template <typename Take>
  Result<void> each(std::string_view table, const std::vector<std::string>& columns,
                    const Take& take) {
    return each_row(file_, std::string(table) + run_, table, columns, builder_, take);
  }

  // By number the first text that a row has.
  Result<void> read_names(std::string_view table, const std::vector<std::string>& columns,
                          Numbers& names) {
    return each(table, columns,
                [&](const SqliteRows& row, const TracePlace& place) -> Result<void> {
                  const auto id = row.integer(0);
                  if (!id || names.size() >= builder_.limits().names) return {};
                  const bool has_first = !row.text(1).empty() || columns.size() < 3;
                  names[*id] = builder_.intern(row.text(has_first ? 1 : 2));
                  return builder_.check_limits(place);
                });
  }

  std::string text_of(const Numbers& names, std::optional<int64_t> id, const char* otherwise) {
    const auto found = names.find(id.value_or(-1));
    return found == names.end() ? otherwise : std::string(builder_.trace().names.at(found->second));
  }

  Result<void> read_agents() {
    return each(kAgents, {"id", "type", "product_name", "name"},
                [&](const SqliteRows& row, const TracePlace&) -> Result<void> {
                  auto& devices = builder_.trace().devices;
                  const auto id = row.integer(0);
                  if (!id || row.text(1) != "GPU" || devices.size() >= kMostDevices) return {};
                  agents_.emplace(*id, static_cast<uint32_t>(devices.size()));
                  const std::string_view name = row.text(row.text(2).empty() ? 3 : 2);
                  TraceDevice device;
                  device.name = name.substr(0, builder_.limits().name);
                  devices.push_back(std::move(device));
                  return {};
                });
  }

  // What shares a stack was caused by one call.
  Result<void> read_stacks() {
    return each(kEvents, {"id", "stack_id"},
                [&](const SqliteRows& row, const TracePlace&) -> Result<void> {
                  const auto id = row.integer(0);
                  const auto stack = row.integer(1);
                  if (id && stack && stacks_.size() < builder_.limits().events) {
                    stacks_.emplace(*id, *stack);
                  }
                  return {};
                });
  }

  // Each run counts its stacks from one: the number of the run makes them different.
  int64_t stack_of(std::optional<int64_t> event) const {
    const auto found = stacks_.find(event.value_or(-1));
    if (found == stacks_.end() || found->second == 0) return 0;
    const auto scaled = checked_multiply(found->second, static_cast<int64_t>(kMostRuns));
    return scaled ? checked_add(*scaled, number_).value_or(0) : 0;
  }

  Result<void> read_regions() {
    return each(kRegions, {"start", "end", "pid", "tid", "name_id", "event_id"},
                [&](const SqliteRows& row, const TracePlace& place) -> Result<void> {
                  ++builder_.trace().records;
                  const std::string name = text_of(strings_, row.integer(4), "");
                  if (name.starts_with("hsa_") || name.empty()) return {};
                  TraceEvent event;
                  if (!builder_.set_span(event, row.integer(0), row.integer(1), place)) {
                    return {};
                  }
                  event.kind = name.starts_with("hip") ? TraceEventKind::call
                               : is_step_name(name)    ? TraceEventKind::step
                                                       : TraceEventKind::annotation;
                  event.name = builder_.intern(name);
                  event.track = builder_.track(std::to_string(row.integer_or(2, 0)),
                                               std::to_string(row.integer_or(3, 0)), false);
                  event.correlation = stack_of(row.integer(5));
                  return builder_.add(event, place);
                });
  }

  Result<void> read_work(std::string_view table, TraceEventKind kind) {
    const bool is_copy = kind == TraceEventKind::copy;
    return each(table,
                {"start", "end", is_copy ? "dst_agent_id" : "agent_id", "stream_id", "queue_id",
                 is_copy ? "name_id" : "kernel_id", "event_id", "src_agent_id"},
                [&](const SqliteRows& row, const TracePlace& place) -> Result<void> {
                  ++builder_.trace().records;
                  TraceEvent event;
                  if (!builder_.set_span(event, row.integer(0), row.integer(1), place)) {
                    return {};
                  }
                  event.kind = kind;
                  auto agent = agents_.find(row.integer_or(2, -1));
                  if (agent == agents_.end())
                    agent = agents_.find(row.integer_or(7, -1));  // to the host
                  const std::string device = agent == agents_.end()
                                                 ? "agent " + std::to_string(row.integer_or(2, -1))
                                                 : std::to_string(agent->second);
                  const auto stream = row.integer(3) ? row.integer(3) : row.integer(4);
                  event.track = builder_.track(device, std::to_string(stream.value_or(0)), true);
                  event.name = builder_.intern(
                      is_copy ? rocm_copy_name(text_of(strings_, row.integer(5), ""))
                              : text_of(symbols_, row.integer(5), "(no name)"));
                  event.correlation = stack_of(row.integer(6));
                  return builder_.add(event, place);
                });
  }

  const SqliteFile& file_;
  std::string run_;
  int64_t number_;
  TraceBuilder& builder_;
  Numbers strings_, symbols_;
  Numbers agents_;                               // devices by number of the agent
  std::unordered_map<int64_t, int64_t> stacks_;  // by number of the event
};

}  // namespace

bool is_rocpd(const SqliteFile& file) { return !runs_of(file, kStrings).empty(); }

Result<Trace> read_rocpd(const SqliteFile& file, const TraceLimits& limits) {
  TraceBuilder builder(file.name(), "rocpd", limits);
  builder.trace().is_rocm = true;
  int64_t number = 0;
  for (const std::string& run : runs_of(file, kStrings)) {
    const std::string dispatches = std::string(kDispatches) + run;
    if (file.has(dispatches) && !file.has_column(dispatches, "start")) {
      return Error{ErrorCode::bad_input, "keeps its times in a table of their own (schema 4)",
                   file.name() + ": table " + dispatches,
                   "write JSON: rocprofv3 --output-format json"};
    }
    HEADROOM_TRY(RunReader(file, run, number++, builder).read());
  }
  return builder.finish();
}

}  // namespace headroom::formats
