#include "pack/read.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/file.h"
#include "formats/packing_csv.h"
#include "memory/packing/recorded_requests.h"
#include "pack/recorded_file.h"

namespace headroom::pack {
namespace {

constexpr Bytes kMostFromPipe{8 * kGiB};

int64_t reserved_by(const memory::Snapshot& device) {
  int64_t sum = 0;
  for (const auto& segment : device.segments) {
    sum = checked_add(sum, segment.total_size).value_or(sum);
  }
  return sum;
}

std::string count_of(size_t count, const char* what) { return std::to_string(count) + " " + what; }

Bytes bytes_at_start(const memory::RecordedRequests& recorded) {
  int64_t sum = 0;
  for (const memory::RecordedRequest& request : recorded.requests) {
    if (request.lower == 0) sum = checked_add(sum, request.size).value_or(sum);
  }
  return Bytes(sum);
}

void note_what_was_assumed(const memory::RecordedRequests& recorded, const memory::Snapshot& device,
                           PackAnswer& answer) {
  if (recorded.at_start == recorded.requests.size()) {
    answer.notes.emplace_back(
        "the recording holds no allocation, only what was there at its end, placed as if it lived "
        "all along: this says nothing of a run; record with "
        "torch.cuda.memory._record_memory_history()");
  } else if (recorded.at_start > 0) {
    answer.notes.push_back(count_of(recorded.at_start, "blocks (") +
                           format_bytes(bytes_at_start(recorded)) +
                           ") were there before the recording began and are taken to be allocated "
                           "first");
  }
  if (recorded.contradictions > 0) {
    answer.notes.push_back(
        count_of(recorded.contradictions, "entries contradict others and were passed over"));
  }
  const auto waited = std::count_if(
      recorded.requests.begin(), recorded.requests.end(),
      [](const memory::RecordedRequest& request) { return request.released < request.upper; });
  if (waited > 0) {
    answer.notes.push_back(count_of(static_cast<size_t>(waited),
                                    "blocks were used by a second stream; the plan keeps them for "
                                    "half of that delay longer than was recorded"));
  }
  if (answer.streams > 1 && answer.order.empty()) {
    answer.notes.push_back(count_of(answer.streams,
                                    "streams are planned apart: nothing is recorded of where they "
                                    "wait for each other"));
  } else if (answer.streams > 1) {
    answer.notes.push_back(count_of(answer.streams,
                                    "streams are planned apart, but for iterations: there one has "
                                    "memory of another where the program has them wait"));
  }
  const bool has_private_pools = std::any_of(
      device.segments.begin(), device.segments.end(),
      [](const auto& segment) { return segment.pool_first != 0 || segment.pool_second != 0; });
  if (has_private_pools) {
    answer.notes.emplace_back("private pools (CUDA graphs) are planned like the rest");
  }
}

// Which of several times that memory ran out is shown, or that none is.
void note_failures(PackAnswer& answer) {
  const auto& failures = answer.recording->failures;
  if (failures.empty() || !answer.loss) return;
  const std::string times =
      "memory ran out " +
      (failures.size() == 1 ? std::string("once") : count_of(failures.size(), "times"));
  if (!answer.loss->failure) {
    const RecordedFailure& last = failures.back();
    answer.notes.push_back(times + (failures.size() > 1 ? ", last" : "") + " at entry " +
                           std::to_string(last.moment) + ", where " + format_bytes(last.tried) +
                           " was asked for; the run went on and came to hold more: its peak is "
                           "shown");
  } else if (failures.size() > 1) {
    answer.notes.push_back(times + ", and the last is shown");
  }
}

// `streams`: the handles of those that requests were made on, by number.
std::vector<memory::OrderEvent> order_by_number(std::vector<memory::OrderEvent> order,
                                                const std::vector<int64_t>& streams) {
  std::map<int64_t, int64_t> numbers;
  for (size_t i = 0; i < streams.size(); ++i) numbers[streams[i]] = static_cast<int64_t>(i);
  for (memory::OrderEvent& event : order) {
    const auto next = static_cast<int64_t>(numbers.size());
    event.stream = numbers.try_emplace(event.stream, next).first->second;
  }
  return order;
}

void take_requests(const memory::RecordedRequests& recorded,
                   const std::vector<memory::OrderEvent>& order, PackAnswer& answer) {
  std::vector<int64_t> streams;
  for (const auto& request : recorded.requests) streams.push_back(request.stream);
  std::sort(streams.begin(), streams.end());
  streams.erase(std::unique(streams.begin(), streams.end()), streams.end());
  answer.streams = std::max<size_t>(1, streams.size());
  answer.order = order_by_number(order, streams);
  answer.requests.reserve(recorded.requests.size());
  for (const memory::RecordedRequest& request : recorded.requests) {
    const auto stream = std::lower_bound(streams.begin(), streams.end(), request.stream);
    answer.requests.push_back({std::to_string(answer.requests.size()),
                               stream - streams.begin(),
                               {request.lower, request.upper, request.size},
                               0,
                               request.released});
  }
}

// What the allocator itself held at most; nothing where the file does not say.
std::optional<RecordedFigures> recorded_figures(const RecordedFile& recorded, size_t device) {
  int64_t allocated = 0;
  int64_t reserved = 0;
  if (recorded.counted.empty()) {
    const auto settings = recorded.snapshot.settings.value_or(memory::AllocatorSettings{});
    const auto peaks = memory::recorded_peaks(recorded.snapshot.devices[device], settings);
    allocated = peaks.allocated_bytes;
    reserved = peaks.reserved_bytes;
  } else {
    allocated = recorded.counted[device].allocated_bytes;
    reserved = recorded.counted[device].reserved_bytes;
    if (reserved == 0) return std::nullopt;
  }
  // What lived at one moment is known when all requests are.
  return RecordedFigures{Bytes(0), Bytes(reserved), 0, Bytes(allocated)};
}

// Where the user's own words say that an iteration begins: torch.profiler's steps, or else the end
// of each Optimizer.step. Times are those of recorded requests.
std::vector<int64_t> marks_of(const formats::TorchSnapshot& snapshot,
                              const memory::Snapshot& device) {
  struct Kind {
    std::string_view name;
    bool is_start;
  };
  std::vector<int64_t> marks;
  for (const Kind kind : {Kind{"ProfilerStep", true}, Kind{"Optimizer.step", false}}) {
    marks.clear();
    for (const formats::TorchAnnotation& annotation : snapshot.annotations) {
      const std::string_view name = snapshot.sites.text(annotation.name);
      if (annotation.is_start != kind.is_start || !name.starts_with(kind.name)) continue;
      const auto entry = std::partition_point(
          device.trace.begin(), device.trace.end(),
          [&](const memory::TraceEntry& e) { return e.time_us < annotation.time_us; });
      marks.push_back(entry - device.trace.begin() + 1);
    }
    std::sort(marks.begin(), marks.end());
    if (marks.size() >= 2) return marks;
  }
  return {};
}

// What the allocator counted and no event names was there all the time: one request, below all
// others.
void add_unnamed(const RecordedFile::Counted& counted, const memory::Snapshot& device,
                 memory::RecordedRequests& recorded, PackAnswer& answer) {
  const bool is_plausible =
      counted.unnamed_bytes > 0 && counted.unnamed_bytes <= memory::kMaxRequest;
  if (!is_plausible || recorded.requests.empty()) return;
  memory::RecordedRequest request;
  request.upper = request.released = static_cast<int64_t>(device.trace.size()) + 1;
  request.size = counted.unnamed_bytes;
  request.stream = recorded.requests.front().stream;
  recorded.requests.insert(recorded.requests.begin(), request);
  answer.notes.push_back(format_bytes(Bytes(counted.unnamed_bytes)) +
                         " were allocated before the trace began and stay to its end, as the "
                         "allocator's own count says: planned as one block");
}

// The one that was asked for, or the one that reserved most.
Result<std::vector<memory::Snapshot>::const_iterator> device_of(
    const formats::TorchSnapshot& snapshot, const std::optional<int64_t>& wanted,
    const std::string& file) {
  const auto& devices = snapshot.devices;
  if (!wanted) {
    return std::max_element(devices.begin(), devices.end(), [](const auto& a, const auto& b) {
      return std::pair(reserved_by(a), a.trace.size()) < std::pair(reserved_by(b), b.trace.size());
    });
  }
  const auto found = std::ranges::find(devices, *wanted, &memory::Snapshot::device);
  if (found != devices.end()) return found;
  std::string known;
  for (const memory::Snapshot& device : devices) {
    known += (known.empty() ? "" : ", ") + std::to_string(device.device);
  }
  return Error{ErrorCode::usage, "has no GPU " + std::to_string(*wanted), file, "it has " + known};
}

Result<PackAnswer> from_recorded(const RecordedFile& source, const std::optional<int64_t>& wanted,
                                 const std::string& file) {
  const formats::TorchSnapshot& snapshot = source.snapshot;
  if (snapshot.devices.empty()) {
    return Error{ErrorCode::bad_input, "the " + source.kind + " holds no segments and no history",
                 file, "record with torch.cuda.memory._record_memory_history() on a GPU"};
  }
  HEADROOM_ASSIGN(const auto device, device_of(snapshot, wanted, file));
  PackAnswer answer;
  answer.kind = source.kind;
  answer.settings = snapshot.settings;
  answer.is_partial = source.is_partial;
  answer.device = device->device;
  answer.alignment = memory::kMinBlockSize;
  answer.recorded =
      recorded_figures(source, static_cast<size_t>(device - snapshot.devices.begin()));
  memory::RecordedRequests recorded = memory::recorded_requests(*device);
  if (!source.counted.empty()) {
    add_unnamed(source.counted[static_cast<size_t>(device - snapshot.devices.begin())], *device,
                recorded, answer);
  }
  take_requests(recorded, source.order, answer);
  answer.marks = marks_of(snapshot, *device);
  answer.recording = recording_of(snapshot, *device, recorded.requests);
  answer.loss = loss_at_peak(answer.requests, *answer.recording);
  note_what_was_assumed(recorded, *device, answer);
  note_failures(answer);
  if (snapshot.devices.size() > 1) {
    answer.notes.push_back(
        "of " + count_of(snapshot.devices.size(), "devices, number ") +
        std::to_string(device->device) +
        (wanted ? " is shown" : ", which reserved most, is shown: --gpu N shows another"));
  }
  for (const std::string& note : snapshot.notes) answer.notes.push_back(note);
  return answer;
}

PackAnswer from_instance(formats::PackingInstance instance) {
  PackAnswer answer;
  answer.kind = "CSV instance";
  if (instance.is_open_ended) {
    answer.notes.emplace_back(
        "the last line has no line end: if the file was cut there, its last number lacks digits "
        "and "
        "requests are missing");
  }
  for (size_t i = 0; i < instance.ids.size(); ++i) {
    answer.requests.push_back({std::move(instance.ids[i]), 0, instance.problem.requests[i], 0});
  }
  return answer;
}

// CSV is what is left when a file is nothing else, so a file without its columns may be anything.
Result<PackAnswer> from_csv(Result<formats::PackingInstance> instance) {
  if (instance) return from_instance(std::move(*instance));
  Error error = std::move(instance).error();
  const bool is_csv = error.where.find(".csv") != std::string::npos;
  if (!is_csv || error.message.starts_with("has no column")) {
    error.message =
        "is no snapshot, no profiler trace and no recording, and as CSV: " + error.message;
    for (const char* const word : {"OutOfMemory", "out of memo", "Traceback"}) {
      if (error.hint.find(word) == std::string::npos) continue;
      error.hint = "headroom pack --oom FILE explains an out-of-memory message";
    }
  }
  return error;
}

// An instance has no GPUs to choose from.
Result<PackAnswer> from_csv(Result<formats::PackingInstance> instance,
                            const std::optional<int64_t>& gpu, const std::string& file) {
  if (instance && gpu) {
    return Error{ErrorCode::usage, "--gpu is for recordings; this is a CSV instance", file, ""};
  }
  return from_csv(std::move(instance));
}

Result<PackAnswer> read_pipe(const std::optional<int64_t>& gpu) {
  HEADROOM_ASSIGN(const std::string text, read_file("-", kMostFromPipe));
  HEADROOM_ASSIGN(const auto recorded, parse_recorded_file(text, "-"));
  if (recorded) return from_recorded(*recorded, gpu, "-");
  return from_csv(formats::parse_packing_csv(text, "-"), gpu, "-");
}

Result<PackAnswer> read_named(const std::string& file, const std::optional<int64_t>& gpu) {
  if (file == "-") return read_pipe(gpu);
  HEADROOM_ASSIGN(const auto recorded, read_recorded_file(file));
  if (recorded) return from_recorded(*recorded, gpu, file);
  return from_csv(formats::read_packing_csv(file), gpu, file);
}

}  // namespace

Result<PackAnswer> read_requests(const PackQuestion& question) {
  HEADROOM_ASSIGN(PackAnswer answer, read_named(question.file, question.gpu));
  answer.file = question.file;
  answer.capacity = question.capacity;
  if (question.alignment) answer.alignment = *question.alignment;
  return answer;
}

}  // namespace headroom::pack
