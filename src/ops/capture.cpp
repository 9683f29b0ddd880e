#include "ops/capture.h"

#include <algorithm>
#include <unordered_map>

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

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Calls that put a kernel, a copy or a fill into the graph.
bool is_captured_launch(std::string_view name) {
  if (contains(name, "GraphLaunch") || contains(name, "LaunchHostFunc")) return false;
  return contains(name, "Launch") || contains(name, "MemcpyAsync") || contains(name, "MemsetAsync");
}

// A call of the capture, with the operator around it and its kernel's name, where that is known.
struct Launch {
  uint32_t call = kNone;
  uint32_t operation = kNone;
  std::string_view kernel;
};

std::vector<Launch> launches_of(const Trace& capture, const Links& links) {
  std::vector<Launch> launches;
  for (uint32_t i = 0; i < capture.events.size(); ++i) {
    const TraceEvent& call = capture.events[i];
    if (call.kind != TraceEventKind::call || !is_captured_launch(capture.name_of(call))) continue;
    Launch launch;
    launch.call = i;
    launch.operation = operator_of(capture, links, i);
    if (call.detail != kNone) launch.kernel = kernel_stem(capture.names.at(call.detail));
    launches.push_back(launch);
  }
  return launches;
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

struct Pair {
  uint32_t kernel = kNone;     // of the trace
  uint32_t operation = kNone;  // of the capture
};

class Join {
 public:
  Join(Trace& trace, const Trace& capture)
      : trace_(trace), capture_(capture), links_(link(capture)) {}

  CaptureJoin join() {
    const std::vector<Launch> launches = launches_of(capture_, links_);
    result_.captured = static_cast<int64_t>(launches.size());
    result_.has_names = std::any_of(launches.begin(), launches.end(),
                                    [](const Launch& one) { return !one.kernel.empty(); });
    for (const std::vector<uint32_t>& kernels : graphs_of(trace_)) {
      result_.graph_kernels += static_cast<int64_t>(kernels.size());
      if (result_.has_names) {
        walk_names(kernels, launches);
      } else if (kernels.size() == launches.size()) {
        for (size_t i = 0; i < kernels.size(); ++i) pair(kernels[i], launches[i]);
      }
    }
    result_.joined = static_cast<int64_t>(pairs_.size());
    if (!pairs_.empty()) bring_operators();
    return result_;
  }

 private:
  void pair(uint32_t kernel, const Launch& launch) {
    if (launch.operation != kNone) pairs_.push_back({kernel, launch.operation});
  }

  void walk_names(const std::vector<uint32_t>& kernels, const std::vector<Launch>& launches) {
    size_t next = 0;
    for (const uint32_t kernel : kernels) {
      const std::string_view name = kernel_stem(trace_.name_of(trace_.events[kernel]));
      const size_t end = std::min(launches.size(), next + kWindow);
      for (size_t at = next; at < end; ++at) {
        if (launches[at].kernel != name) continue;
        pair(kernel, launches[at]);
        next = at + 1;
        break;
      }
    }
  }

  // The joined operators and what is around them, before the begin of the trace.
  void bring_operators() {
    std::vector<bool> is_wanted(capture_.events.size(), false);
    for (const Pair& one : pairs_) {
      for (uint32_t at = one.operation; at != kNone; at = links_.parent[at]) is_wanted[at] = true;
    }
    const int64_t begin = trace_.events.front().start_ns;
    const int64_t later = begin - 1 - end_of_capture(is_wanted);
    std::vector<uint32_t> places(capture_.events.size(), kNone);
    std::vector<TraceEvent> brought;
    for (uint32_t i = 0; i < capture_.events.size(); ++i) {
      if (!is_wanted[i]) continue;
      places[i] = static_cast<uint32_t>(brought.size());
      TraceEvent event = capture_.events[i];
      event.kind = TraceEventKind::captured;
      event.start_ns += later;
      event.correlation = 0;
      event.external_id = 0;
      event.name = trace_.names.intern(capture_.name_of(event));
      if (event.detail != kNone) {
        event.detail = trace_.names.intern(capture_.names.at(event.detail));
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
  CaptureJoin result_;
  std::vector<Pair> pairs_;
  std::unordered_map<uint32_t, uint32_t> tracks_;
};

// Of "N2at6native3fooIfE...": the last of the names that come one behind the other.
std::string_view mangled_stem(std::string_view name) {
  std::string_view stem;
  name.remove_prefix(2);
  while (!name.empty()) {
    if (stem.empty() && (name[0] == 'N' || name[0] == 'L' || name[0] == 'K')) {
      name.remove_prefix(1);
      continue;
    }
    size_t length = 0;
    size_t digits = 0;
    constexpr size_t kMostDigits = 5;
    while (digits < name.size() && digits < kMostDigits && name[digits] >= '0' &&
           name[digits] <= '9') {
      length = length * 10 + static_cast<size_t>(name[digits++] - '0');
    }
    if (digits == 0 || length == 0 || length > name.size() - digits) break;
    stem = name.substr(digits, length);
    name.remove_prefix(digits + length);
  }
  return stem;
}

}  // namespace

std::string_view kernel_stem(std::string_view name) {
  name = name.substr(0, name.find(" [clone"));
  if (name.ends_with(".kd")) name.remove_suffix(3);
  if (name.starts_with("_Z")) {
    const std::string_view stem = mangled_stem(name);
    return stem.empty() ? name : stem;
  }
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  size_t begin = 0;
  for (size_t at = name.find(kAnonymous); at != std::string_view::npos && at < name.find('<');
       at = name.find(kAnonymous, begin)) {
    begin = at + kAnonymous.size();
  }
  std::string_view stem = name.substr(begin);
  stem = stem.substr(0, stem.find_first_of("<("));
  const size_t colons = stem.rfind("::");
  if (colons != std::string_view::npos) stem.remove_prefix(colons + 2);
  const size_t space = stem.rfind(' ');
  if (space != std::string_view::npos) stem.remove_prefix(space + 1);
  return stem.empty() ? name : stem;
}

CaptureJoin join_capture(Trace& trace, const Trace& capture) {
  if (trace.events.empty()) return {};
  return Join(trace, capture).join();
}

}  // namespace headroom::ops
