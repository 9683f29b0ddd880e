#include "ops/timeline.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "ops/accounts.h"

namespace headroom::ops {
namespace {

using formats::kNone;
using formats::TraceEvent;
using formats::TraceEventKind;

constexpr size_t kLongestName = 120;

class Builder {
 public:
  explicit Builder(const RecordedRun& run) : run_(run) {}

  Timeline build() {
    timeline_.length_ns = run_.links.end_ns() - run_.links.start_ns();
    for (const TraceStep& step : run_.links.steps) {
      timeline_.steps.push_back(
          {step.name, step.start_ns - run_.links.start_ns(), step.end_ns - run_.links.start_ns()});
    }
    add_gaps();
    add_streams();
    const auto device_rows = static_cast<std::ptrdiff_t>(timeline_.rows.size());
    add_host();
    std::rotate(timeline_.rows.begin(), timeline_.rows.begin() + device_rows, timeline_.rows.end());
    leave_out_short();
    drop_unused_names();
    return std::move(timeline_);
  }

 private:
  uint32_t name_of(uint32_t id) {
    const auto [known, is_new] =
        names_.try_emplace(id, static_cast<uint32_t>(timeline_.names.size()));
    if (is_new) timeline_.names.emplace_back(run_.trace.names.at(id).substr(0, kLongestName));
    return known->second;
  }

  // What of it lies within the steps; nothing where nothing does.
  void add(TimelineRow& row, int64_t start, int64_t end, uint32_t name, uint32_t group) {
    const int64_t from = std::max(start, run_.links.start_ns());
    const int64_t to = std::min(end, run_.links.end_ns());
    if (from >= to) return;
    row.marks.push_back({from - run_.links.start_ns(), to - from, name_of(name), group});
  }

  void keep(TimelineRow& row) {
    if (row.marks.empty()) return;
    if (timeline_.rows.size() < kMostRows) {
      timeline_.rows.push_back(std::move(row));
    } else {
      timeline_.left_out += row.marks.size();
    }
  }

  void add_host() {
    std::map<uint32_t, TimelineRow> threads, calls;
    std::unordered_map<uint32_t, int64_t> covered;  // until when, by thread
    for (const TraceEvent& event : run_.trace.events) {
      const std::string& thread = run_.trace.tracks[event.track].thread;
      if (event.kind == TraceEventKind::call) {
        TimelineRow& row = calls[event.track];
        row.title = "calls of " + thread;
        row.kind = RowKind::calls;
        add(row, event.start_ns, event.end_ns(), event.name, 0);
      } else if (event.kind == TraceEventKind::host_operator) {
        const auto [until, is_new] = covered.try_emplace(event.track, INT64_MIN);
        if (event.start_ns < until->second) continue;  // inside of another one
        until->second = event.end_ns();
        TimelineRow& row = threads[event.track];
        row.title = "thread " + thread;
        row.kind = RowKind::host;
        add(row, event.start_ns, event.end_ns(), event.name, 0);
      }
    }
    for (auto& [track, row] : threads) {
      keep(row);
      const auto call = calls.find(track);
      if (call == calls.end()) continue;
      keep(call->second);
      calls.erase(call);
    }
    for (auto& [track, row] : calls) keep(row);
  }

  // Where no stream has work; by what the next piece waited for: most of the gap for its call to
  // return, or for the device, as wall_time() counts it.
  void add_gaps() {
    if (!run_.links.has_device) return;
    TimelineRow row;
    row.title = "device idle";
    row.kind = RowKind::gaps;
    const uint32_t host = own_name("the next launch had not come");
    const uint32_t launch = own_name("launched, and not yet begun");
    const uint32_t unknown = own_name("what it waits for is not in the trace");
    int64_t busy_until = run_.links.start_ns();
    for (const Work& piece : run_.work) {
      if (piece.end_ns <= busy_until) continue;
      if (piece.start_ns > busy_until && busy_until < run_.links.end_ns()) {
        const uint32_t call = run_.links.launch[piece.event];
        const int64_t until = std::min(piece.start_ns, run_.links.end_ns());
        Mark gap{busy_until - run_.links.start_ns(), until - busy_until, unknown, 2};
        if (call != kNone) {
          const auto length = static_cast<double>(piece.start_ns - busy_until);
          const int64_t called = run_.trace.events[call].end_ns() - busy_until;
          const IdleParts parts = idle_parts(length, static_cast<double>(called));
          const bool is_host = parts.host_ns > length / 2;
          if (is_host || parts.unknown_ns == 0) {
            gap.name = is_host ? host : launch;
            gap.group = is_host ? 0 : 1;
          }
        }
        row.marks.push_back(gap);
      }
      busy_until = std::max(busy_until, piece.end_ns);
    }
    if (busy_until < run_.links.end_ns()) {
      row.marks.push_back(
          {busy_until - run_.links.start_ns(), run_.links.end_ns() - busy_until, host, 0});
    }
    keep(row);
  }

  uint32_t own_name(const char* words) {
    timeline_.names.emplace_back(words);
    return static_cast<uint32_t>(timeline_.names.size() - 1);
  }

  void add_streams() {
    if (!run_.links.has_device) return;
    std::map<uint32_t, TimelineRow> streams;
    for (const Work& piece : run_.work) {
      const TraceEvent& event = run_.trace.events[piece.event];
      TimelineRow& row = streams[event.track];
      row.title = "stream " + run_.trace.stream_of(event);
      row.kind = RowKind::stream;
      add(row, piece.start_ns, piece.end_ns, event.name, piece.group);
    }
    for (auto& [track, row] : streams) keep(row);
  }

  void leave_out_short() {
    std::vector<int64_t> spans;
    for (const TimelineRow& row : timeline_.rows) {
      for (const Mark& mark : row.marks) spans.push_back(mark.span_ns);
    }
    if (spans.size() <= kMostMarks) return;
    const auto least = spans.end() - static_cast<std::ptrdiff_t>(kMostMarks);
    std::nth_element(spans.begin(), least, spans.end());
    const int64_t shortest = *least;
    // Of those as short as the shortest that is kept: as many as there is room for, the first ones.
    auto ties = static_cast<size_t>(std::count(least, spans.end(), shortest));
    for (TimelineRow& row : timeline_.rows) {
      timeline_.left_out += static_cast<size_t>(std::erase_if(row.marks, [&](const Mark& mark) {
        if (mark.span_ns != shortest) return mark.span_ns < shortest;
        if (ties == 0) return true;
        --ties;
        return false;
      }));
    }
  }

  void drop_unused_names() {
    std::vector<uint32_t> places(timeline_.names.size(), kNone);
    std::vector<std::string> used;
    for (TimelineRow& row : timeline_.rows) {
      for (Mark& mark : row.marks) {
        uint32_t& place = places[mark.name];
        if (place == kNone) {
          place = static_cast<uint32_t>(used.size());
          used.push_back(std::move(timeline_.names[mark.name]));
        }
        mark.name = place;
      }
    }
    timeline_.names = std::move(used);
  }

  const RecordedRun& run_;
  Timeline timeline_;
  std::unordered_map<uint32_t, uint32_t> names_;
};

}  // namespace

Timeline timeline_of(const RecordedRun& run) { return Builder(run).build(); }

}  // namespace headroom::ops
