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

Result<void> validate_streams(const MemoryTrace& trace) {
  std::vector<bool> is_used(trace.buffers.size());
  for (const StreamUse& use : trace.stream_uses) {
    const std::string name = "buffer " + std::to_string(use.buffer);
    if (use.buffer >= is_used.size()) {
      return Error{ErrorCode::bad_input, "a stream uses what is not there", name, ""};
    }
    if (is_used[use.buffer]) {
      return Error{ErrorCode::bad_input, "two streams use it besides its own", name, ""};
    }
    is_used[use.buffer] = true;
  }
  size_t last = 0;
  for (const StreamProgress& progress : trace.stream_progress) {
    if (progress.event < last || progress.event > trace.events.size()) {
      return bad_event(progress.event, "streams get on out of order, or behind the end");
    }
    last = progress.event;
  }
  return {};
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
  return validate_streams(trace);
}

}  // namespace headroom::memory
