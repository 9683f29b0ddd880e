#include "pack/allocators.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <tuple>

#include "base/parallel.h"
#include "memory/best_fit_arena.h"
#include "memory/replay.h"

namespace headroom::pack {
namespace {

struct Setting {
  std::string_view name;
  std::string_view conf;  // for PYTORCH_CUDA_ALLOC_CONF
};

// Sizes of max_split_size_mb between the allocator's own large segments and the largest tensors of
// common models; combinations of settings that work on different things.
constexpr std::array kSettings{
    Setting{"torch", ""},
    Setting{"torch-expandable", "expandable_segments:True"},
    Setting{"torch-expandable-roundup-8", "expandable_segments:True,roundup_power2_divisions:8"},
    Setting{"torch-max-split-32", "max_split_size_mb:32"},
    Setting{"torch-max-split-64", "max_split_size_mb:64"},
    Setting{"torch-max-split-128", "max_split_size_mb:128"},
    Setting{"torch-max-split-256", "max_split_size_mb:256"},
    Setting{"torch-max-split-512", "max_split_size_mb:512"},
    Setting{"torch-roundup-2", "roundup_power2_divisions:2"},
    Setting{"torch-roundup-4", "roundup_power2_divisions:4"},
    Setting{"torch-roundup-8", "roundup_power2_divisions:8"},
    Setting{"torch-roundup-16", "roundup_power2_divisions:16"},
    Setting{"torch-max-split-128-roundup-8", "max_split_size_mb:128,roundup_power2_divisions:8"},
};

// Garbage collection works under a limit only: this is the share of the limit at which it begins.
constexpr std::array kCollectingSettings{
    Setting{"torch-gc-60", "garbage_collection_threshold:0.6"},
    Setting{"torch-gc-80", "garbage_collection_threshold:0.8"},
    Setting{"torch-max-split-128-gc-80", "max_split_size_mb:128,garbage_collection_threshold:0.8"},
    Setting{"torch-roundup-8-gc-80", "roundup_power2_divisions:8,garbage_collection_threshold:0.8"},
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

// Nothing where memory runs out: beyond any address space, or under the limit.
std::optional<AllocatorFigures> figures_under(const memory::MemoryTrace& trace,
                                              const Setting& setting,
                                              const std::optional<Bytes>& limit) {
  auto settings = memory::parse_allocator_config(setting.conf);
  HEADROOM_CHECK(settings, "a setting of ours that the parser refuses");
  if (limit) settings->memory_fraction = 1;
  memory::DeviceMemory endless;
  memory::DeviceMemory limited(limit.value_or(Bytes(0)), limit.value_or(Bytes(0)));
  memory::SegmentSource& device = limit ? static_cast<memory::SegmentSource&>(limited) : endless;
  const memory::ReplayResult result = memory::replay(trace, *settings, device);
  if (result.out_of_memory) return std::nullopt;
  AllocatorFigures figures;
  figures.name = setting.name;
  figures.setting = setting.conf;
  figures.peak_reserved = Bytes(result.peak_reserved.bytes);
  figures.limit = limit;
  return figures;
}

template <size_t kCount>
void replay_all(const memory::MemoryTrace& trace, const std::array<Setting, kCount>& settings,
                const std::optional<Bytes>& limit, std::vector<AllocatorFigures>& all) {
  std::array<std::optional<AllocatorFigures>, kCount> found;
  for_each_in_parallel(kCount, 0,
                       [&](size_t i) { found[i] = figures_under(trace, settings[i], limit); });
  for (const auto& figures : found) {
    if (figures) all.push_back(*figures);
  }
}

}  // namespace

std::vector<AllocatorFigures> replay_under_settings(const std::vector<PlannedRequest>& requests) {
  const memory::MemoryTrace trace = trace_of(requests);
  std::vector<AllocatorFigures> all;
  replay_all(trace, kSettings, std::nullopt, all);
  if (!all.empty() && all.front().name == kSettings.front().name &&
      all.front().peak_reserved.count > 0) {
    const Bytes limit = all.front().peak_reserved;
    replay_all(trace, kCollectingSettings, limit, all);
  }
  if (const auto peak = memory::best_fit_peak_bytes(trace)) {
    AllocatorFigures arena;
    arena.name = "best-fit-arena";
    arena.peak_reserved = Bytes(*peak);
    all.push_back(arena);
  }
  return all;
}

}  // namespace headroom::pack
