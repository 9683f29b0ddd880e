#include <algorithm>
#include <unordered_map>

#include "ops/program_draft.h"

namespace headroom::ops {
namespace {

using formats::TraceEvent;
using formats::TraceEventKind;
using timing::kNoCall;
using timing::ReplayCall;

// By track: begins and ends, in order.
using BusySpans = std::map<uint32_t, std::vector<std::pair<int64_t, int64_t>>>;

// The outermost operators of each thread, as spans of time in order.
BusySpans busy_spans(const formats::Trace& trace) {
  BusySpans busy;
  for (const TraceEvent& host : trace.events) {
    if (host.kind != TraceEventKind::host_operator) continue;
    auto& spans = busy[host.track];
    if (!spans.empty() && host.start_ns < spans.back().second) {
      spans.back().second = std::max(spans.back().second, host.end_ns());
    } else {
      spans.emplace_back(host.start_ns, host.end_ns());
    }
  }
  return busy;
}

// Time that a thread's own operators cover between two times.
int64_t busy_between(const BusySpans& busy, uint32_t track, int64_t from, int64_t to) {
  const auto found = busy.find(track);
  if (found == busy.end()) return 0;
  const auto& spans = found->second;
  auto span = std::lower_bound(spans.begin(), spans.end(), from,
                               [](const auto& a, int64_t time) { return a.second <= time; });
  int64_t covered = 0;
  for (; span != spans.end() && span->first < to; ++span) {
    covered += std::min(span->second, to) - std::max(span->first, from);
  }
  return covered;
}

}  // namespace

// A thread that ran no operator of its own while another thread was at work was waiting for that
// one: its next call follows the other's last.
void find_order(ProgramDraft& run) {
  const BusySpans busy = busy_spans(run.trace);
  std::unordered_map<uint32_t, uint32_t> last_of_track;
  uint32_t latest = kNoCall;  // of all threads, by its end
  for (uint32_t i = 0; i < run.calls.size(); ++i) {
    const TraceEvent& call = run.event(run.calls[i].event);
    const auto own = last_of_track.find(call.track);
    uint32_t after = own == last_of_track.end() ? kNoCall : own->second;
    const int64_t from = after == kNoCall ? run.links.start_ns() : run.end_of(after);
    const bool was_idle =
        2 * busy_between(busy, call.track, from, call.start_ns) < call.start_ns - from;
    const bool other_worked = latest != kNoCall && latest != after && run.end_of(latest) > from &&
                              run.end_of(latest) <= call.start_ns &&
                              run.event(run.calls[latest].event).track != call.track;
    if (was_idle && other_worked) after = latest;
    ReplayCall& made = run.recording.program.calls[i];
    made.after = after;
    const int64_t begin = after == kNoCall ? run.links.start_ns() : run.end_of(after);
    made.gap_ns = std::max<int64_t>(call.start_ns - begin, 0);
    last_of_track[call.track] = i;
    if (latest == kNoCall || run.end_of(i) >= run.end_of(latest)) latest = i;
  }
}

}  // namespace headroom::ops
