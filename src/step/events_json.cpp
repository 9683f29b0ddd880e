#include "step/events_json.h"

namespace headroom::step {

using text::Json;

namespace {

struct OpenEvent {
  Json allocs = Json::array();
  Json frees = Json::array();
  uint32_t operation = UINT32_MAX;
};

std::string_view phase_at(const StepTrace& trace, uint32_t event, int& iteration) {
  std::string_view phase;
  for (const PhaseMark& mark : trace.phases) {
    if (mark.first_event > event) break;
    phase = name_of(mark.phase);
    iteration = mark.iteration;
  }
  return phase;
}

}  // namespace

Json events_json(const StepTrace& trace) {
  Json events = Json::array();
  int64_t live = 0;
  int64_t start = 0;
  size_t phase = 0;
  for (uint32_t i = 0; i < trace.memory.events.size();) {
    while (phase + 1 < trace.phases.size() && trace.phases[phase + 1].first_event <= i) ++phase;
    const memory::MemoryEvent& first = trace.memory.events[i];
    // One event: an allocation and the releases up to the next one.
    Json allocs = Json::array();
    Json frees = Json::array();
    const uint32_t begin = i;
    do {
      const memory::MemoryEvent& event = trace.memory.events[i];
      const int64_t bytes = trace.memory.buffers[event.buffer].requested_bytes;
      const bool is_alloc = event.kind == memory::EventKind::alloc;
      (is_alloc ? allocs : frees).push_back(bytes);
      live += is_alloc ? bytes : -bytes;
      ++i;
    } while (i < trace.memory.events.size() &&
             trace.memory.events[i].kind == memory::EventKind::free);
    if (trace.phases[phase].phase == Phase::construct) {
      start = live;
      continue;
    }
    const bool has_call = first.operation < trace.calls.size();
    const uint32_t label = trace.memory.buffers[first.buffer].label;
    int iteration = 0;
    Json event = Json::object();
    event.set("op", has_call ? op::name_of(trace.calls[first.operation].kind) : "");
    event.set("module", trace.modules[label]);
    event.set("phase", phase_at(trace, begin, iteration));
    event.set("step", iteration);
    event.set("allocs", std::move(allocs));
    event.set("frees", std::move(frees));
    event.set("live", live);
    events.push_back(std::move(event));
  }
  Json result = Json::object();
  result.set("schema", "headroom.events/1");
  result.set("start_bytes", start);
  result.set("saved_for_backward_bytes", trace.saved_bytes);
  result.set("events", std::move(events));
  return result;
}

}  // namespace headroom::step
