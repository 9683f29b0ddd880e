#include "ops/capture.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <unordered_map>
#include <unordered_set>

#include "ops/contains.h"
#include "ops/kernel_name.h"
#include "ops/links.h"

namespace headroom::ops {
namespace {

using formats::is_device;
using formats::kNone;
using formats::Trace;
using formats::TraceEvent;
using formats::TraceEventKind;

// How far ahead a name is looked for, before what it was looked for is passed over.
constexpr size_t kWindow = 64;
// Comparisons of kernels with launches, a second or two: graphs beyond that stay without operators.
constexpr int64_t kMostComparisons = 1'000'000'000;

// Calls that put a kernel, a copy or a fill into the graph.
bool is_captured_launch(std::string_view name) {
  if (contains(name, "GraphLaunch") || contains(name, "LaunchHostFunc")) return false;
  return contains(name, "Launch") || contains(name, "MemcpyAsync") || contains(name, "MemsetAsync");
}

// Where one capture ends and another begins.
bool is_boundary(std::string_view name) {
  return contains(name, "StreamBeginCapture") || contains(name, "StreamEndCapture") ||
         contains(name, "GraphInstantiate");
}

TraceEventKind kind_of(std::string_view call) {
  if (contains(call, "Memcpy")) return TraceEventKind::copy;
  return contains(call, "Memset") ? TraceEventKind::fill : TraceEventKind::kernel;
}

// Names of kernels, however they are written, by number; 0 is none.
class Stems {
 public:
  uint32_t of(std::string_view name) {
    if (name.empty()) return 0;
    return numbers_.try_emplace(kernel_stem(name), static_cast<uint32_t>(numbers_.size() + 1))
        .first->second;
  }

 private:
  std::unordered_map<std::string_view, uint32_t> numbers_;
};

// A call of the capture, with the operator around it and its kernel's name, where that is known.
struct Launch {
  uint32_t operation = kNone;
  uint32_t stem = 0;
  TraceEventKind kind = TraceEventKind::kernel;
};

// The launches between a begin and an end. What a capture launches does not run: calls that have
// something on the device (a warm-up, copies of inputs) are left out.
std::vector<std::vector<Launch>> captures_of(const Trace& capture, const Links& links,
                                             Stems& stems) {
  std::unordered_set<int64_t> ran;
  for (const TraceEvent& event : capture.events) {
    if (is_device(event.kind) && event.correlation != 0) ran.insert(event.correlation);
  }
  std::vector<std::vector<Launch>> captures(1);
  for (uint32_t i = 0; i < capture.events.size(); ++i) {
    const TraceEvent& call = capture.events[i];
    if (call.kind != TraceEventKind::call) continue;
    const std::string_view name = capture.name_of(call);
    if (is_boundary(name) && !captures.back().empty()) captures.emplace_back();
    if (!is_captured_launch(name) || ran.contains(call.correlation)) continue;
    const std::string_view kernel =
        call.detail == kNone ? std::string_view() : capture.names.at(call.detail);
    captures.back().push_back({operator_of(capture, links, i), stems.of(kernel), kind_of(name)});
  }
  if (captures.back().empty()) captures.pop_back();
  return captures;
}

// The kernels of each launch of a graph, in order of their begin.
std::vector<std::vector<uint32_t>> graphs_of(const Trace& trace) {
  std::unordered_map<int64_t, std::vector<uint32_t>> by_correlation;
  std::vector<int64_t> order;
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    if (!is_device(event.kind) || event.correlation == 0) continue;
    std::vector<uint32_t>& kernels = by_correlation[event.correlation];
    if (kernels.empty()) order.push_back(event.correlation);
    kernels.push_back(i);
  }
  std::vector<std::vector<uint32_t>> graphs;
  for (const int64_t correlation : order) {
    std::vector<uint32_t>& kernels = by_correlation[correlation];
    if (kernels.size() > 1) graphs.push_back(std::move(kernels));
  }
  return graphs;
}

// A kernel of a graph, as it is looked for among launches.
struct Wanted {
  uint32_t stem = 0;
  TraceEventKind kind = TraceEventKind::kernel;
  auto operator<=>(const Wanted&) const = default;
};

// For each kernel of a graph its operator in the capture.
struct Match {
  std::vector<uint32_t> operations;
  size_t matched = 0;           // those included whose launch has no operator around it
  size_t launches = 0;          // of the capture
  bool is_of_one_shape = true;  // no other capture matches as well with other shapes
  bool is_of_one_model = true;  // nor with other operators
};

struct Pair {
  uint32_t kernel = kNone;     // of the trace
  uint32_t operation = kNone;  // of the capture
};

class Join {
 public:
  Join(Trace& trace, const Trace& capture)
      : trace_(trace),
        capture_(capture),
        links_(link(capture)),
        captures_(captures_of(capture, links_, stems_)) {}

  CaptureJoin join() {
    for (const std::vector<Launch>& launches : captures_) {
      result_.captured += static_cast<int64_t>(launches.size());
      result_.has_names |= std::ranges::any_of(launches, [](auto& one) { return one.stem != 0; });
    }
    for (const std::vector<uint32_t>& kernels : graphs_of(trace_)) {
      result_.graph_kernels += static_cast<int64_t>(kernels.size());
      take(kernels, match_of(kernels));
    }
    result_.joined = static_cast<int64_t>(pairs_.size());
    if (!pairs_.empty()) bring_operators();
    return result_;
  }

 private:
  void take(const std::vector<uint32_t>& kernels, const Match& match) {
    for (size_t i = 0; i < match.operations.size(); ++i) {
      const uint32_t operation = match.operations[i];
      if (operation == kNone) continue;
      pairs_.push_back({kernels[i], operation});
      if (match.is_of_one_shape) continue;
      unsure_.insert(operation);
      result_.has_unsure_shapes = true;
    }
  }

  // Launches of the same graph are matched once.
  const Match& match_of(const std::vector<uint32_t>& kernels) {
    std::vector<Wanted> wanted;
    for (const uint32_t kernel : kernels) {
      const TraceEvent& event = trace_.events[kernel];
      wanted.push_back({stems_.of(trace_.name_of(event)), event.kind});
    }
    const auto [found, is_new] = matches_.try_emplace(std::move(wanted));
    if (is_new) found->second = best_match(found->first);
    return found->second;
  }

  // The capture whose launches most kernels are among, and of those the shortest; nothing where
  // that is the lesser part, or where another one is as good and has other operators.
  Match best_match(const std::vector<Wanted>& kernels) {
    Match best;
    for (const std::vector<Launch>& launches : captures_) {
      if (2 * launches.size() <= kernels.size()) continue;
      comparisons_ -= static_cast<int64_t>(kernels.size() * (result_.has_names ? kWindow : 1));
      if (comparisons_ < 0) break;
      Match match = result_.has_names ? by_names(kernels, launches) : by_order(kernels, launches);
      match.launches = launches.size();
      if (2 * match.matched <= kernels.size() || is_better(best, match)) continue;
      if (!is_better(match, best)) {
        tell_apart(best, match);
      } else {
        best = std::move(match);
      }
    }
    return best.is_of_one_model ? best : Match();
  }

  static bool is_better(const Match& a, const Match& b) {
    return a.matched != b.matched ? a.matched > b.matched : a.launches < b.launches;
  }

  // A model that was captured for several batches: the same operators, of other shapes.
  void tell_apart(Match& best, const Match& other) const {
    const auto is_same = [&](uint32_t TraceEvent::*what) {
      return std::ranges::equal(best.operations, other.operations, [&](uint32_t a, uint32_t b) {
        if (a == kNone || b == kNone) return a == b;
        return capture_.events[a].*what == capture_.events[b].*what;
      });
    };
    best.is_of_one_model &= is_same(&TraceEvent::name);
    best.is_of_one_shape &= is_same(&TraceEvent::detail);
  }

  static Match by_names(const std::vector<Wanted>& kernels, const std::vector<Launch>& launches) {
    Match match;
    size_t next = 0;
    for (const Wanted& kernel : kernels) {
      match.operations.push_back(kNone);
      const size_t end = std::min(launches.size(), next + kWindow);
      for (size_t at = next; at < end; ++at) {
        if (launches[at].stem != kernel.stem) continue;
        match.operations.back() = launches[at].operation;
        ++match.matched;
        next = at + 1;
        break;
      }
    }
    return match;
  }

  // One for one, each of its kind. Of the fills of a graph a run may tell some and not others (CUDA
  // 13.0 does): where the sequences differ, they are held against each other without them.
  static Match by_order(const std::vector<Wanted>& kernels, const std::vector<Launch>& launches) {
    Match match;
    const auto is_alike = [](const auto& a, const auto& b) { return a.kind == b.kind; };
    if (std::ranges::equal(kernels, launches, is_alike)) {
      for (const Launch& launch : launches) match.operations.push_back(launch.operation);
      match.matched = kernels.size();
      return match;
    }
    const auto is_no_fill = [](const auto& one) { return one.kind != TraceEventKind::fill; };
    if (!std::ranges::equal(kernels | std::views::filter(is_no_fill),
                            launches | std::views::filter(is_no_fill), is_alike)) {
      return match;
    }
    auto launch = launches.begin();
    for (const Wanted& kernel : kernels) {
      match.operations.push_back(kNone);
      if (!is_no_fill(kernel)) continue;
      while (!is_no_fill(*launch)) ++launch;
      match.operations.back() = (launch++)->operation;
      ++match.matched;
    }
    return match;
  }

  // The joined operators and what is around them, before the begin of the trace.
  void bring_operators() {
    std::vector<bool> is_wanted(capture_.events.size(), false);
    for (const Pair& one : pairs_) {
      for (uint32_t at = one.operation; at != kNone; at = links_.parent[at]) is_wanted[at] = true;
    }
    const int64_t begin = trace_.events.front().start_ns;
    const int64_t end = end_of_capture(is_wanted);
    std::vector<uint32_t> places(capture_.events.size(), kNone);
    std::vector<TraceEvent> brought;
    for (uint32_t i = 0; i < capture_.events.size(); ++i) {
      if (!is_wanted[i]) continue;
      places[i] = static_cast<uint32_t>(brought.size());
      TraceEvent event = capture_.events[i];
      event.kind = TraceEventKind::captured;
      // As far before the begin as it was before the end, within what a time may be.
      event.start_ns = std::max(begin - 1 - std::min(end - event.start_ns, formats::kMaxTraceNs),
                                -formats::kMaxTraceNs);
      event.correlation = 0;
      event.external_id = 0;
      event.name = trace_.names.intern(capture_.name_of(event));
      if (event.detail != kNone) {
        event.detail =
            unsure_.contains(i) ? kNone : trace_.names.intern(capture_.names.at(event.detail));
      }
      event.track = track_of(event.track);
      brought.push_back(event);
    }
    const auto count = static_cast<uint32_t>(brought.size());
    trace_.events.insert(trace_.events.begin(), brought.begin(), brought.end());
    for (const Pair& one : pairs_) {
      trace_.captured.push_back({one.kernel + count, places[one.operation]});
    }
  }

  [[nodiscard]] int64_t end_of_capture(const std::vector<bool>& is_wanted) const {
    int64_t end = INT64_MIN;
    for (uint32_t i = 0; i < capture_.events.size(); ++i) {
      if (is_wanted[i]) end = std::max(end, capture_.events[i].end_ns());
    }
    return end;
  }

  uint32_t track_of(uint32_t track) {
    const auto [found, is_new] =
        tracks_.try_emplace(track, static_cast<uint32_t>(trace_.tracks.size()));
    if (is_new) {
      trace_.tracks.push_back(capture_.tracks[track]);
      trace_.tracks.back().process = "capture";
    }
    return found->second;
  }

  Trace& trace_;
  const Trace& capture_;
  Links links_;
  Stems stems_;
  std::vector<std::vector<Launch>> captures_;
  std::map<std::vector<Wanted>, Match> matches_;
  int64_t comparisons_ = kMostComparisons;
  CaptureJoin result_;
  std::vector<Pair> pairs_;
  std::unordered_set<uint32_t> unsure_;  // operators of whose shapes another capture has others
  std::unordered_map<uint32_t, uint32_t> tracks_;
};

}  // namespace

CaptureJoin join_capture(Trace& trace, const Trace& capture) {
  if (trace.events.empty()) return {};
  return Join(trace, capture).join();
}

}  // namespace headroom::ops
