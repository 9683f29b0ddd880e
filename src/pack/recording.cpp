#include "pack/recording.h"

#include <algorithm>
#include <unordered_map>

namespace headroom::pack {
namespace {

using memory::TraceAction;

// Blocks that live at the end, by address.
std::unordered_map<int64_t, uint32_t> stacks_at_end(const memory::Snapshot& device) {
  std::unordered_map<int64_t, uint32_t> stacks;
  for (const memory::SnapshotSegment& segment : device.segments) {
    for (const memory::SnapshotBlock& block : segment.blocks) {
      if (block.state != memory::BlockState::free) stacks.emplace(block.address, block.stack);
    }
  }
  return stacks;
}

void add_blocks(const memory::Snapshot& device,
                const std::vector<memory::RecordedRequest>& requests,
                const memory::AllocatorSettings& settings, Recording& recording) {
  const auto at_end = stacks_at_end(device);
  recording.blocks.reserve(requests.size());
  for (const memory::RecordedRequest& request : requests) {
    RecordedBlock block;
    block.address = request.address;
    block.size = request.size > 0 ? memory::rounded_size(settings, request.size) : 0;
    if (request.lower > 0) {
      block.stack = device.trace[static_cast<size_t>(request.lower - 1)].stack;
    } else if (request.upper == recording.end) {
      const auto at = at_end.find(request.address);
      if (at != at_end.end()) block.stack = at->second;
    }
    recording.blocks.push_back(block);
  }
}

}  // namespace

Recording recording_of(const formats::TorchSnapshot& snapshot, const memory::Snapshot& device,
                       const std::vector<memory::RecordedRequest>& requests) {
  Recording recording;
  recording.sites = SiteNames(snapshot.sites);
  recording.end = static_cast<int64_t>(device.trace.size()) + 1;
  recording.has_history =
      std::any_of(device.trace.begin(), device.trace.end(),
                  [](const auto& entry) { return entry.action == TraceAction::alloc; });
  recording.held = memory::held_memory(device).ranges;
  add_blocks(device, requests, snapshot.settings.value_or(memory::AllocatorSettings{}), recording);
  const bool has_times = !device.trace.empty() && device.trace.front().time_us > 0;
  const int64_t start = has_times ? device.trace.front().time_us : 0;
  int64_t last = 0;
  for (size_t i = 0; i < device.trace.size(); ++i) {
    const memory::TraceEntry& entry = device.trace[i];
    // Times that run backwards are somebody's clock; they stand still instead.
    last = std::max(last, checked_add(entry.time_us, -start).value_or(last));
    if (has_times) recording.entry_us.push_back(last);
    recording.entry_stack.push_back(entry.stack);
    if (entry.action == TraceAction::out_of_memory) {
      recording.failures.push_back({static_cast<int64_t>(i) + 1,
                                    Bytes(std::max<int64_t>(0, entry.size)),
                                    Bytes(std::max<int64_t>(0, entry.address)), entry.stack});
    }
  }
  return recording;
}

}  // namespace headroom::pack
