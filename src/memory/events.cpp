#include "memory/events.h"

#include <algorithm>
#include <array>
#include <string>

namespace headroom::memory {
namespace {

constexpr std::array<std::string_view, kCategoryCount> kCategoryNames = {
    "parameter",      "gradient",         "optimizer_state", "activation",
    "lm_head_weight", "lm_head_gradient", "lm_head_state",   "logits",
    "loss",           "temporary",        "workspace",       "input",
    "gathered",       "communication",    "kv_cache",        "other",
};

Error bad_event(size_t index, const std::string& message) {
  return Error{ErrorCode::bad_input, message, "event " + std::to_string(index), ""};
}

}  // namespace

std::string_view category_name(Category category) {
  const auto index = static_cast<size_t>(category);
  HEADROOM_CHECK(index < kCategoryNames.size(), "unknown memory category");
  return kCategoryNames[index];
}

Result<void> validate_trace(const MemoryTrace& trace) {
  enum class State : uint8_t { unborn, live, dead };
  std::vector<State> states(trace.buffers.size(), State::unborn);
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const MemoryEvent& event = trace.events[i];
    if (event.buffer >= states.size()) {
      return bad_event(i, "names buffer " + std::to_string(event.buffer) + " of " +
                              std::to_string(states.size()));
    }
    State& state = states[event.buffer];
    const std::string name = "buffer " + std::to_string(event.buffer);
    if (event.kind == EventKind::alloc) {
      if (state != State::unborn) return bad_event(i, name + " is allocated twice");
      if (trace.buffers[event.buffer].requested_bytes < 0) {
        return bad_event(i, name + " has a negative size");
      }
      state = State::live;
    } else {
      if (state != State::live) return bad_event(i, name + " is freed while it is not allocated");
      state = State::dead;
    }
  }
  if (!std::ranges::is_sorted(trace.cache_emptied)) {
    return bad_event(0, "the places where the cache is emptied are not in order");
  }
  if (!trace.cache_emptied.empty() && trace.cache_emptied.back() > trace.events.size()) {
    return bad_event(trace.cache_emptied.back(), "the cache is emptied behind the end");
  }
  for (const StreamUse& use : trace.stream_uses) {
    if (use.buffer >= trace.buffers.size()) return bad_event(0, "a stream uses an unknown buffer");
  }
  if (!std::ranges::is_sorted(trace.stream_progress, {}, &StreamProgress::event)) {
    return bad_event(0, "the places where streams get on are not in order");
  }
  return {};
}

}  // namespace headroom::memory
