#include "formats/nsight_systems.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "formats/sqlite_trace.h"
#include "formats/trace_words.h"

namespace headroom::formats {
namespace {

constexpr std::string_view kKernels = "CUPTI_ACTIVITY_KIND_KERNEL";
constexpr std::string_view kRuntime = "CUPTI_ACTIVITY_KIND_RUNTIME";
constexpr std::string_view kCopies = "CUPTI_ACTIVITY_KIND_MEMCPY";
constexpr std::string_view kFills = "CUPTI_ACTIVITY_KIND_MEMSET";
constexpr std::string_view kGraphs = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
constexpr std::string_view kRanges = "NVTX_EVENTS";
constexpr std::string_view kDevices = "TARGET_INFO_GPU";
constexpr std::string_view kVisibleDevices = "TARGET_INFO_CUDA_DEVICE";

constexpr int64_t kPushPop = 59;   // NVTX_EVENTS.eventType: a range of one thread
constexpr int64_t kStartEnd = 60;  // a range that another thread may end
constexpr size_t kMostDevices = 1024;
constexpr size_t kMostVisible = 65'536;  // devices of processes

// One report may be of several processes (torchrun): each has its own numbers for calls, devices
// and streams, and its own is in bits 24 to 47 of a globalTid or globalPid. NVIDIA's own reports
// join by both (cuda_kern_exec_trace.py of Nsight Systems).
int64_t process_of(int64_t global) { return (global >> 24) & 0xFFFFFF; }

// CUPTI's numbers have 32 bits.
int64_t correlation_of(int64_t process, int64_t number) {
  return number > 0 && number <= UINT32_MAX ? (process << 32) | number : 0;
}

class Reader {
 public:
  Reader(const SqliteFile& file, const TraceLimits& limits)
      : file_(file), builder_(file.name(), "Nsight Systems", limits) {}

  Result<Trace> read() {
    HEADROOM_TRY(read_texts());
    HEADROOM_TRY(read_devices());
    HEADROOM_TRY(read_visible_devices());
    HEADROOM_TRY(read_calls());
    HEADROOM_TRY(read_ranges());
    HEADROOM_TRY(read_work(kKernels, TraceEventKind::kernel));
    HEADROOM_TRY(read_work(kCopies, TraceEventKind::copy));
    HEADROOM_TRY(read_work(kFills, TraceEventKind::fill));
    HEADROOM_TRY(read_work(kGraphs, TraceEventKind::kernel));
    return builder_.finish();
  }

 private:
  template <typename Take>
  Result<void> each(std::string_view table, const std::vector<std::string>& columns,
                    const Take& take) {
    return each_row(file_, std::string(table), table, columns, builder_, take);
  }

  Result<void> read_texts() {
    return each("StringIds", {"id", "value"},
                [&](const SqliteRows& row, const TracePlace& place) -> Result<void> {
                  const auto id = row.integer(0);
                  if (id && texts_.size() < builder_.limits().names) {
                    texts_[*id] = builder_.intern(row.text(1));
                  }
                  return builder_.check_limits(place);
                });
  }

  // The text of that number; an own one where it is not in the file.
  uint32_t text_of(std::optional<int64_t> id) {
    const auto found = texts_.find(id.value_or(-1));
    return found != texts_.end() ? found->second : builder_.intern("(no name)");
  }

  Result<void> read_devices() {
    return each(kDevices, {"id", "name", "totalMemory", "smCount"},
                [&](const SqliteRows& row, const TracePlace&) -> Result<void> {
                  const auto id = row.integer(0);
                  auto& devices = builder_.trace().devices;
                  if (!id || *id < 0 || *id >= static_cast<int64_t>(kMostDevices)) return {};
                  const auto index = static_cast<size_t>(*id);
                  devices.resize(std::max(devices.size(), index + 1));
                  devices[index].name = row.text(1).substr(0, builder_.limits().name);
                  devices[index].memory_bytes = std::max<int64_t>(row.integer_or(2, 0), 0);
                  devices[index].multiprocessors = std::max<int64_t>(row.integer_or(3, 0), 0);
                  return {};
                });
  }

  // Which device of the machine a process means by its number: CUDA_VISIBLE_DEVICES and the like.
  Result<void> read_visible_devices() {
    return each(kVisibleDevices, {"pid", "cudaId", "gpuId"},
                [&](const SqliteRows& row, const TracePlace&) -> Result<void> {
                  const auto process = row.integer(0);
                  const auto number = row.integer(1);
                  const auto device = row.integer(2);
                  if (process && number && device && visible_.size() < kMostVisible) {
                    visible_.emplace(std::pair(*process, *number), *device);
                  }
                  return {};
                });
  }

  // The thread is below the process.
  uint32_t thread_of(int64_t global) {
    return builder_.track(std::to_string(process_of(global)), std::to_string(global & 0xFFFFFF),
                          false);
  }

  // Streams of several processes may have one number.
  uint32_t stream_of(int64_t process, int64_t number, int64_t stream) {
    const auto device = visible_.find({process, number});
    std::string name = std::to_string(stream);
    if (processes_.size() > 1) name += " of process " + std::to_string(process);
    return builder_.track(std::to_string(device == visible_.end() ? number : device->second), name,
                          true);
  }

  // Old exports do not say it of kernels: then it is the one that called, where one did.
  [[nodiscard]] int64_t process_of_work(std::optional<int64_t> global) const {
    if (global) return process_of(*global);
    return processes_.size() == 1 ? *processes_.begin() : 0;
  }

  Result<void> read_calls() {
    return each(kRuntime, {"start", "end", "globalTid", "correlationId", "nameId"},
                [&](const SqliteRows& row, const TracePlace& place) -> Result<void> {
                  ++builder_.trace().records;
                  TraceEvent event;
                  if (!builder_.set_span(event, row.integer(0), row.integer(1), place)) {
                    return {};
                  }
                  const int64_t process = process_of(row.integer_or(2, 0));
                  processes_.insert(process);
                  event.kind = TraceEventKind::call;
                  event.track = thread_of(row.integer_or(2, 0));
                  event.correlation = correlation_of(process, row.integer_or(3, 0));
                  // A copy: the names may grow while one is added.
                  const std::string name(builder_.trace().names.at(text_of(row.integer(4))));
                  event.name = builder_.intern(plain_call_name(name));
                  return builder_.add(event, place);
                });
  }

  Result<void> read_ranges() {
    return each(kRanges, {"start", "end", "eventType", "text", "textId", "globalTid"},
                [&](const SqliteRows& row, const TracePlace& place) -> Result<void> {
                  const int64_t type = row.integer_or(2, 0);
                  if (type != kPushPop && type != kStartEnd) return {};
                  ++builder_.trace().records;
                  if (!row.integer(1)) return {};  // was open when the recording ended
                  TraceEvent event;
                  if (!builder_.set_span(event, row.integer(0), row.integer(1), place)) {
                    return {};
                  }
                  event.track = thread_of(row.integer_or(5, 0));
                  const std::string name(row.text(3).empty()
                                             ? builder_.trace().names.at(text_of(row.integer(4)))
                                             : row.text(3));
                  name_range(name, event);
                  return builder_.add(event, place);
                });
  }

  // emit_nvtx writes "aten::addmm, seq = 4, op_id = 7, sizes = [[8], [4, 2]]".
  void name_range(std::string_view text, TraceEvent& event) {
    const std::string_view name = text.substr(0, text.find(", "));
    const bool is_operator = name.size() < text.size() && name.find("::") != std::string_view::npos;
    event.name = builder_.intern(is_operator ? name : text);
    event.kind = is_operator          ? TraceEventKind::host_operator
                 : is_step_name(text) ? TraceEventKind::step
                                      : TraceEventKind::annotation;
    constexpr std::string_view kSizes = "sizes = ";
    const size_t at = is_operator ? text.find(kSizes) : std::string_view::npos;
    if (at == std::string_view::npos) return;
    std::string sizes;
    for (const char c : text.substr(at + kSizes.size(), builder_.limits().name)) {
      if (c != ' ') sizes += c;
    }
    event.detail = builder_.intern(sizes + " []");
  }

  Result<void> read_work(std::string_view table, TraceEventKind kind) {
    return each(table,
                {"start", "end", "deviceId", "streamId", "correlationId", "demangledName",
                 "shortName", "copyKind", "graphId", "globalPid"},
                [&](const SqliteRows& row, const TracePlace& place) -> Result<void> {
                  ++builder_.trace().records;
                  TraceEvent event;
                  if (!builder_.set_span(event, row.integer(0), row.integer(1), place)) {
                    return {};
                  }
                  event.kind = kind;
                  const int64_t process = process_of_work(row.integer(9));
                  event.track = stream_of(process, row.integer_or(2, 0), row.integer_or(3, 0));
                  event.correlation = correlation_of(process, row.integer_or(4, 0));
                  if (kind == TraceEventKind::copy) {
                    event.name = builder_.intern(cuda_copy_name(row.integer_or(7, 0)));
                  } else if (kind == TraceEventKind::fill) {
                    event.name = builder_.intern("Memset (Device)");
                  } else if (table == kGraphs) {
                    event.name =
                        builder_.intern("CUDA graph " + std::to_string(row.integer_or(8, 0)));
                  } else {
                    event.name = text_of(row.integer(5) ? row.integer(5) : row.integer(6));
                  }
                  return builder_.add(event, place);
                });
  }

  const SqliteFile& file_;
  TraceBuilder builder_;
  std::unordered_map<int64_t, uint32_t> texts_;             // names by number in StringIds
  std::set<int64_t> processes_;                             // that called
  std::map<std::pair<int64_t, int64_t>, int64_t> visible_;  // devices by process and its number
};

}  // namespace

bool is_nsight_systems(const SqliteFile& file) {
  const auto is_one = [&](std::string_view table) { return file.has(table); };
  return is_one("StringIds") && (is_one(kKernels) || is_one(kRuntime) || is_one(kRanges) ||
                                 is_one(kGraphs) || is_one(kCopies));
}

Result<Trace> read_nsight_systems(const SqliteFile& file, const TraceLimits& limits) {
  return Reader(file, limits).read();
}

}  // namespace headroom::formats
