#include "report/sample_pack.h"

#include <algorithm>

namespace headroom::report {
namespace {

constexpr int64_t kSegment = 20 * kMiB;
constexpr int64_t kBase = 0x7f1200000000;

// Stack 0 is empty; the others have one frame of the user's each.
memory::CallSites stacks_of(const std::string& words) {
  memory::CallSites sites;
  const uint32_t function = sites.add_text(words);
  const uint32_t file = sites.add_text("/home/x/" + words + "/model.py");
  for (uint32_t i = 0; i < 12; ++i) {
    const uint32_t frame = sites.add_frame({function, file, 10 + i});
    sites.add_stack(std::span(&frame, 1));
  }
  return sites;
}

}  // namespace

pack::PackAnswer sample_pack(const std::string& words, size_t blocks) {
  pack::PackAnswer answer;
  answer.file = words;
  answer.kind = "PyTorch snapshot";
  answer.alignment = 512;
  answer.notes = {words};
  pack::Recording recording;
  recording.sites = pack::SiteNames(stacks_of(words));
  recording.end = static_cast<int64_t>(blocks) * 2 + 1;
  int64_t highest = 0;
  for (size_t i = 0; i < blocks; ++i) {
    const auto start = static_cast<int64_t>(i);
    const int64_t span = i % 7 == 0 ? recording.end - start : 3 + start % 40;
    const int64_t size = (1 + start % 9) * 256 * kKiB;
    const int64_t slot = start % 64;
    pack::PlannedRequest planned;
    planned.id = std::to_string(i);
    planned.request = {start, std::min(start + span, recording.end), size - 100};
    planned.offset = slot * 3 * kMiB;
    highest = std::max(highest, planned.offset + size);
    answer.requests.push_back(planned);
    recording.blocks.push_back({kBase + slot * kSegment, size, static_cast<uint32_t>(1 + i % 12)});
    recording.entry_us.push_back(start * 3);
    recording.entry_stack.push_back(static_cast<uint32_t>(1 + i % 12));
  }
  for (int64_t slot = 0; slot < 64; ++slot) {
    recording.held.push_back({kBase + slot * kSegment, kSegment, slot, recording.end, 0, false});
  }
  answer.plan.size = answer.lower_bound = answer.plan.proven_bound = Bytes(highest);
  answer.plan.method = "first fit: size, then start";
  answer.plan.is_optimal = true;
  answer.recording = std::move(recording);
  answer.loss = pack::loss_at_peak(answer.requests, *answer.recording);
  answer.recorded = pack::RecordedFigures{Bytes(highest), Bytes(64 * kSegment), 0.15};
  answer.allocators = {
      {"planned", "", Bytes(highest), Bytes(highest), 1},
      {"torch-expandable", "expandable_segments:True", Bytes(highest), Bytes(highest + kGiB), 0.4},
      {"torch", "", Bytes(highest), Bytes(64 * kSegment + kGiB), 0.15}};
  return answer;
}

}  // namespace headroom::report
