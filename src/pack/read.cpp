#include "pack/read.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "formats/byte_source.h"
#include "formats/packing_csv.h"
#include "formats/torch_snapshot.h"
#include "memory/packing/recorded_requests.h"

namespace headroom::pack {
namespace {

constexpr Bytes kMostFromPipe{8 * kGiB};

// A pickle of protocol 2 or later begins with 0x80, what gzip packed with 0x1f; CSV with neither.
bool is_snapshot(std::string_view first) {
  return !first.empty() && (first[0] == '\x80' || first[0] == '\x1f');
}

int64_t reserved_by(const memory::Snapshot& device) {
  int64_t sum = 0;
  for (const auto& segment : device.segments) {
    sum = checked_add(sum, segment.total_size).value_or(sum);
  }
  return sum;
}

std::string count_of(size_t count, const char* what) { return std::to_string(count) + " " + what; }

void note_what_was_assumed(const memory::RecordedRequests& recorded, const memory::Snapshot& device,
                           PackAnswer& answer) {
  if (recorded.at_start == recorded.requests.size()) {
    answer.notes.emplace_back(
        "the recording holds no allocation, only what was there at its end, placed as if it lived "
        "all along: this says nothing of a run; record with "
        "torch.cuda.memory._record_memory_history()");
  } else if (recorded.at_start > 0) {
    answer.notes.push_back(count_of(recorded.at_start,
                                    "blocks were there before the recording began"
                                    " and are taken to be allocated first"));
  }
  if (recorded.contradictions > 0) {
    answer.notes.push_back(
        count_of(recorded.contradictions, "entries contradict others and were passed over"));
  }
  if (answer.streams > 1) {
    answer.notes.push_back(count_of(answer.streams,
                                    "streams are planned apart: a snapshot does not say where they "
                                    "wait for each other"));
  }
  const bool has_private_pools = std::any_of(
      device.segments.begin(), device.segments.end(),
      [](const auto& segment) { return segment.pool_first != 0 || segment.pool_second != 0; });
  if (has_private_pools) {
    answer.notes.emplace_back("private pools (CUDA graphs) are planned like the rest");
  }
}

void take_requests(const memory::RecordedRequests& recorded, PackAnswer& answer) {
  std::vector<int64_t> streams;
  for (const auto& request : recorded.requests) streams.push_back(request.stream);
  std::sort(streams.begin(), streams.end());
  streams.erase(std::unique(streams.begin(), streams.end()), streams.end());
  answer.streams = std::max<size_t>(1, streams.size());
  answer.requests.reserve(recorded.requests.size());
  for (const memory::RecordedRequest& request : recorded.requests) {
    const auto stream = std::lower_bound(streams.begin(), streams.end(), request.stream);
    answer.requests.push_back({std::to_string(answer.requests.size()),
                               stream - streams.begin(),
                               {request.lower, request.upper, request.size},
                               0});
  }
}

Result<PackAnswer> from_snapshot(const formats::TorchSnapshot& snapshot, const std::string& file) {
  if (snapshot.devices.empty()) {
    return Error{ErrorCode::bad_input, "the snapshot holds no segments and no history", file,
                 "record with torch.cuda.memory._record_memory_history() on a GPU"};
  }
  const auto device = std::max_element(snapshot.devices.begin(), snapshot.devices.end(),
                                       [](const auto& a, const auto& b) {
                                         return std::pair(reserved_by(a), a.trace.size()) <
                                                std::pair(reserved_by(b), b.trace.size());
                                       });
  PackAnswer answer;
  answer.kind = "PyTorch snapshot";
  answer.device = device->device;
  answer.alignment = memory::kMinBlockSize;
  const auto settings = snapshot.settings.value_or(memory::AllocatorSettings{});
  const memory::RecordedPeaks peaks = memory::recorded_peaks(*device, settings);
  const auto share = [](int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  answer.recorded = RecordedFigures{Bytes(peaks.allocated_bytes), Bytes(peaks.reserved_bytes),
                                    share(peaks.allocated_bytes, peaks.reserved_bytes)};
  const memory::RecordedRequests recorded = memory::recorded_requests(*device);
  take_requests(recorded, answer);
  answer.recording = recording_of(snapshot, *device, recorded.requests);
  answer.loss = loss_at_peak(answer.requests, *answer.recording);
  note_what_was_assumed(recorded, *device, answer);
  if (snapshot.devices.size() > 1) {
    answer.notes.push_back("of " + count_of(snapshot.devices.size(), "devices, number ") +
                           std::to_string(device->device) + ", which reserved most, is shown");
  }
  for (const std::string& note : snapshot.notes) answer.notes.push_back(note);
  return answer;
}

PackAnswer from_instance(formats::PackingInstance instance) {
  PackAnswer answer;
  answer.kind = "CSV instance";
  for (size_t i = 0; i < instance.ids.size(); ++i) {
    answer.requests.push_back({std::move(instance.ids[i]), 0, instance.problem.requests[i], 0});
  }
  return answer;
}

Result<PackAnswer> read_pipe() {
  HEADROOM_ASSIGN(const std::string text, read_file("-", kMostFromPipe));
  if (is_snapshot(text)) {
    formats::ByteSource source(text, "-");
    HEADROOM_ASSIGN(const auto snapshot, formats::parse_torch_snapshot(source));
    return from_snapshot(snapshot, "-");
  }
  HEADROOM_ASSIGN(auto instance, formats::parse_packing_csv(text, "-"));
  return from_instance(std::move(instance));
}

Result<PackAnswer> read_named(const std::string& file) {
  if (file == "-") return read_pipe();
  HEADROOM_ASSIGN(formats::ByteSource source, formats::ByteSource::open(file));
  if (is_snapshot(source.peek(1))) {
    HEADROOM_ASSIGN(const auto snapshot, formats::read_torch_snapshot(file));
    return from_snapshot(snapshot, file);
  }
  HEADROOM_ASSIGN(auto instance, formats::read_packing_csv(file));
  return from_instance(std::move(instance));
}

}  // namespace

Result<PackAnswer> read_requests(const PackQuestion& question) {
  HEADROOM_ASSIGN(PackAnswer answer, read_named(question.file));
  answer.file = question.file;
  answer.capacity = question.capacity;
  if (question.alignment) answer.alignment = *question.alignment;
  return answer;
}

}  // namespace headroom::pack
