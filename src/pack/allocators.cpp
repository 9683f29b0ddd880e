#include "pack/allocators.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>

#include "base/parallel.h"
#include "memory/replay.h"

namespace headroom::pack {
namespace {

struct Setting {
  std::string_view name;
  std::string_view conf;  // for PYTORCH_CUDA_ALLOC_CONF
};

constexpr std::array kSettings{
    Setting{"torch", ""},
    Setting{"torch-expandable", "expandable_segments:True"},
    Setting{"torch-max-split-64", "max_split_size_mb:64"},
    Setting{"torch-max-split-128", "max_split_size_mb:128"},
    Setting{"torch-max-split-512", "max_split_size_mb:512"},
    Setting{"torch-roundup-4", "roundup_power2_divisions:4"},
    Setting{"torch-roundup-16", "roundup_power2_divisions:16"},
};

// Ends come before beginnings, as in the plan: a request begins on memory that was just released.
memory::MemoryTrace trace_of(const std::vector<PlannedRequest>& requests) {
  std::vector<std::tuple<int64_t, bool, uint32_t>> moments;  // time, begins, request
  for (uint32_t i = 0; i < requests.size(); ++i) {
    const memory::PackingRequest& request = requests[i].request;
    // The simulator takes no larger ones; no machine could.
    if (request.lower == request.upper || request.size > memory::kMaxRequest) continue;
    moments.emplace_back(request.lower, true, i);
    moments.emplace_back(request.upper, false, i);
  }
  std::sort(moments.begin(), moments.end());
  memory::MemoryTrace trace;
  std::vector<uint32_t> buffers(requests.size());
  for (const auto& [time, begins, i] : moments) {
    if (begins) {
      memory::BufferInfo info;
      info.requested_bytes = requests[i].request.size;
      info.stream = static_cast<uint32_t>(requests[i].stream);
      buffers[i] = trace.alloc(info, 0);
    } else {
      trace.free(buffers[i], 0);
    }
  }
  return trace;
}

}  // namespace

std::vector<AllocatorFigures> replay_under_settings(const std::vector<PlannedRequest>& requests) {
  const memory::MemoryTrace trace = trace_of(requests);
  std::vector<AllocatorFigures> all(kSettings.size());
  for_each_in_parallel(kSettings.size(), 0, [&](size_t i) {
    const auto settings = memory::parse_allocator_config(kSettings[i].conf);
    HEADROOM_CHECK(settings, "a setting of ours that the parser refuses");
    memory::DeviceMemory device;
    const memory::ReplayResult result = memory::replay(trace, *settings, device);
    if (result.out_of_memory) return;  // beyond any address space: there is no figure to show
    AllocatorFigures& figures = all[i];
    figures.name = kSettings[i].name;
    figures.setting = kSettings[i].conf;
    figures.peak_reserved = Bytes(result.peak_reserved.bytes);
  });
  std::erase_if(all, [](const AllocatorFigures& figures) { return figures.name.empty(); });
  return all;
}

}  // namespace headroom::pack
