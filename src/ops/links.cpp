#include "ops/links.h"

#include <algorithm>
#include <unordered_map>

namespace headroom::ops {

int32_t step_at(const Links& links, int64_t time) {
  const auto after =
      std::upper_bound(links.steps.begin(), links.steps.end(), time,
                       [](int64_t at, const TraceStep& step) { return at < step.start_ns; });
  if (after == links.steps.begin()) return kOutside;
  const auto step = std::prev(after);
  if (time > step->end_ns || (time == step->end_ns && links.has_steps)) return kOutside;
  return static_cast<int32_t>(step - links.steps.begin());
}

int64_t Links::passed_ns(int64_t time) const {
  if (steps.empty() || time <= start_ns()) return 0;
  if (has_device) return std::min(time, end_ns()) - start_ns();
  const auto after =
      std::upper_bound(steps.begin(), steps.end(), time,
                       [](int64_t at, const TraceStep& one) { return at < one.start_ns; });
  const TraceStep& reached = *std::prev(after);
  return reached.before_ns + std::min(time, reached.end_ns) - reached.start_ns;
}

int64_t Links::step_ns(size_t index) const {
  const bool is_last = index + 1 == steps.size();
  return (is_last ? passed_ns(end_ns()) : steps[index + 1].before_ns) - steps[index].before_ns;
}

namespace {

using formats::is_device;
using formats::kNone;
using formats::Trace;
using formats::TraceEvent;
using formats::TraceEventKind;

// A chain longer than this is no program's; it bounds what a hostile trace costs.
constexpr size_t kDeepest = 512;

bool encloses(TraceEventKind kind) {
  return kind == TraceEventKind::host_operator || kind == TraceEventKind::annotation ||
         kind == TraceEventKind::step || kind == TraceEventKind::captured;
}

// Events are ordered by start, so the open operators of a thread are a stack. An operator that ends
// where the next event begins does not hold it.
void find_parents(const Trace& trace, Links& links) {
  std::vector<std::vector<uint32_t>> open(trace.tracks.size());
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (is_device(event.kind)) continue;
    std::vector<uint32_t>& stack = open[event.track];
    while (!stack.empty() && trace.events[stack.back()].end_ns() <= event.start_ns) {
      stack.pop_back();
    }
    if (!stack.empty()) links.parent[i] = stack.back();
    if (encloses(event.kind) && stack.size() < kDeepest) stack.push_back(i);
  }
}

void find_steps(const Trace& trace, Links& links) {
  int64_t first = INT64_MAX;
  int64_t last = INT64_MIN;
  std::vector<TraceStep> named;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == TraceEventKind::captured) continue;  // of another time
    first = std::min(first, event.start_ns);
    last = std::max(last, event.end_ns());
    if (event.kind == TraceEventKind::step) {
      named.push_back({std::string(trace.name_of(event)), event.start_ns, event.end_ns(), 0});
    }
  }
  for (TraceStep& step : named) {  // by start already; what overlaps is another thread's copy
    if (links.steps.empty() || step.start_ns >= links.steps.back().end_ns) {
      links.steps.push_back(std::move(step));
    }
  }
  links.has_steps = !links.steps.empty();
  if (!links.has_steps && !trace.events.empty()) links.steps.push_back({"trace", first, last, 0});
  int64_t before = 0;
  for (TraceStep& step : links.steps) {
    step.before_ns = links.has_device ? step.start_ns - links.start_ns() : before;
    before += step.end_ns - step.start_ns;
  }
}

// The calls by correlation. Where a runtime's call and a driver's share one, the outer one counts.
std::unordered_map<int64_t, uint32_t> calls_by_correlation(const Trace& trace) {
  std::unordered_map<int64_t, uint32_t> calls;
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (event.kind == TraceEventKind::call && event.correlation != 0) {
      calls.emplace(event.correlation, i);
    }
  }
  return calls;
}

// Operators by External id, for kernels whose call is not in the trace.
std::unordered_map<int64_t, uint32_t> operators_by_id(const Trace& trace) {
  std::unordered_map<int64_t, uint32_t> operators;
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (event.kind == TraceEventKind::host_operator && event.external_id != 0) {
      operators.emplace(event.external_id, i);
    }
  }
  return operators;
}

void link_device(const Trace& trace, Links& links) {
  const auto calls = calls_by_correlation(trace);
  const auto operators = operators_by_id(trace);
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (!is_device(event.kind)) continue;
    const auto call = event.correlation == 0 ? calls.end() : calls.find(event.correlation);
    if (call != calls.end()) {
      links.launch[i] = call->second;
      links.parent[i] = links.parent[call->second];
      links.step[i] = step_at(links, trace.events[call->second].start_ns);
      continue;
    }
    // Old profilers wrote the correlation as the id of kernels without an operator.
    const bool has_id = event.external_id != 0 && event.external_id != event.correlation;
    const auto operation = has_id ? operators.find(event.external_id) : operators.end();
    if (operation != operators.end()) {
      links.parent[i] = operation->second;
      links.step[i] = step_at(links, trace.events[operation->second].start_ns);
    } else if (!links.has_steps) {
      links.step[i] = 0;
    }
  }
}

}  // namespace

Links link(const Trace& trace) {
  Links links;
  links.parent.assign(trace.events.size(), kNone);
  links.launch.assign(trace.events.size(), kNone);
  links.step.assign(trace.events.size(), kOutside);
  for (const TraceEvent& event : trace.events) {
    links.has_device |= is_device(event.kind);
    links.has_calls |= event.kind == TraceEventKind::call;
  }
  find_steps(trace, links);
  find_parents(trace, links);
  link_device(trace, links);
  return links;
}

uint32_t operator_of(const Trace& trace, const Links& links, uint32_t event) {
  uint32_t at = event;
  const auto is_operator = [](TraceEventKind kind) {
    return kind == TraceEventKind::host_operator || kind == TraceEventKind::captured;
  };
  while (at != kNone && !is_operator(trace.events[at].kind)) at = links.parent[at];
  return at;
}

void chain_of(const Trace& trace, const Links& links, uint32_t event,
              std::vector<uint32_t>& names) {
  names.clear();
  for (uint32_t at = links.parent[event]; at != kNone; at = links.parent[at]) {
    names.push_back(trace.events[at].name);
  }
}

}  // namespace headroom::ops
