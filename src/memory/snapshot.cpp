#include "memory/snapshot.h"

#include <array>

namespace headroom::memory {

std::string_view trace_action_name(TraceAction action) {
  static constexpr std::array<std::string_view, 10> kNames = {
      "alloc",       "free_requested", "free_completed", "segment_alloc", "segment_free",
      "segment_map", "segment_unmap",  "snapshot",       "oom",           "other"};
  const auto index = static_cast<size_t>(action);
  HEADROOM_CHECK(index < kNames.size(), "unknown trace action");
  return kNames[index];
}

}  // namespace headroom::memory
