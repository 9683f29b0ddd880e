#include "ops/added_part.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

namespace headroom::ops {

namespace {

using formats::kNone;
using formats::Trace;
using formats::TraceEvent;
using formats::TraceEventKind;

constexpr size_t kMostOperators = 100'000;
// Comparisons of a part with what stands before it.
constexpr size_t kMostCompared = 100'000'000;

// ONNX Runtime's nodes of one kind have numbers of their own.
std::string kind_of(std::string_view name) {
  std::string kind;
  for (const char c : name) {
    if (c < '0' || c > '9') kind += c;
  }
  return kind;
}

bool is_outermost(const RecordedRun& run, uint32_t event) {
  for (uint32_t at = run.links.parent[event]; at != kNone; at = run.links.parent[at]) {
    if (run.trace.events[at].kind == TraceEventKind::host_operator) return false;
  }
  return true;
}

// Of the thread that has most of them, in order of their start.
std::vector<uint32_t> outermost_operators(const RecordedRun& run) {
  std::map<uint32_t, std::vector<uint32_t>> by_thread;
  const int64_t begin = run.links.start_ns();
  const int64_t end = run.links.end_ns();
  for (uint32_t i = 0; i < run.trace.events.size(); ++i) {
    const TraceEvent& event = run.trace.events[i];
    if (event.kind != TraceEventKind::host_operator) continue;
    if (event.start_ns < begin || event.start_ns >= end) continue;
    if (is_outermost(run, i)) by_thread[event.track].push_back(i);
  }
  std::vector<uint32_t> most;
  for (auto& [track, events] : by_thread) {
    if (events.size() > most.size()) most = std::move(events);
  }
  return most;
}

// Numbers for kinds, the same for both runs.
class Kinds {
 public:
  std::vector<uint32_t> of(const Trace& trace, const std::vector<uint32_t>& events) {
    std::vector<uint32_t> kinds;
    for (const uint32_t event : events) {
      const auto next = static_cast<uint32_t>(numbers_.size());
      const std::string kind = kind_of(trace.name_of(trace.events[event]));
      kinds.push_back(numbers_.try_emplace(kind, next).first->second);
    }
    return kinds;
  }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
};

// Where a part of `length` may begin in `more`: the places from first to last.
struct Places {
  size_t first = 0;
  size_t last = 0;
};

std::optional<Places> places_of(const std::vector<uint32_t>& less,
                                const std::vector<uint32_t>& more) {
  const size_t begin = static_cast<size_t>(std::ranges::mismatch(less, more).in1 - less.begin());
  size_t end = 0;
  while (end < less.size() && less[less.size() - 1 - end] == more[more.size() - 1 - end]) ++end;
  if (begin + end < less.size()) return {};
  return Places{less.size() - end, begin};
}

bool stands_before(const std::vector<uint32_t>& more, size_t at, size_t length) {
  if (at < length) return false;
  const auto part = more.begin() + static_cast<ptrdiff_t>(at);
  const auto size = static_cast<ptrdiff_t>(length);
  return std::equal(part - size, part, part);
}

// Of the places the first at which the same stands right before; else the last.
size_t chosen_place(const std::vector<uint32_t>& more, const Places& places, size_t length) {
  const size_t tries = places.last - places.first + 1;
  if (tries * length > kMostCompared) return places.last;
  for (size_t at = places.first; at <= places.last; ++at) {
    if (stands_before(more, at, length)) return at;
  }
  return places.last;
}

}  // namespace

std::optional<AddedPart> added_part(const RecordedRun& less, const RecordedRun& more) {
  if (less.links.has_device || more.links.has_device) return {};
  const std::vector<uint32_t> events = outermost_operators(more);
  const std::vector<uint32_t> fewer = outermost_operators(less);
  if (events.size() > kMostOperators || fewer.size() >= events.size()) return {};
  Kinds kinds;
  const std::vector<uint32_t> short_kinds = kinds.of(less.trace, fewer);
  const std::vector<uint32_t> long_kinds = kinds.of(more.trace, events);
  const auto places = places_of(short_kinds, long_kinds);
  if (!places) return {};
  const size_t length = events.size() - fewer.size();
  const size_t at = chosen_place(long_kinds, *places, length);
  // What is between two operators is the second one's.
  const auto bound = [&](size_t place) {
    if (place == 0) return more.links.start_ns();
    if (place == events.size()) return more.links.end_ns();
    return more.trace.events[events[place - 1]].end_ns();
  };
  AddedPart part;
  part.operators = static_cast<int64_t>(length);
  if (stands_before(long_kinds, at, length)) {
    part.spans_ns.push_back({bound(at - length), bound(at)});
  }
  part.spans_ns.push_back({bound(at), bound(at + length)});
  return part;
}

Result<RecordedRun> with_steps(const RecordedRun& run,
                               const std::vector<std::array<int64_t, 2>>& spans_ns,
                               const OperatorRules& rules) {
  Trace trace = run.trace;
  std::erase_if(trace.events,
                [](const TraceEvent& event) { return event.kind == TraceEventKind::step; });
  const std::vector<uint32_t> operators = outermost_operators(run);
  for (size_t i = 0; i < spans_ns.size() && !operators.empty(); ++i) {
    TraceEvent step;
    step.kind = TraceEventKind::step;
    step.track = run.trace.events[operators.front()].track;
    step.name = trace.names.intern("part " + std::to_string(i));
    step.start_ns = spans_ns[i][0];
    step.duration_ns = spans_ns[i][1] - spans_ns[i][0];
    trace.events.push_back(step);
  }
  std::ranges::stable_sort(trace.events, [](const TraceEvent& a, const TraceEvent& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
  });
  return run_of(std::move(trace), rules);
}

}  // namespace headroom::ops
