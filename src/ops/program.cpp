#include "ops/program.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/median.h"
#include "ops/stream_waits.h"

namespace headroom::ops {
namespace {

using formats::is_device;
using formats::kNone;
using formats::Trace;
using formats::TraceEvent;
using formats::TraceEventKind;
using timing::CallKind;
using timing::kNoCall;
using timing::kNoKernel;
using timing::Latencies;
using timing::ReplayCall;
using timing::ReplayKernel;

// What is typical where a recording has too few samples of its own: H100 and MI300X traces of
// TraceLens (AMD-AGI/TraceLens @171dd747, tests/traces), medians; docs/algorithms/replay.md.
constexpr Latencies kCudaLatencies{6500, 8000, 1300, 1000, 5000, 3000};
constexpr Latencies kRocmLatencies{18000, 20000, 3000, 1000, 8000, 5000};
constexpr size_t kFewestSamples = 5;
constexpr size_t kHalves = 2;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Samples of one latency, by half of the recording.
struct Samples {
  std::vector<double> halves[kHalves];

  // For kernels of one half what the other half says, or both, or what is typical.
  double for_half(size_t half, double typical) {
    std::vector<double>& other = halves[1 - half];
    if (other.size() >= kFewestSamples) return median(other);
    std::vector<double> both = halves[0];
    both.insert(both.end(), halves[1].begin(), halves[1].end());
    return both.size() >= kFewestSamples ? median(both) : typical;
  }
};

// A call that matters to the replay, while the program is built.
struct Node {
  uint32_t event = 0;
  std::vector<uint32_t> launched;  // device events, in order of their begin
  bool is_wait = false;
};

class Builder {
 public:
  Builder(const Trace& trace, const Links& links, const std::vector<Work>& work,
          const OperatorRules& rules)
      : trace_(trace), links_(links), communication_(rules.group("communication")) {
    for (const Work& piece : work) group_of_[piece.event] = piece.group;
  }

  std::optional<Recording> build() {
    find_nodes();
    if (kernel_events_.empty()) return std::nullopt;
    find_earlier();
    place_kernels();
    if (streams_.size() > kMostStreams) return std::nullopt;
    find_order();
    find_stream_waits();
    explain_delays();
    find_host_waits();
    find_outside_waits();
    measure_latencies();
    find_end();
    recording_.events = kernel_events_;
    return std::move(recording_);
  }

 private:
  [[nodiscard]] const TraceEvent& event(uint32_t index) const { return trace_.events[index]; }
  [[nodiscard]] bool in_window(int64_t time) const {
    return time >= links_.start_ns() && time < links_.end_ns();
  }

  // Calls that launch something or wait, by start; then their kernels.
  void find_nodes() {
    std::unordered_map<uint32_t, std::vector<uint32_t>> launched;
    for (uint32_t i = 0; i < trace_.events.size(); ++i) {
      if (is_device(event(i).kind) && links_.launch[i] != kNone) {
        launched[links_.launch[i]].push_back(i);
      }
    }
    for (uint32_t i = 0; i < trace_.events.size(); ++i) {
      if (event(i).kind != TraceEventKind::call || !in_window(event(i).start_ns)) continue;
      const auto kernels = launched.find(i);
      const bool is_wait = contains(trace_.name_of(event(i)), "Synchronize");
      if (kernels == launched.end() && !is_wait) continue;
      Node node{i, {}, is_wait};
      if (kernels != launched.end()) node.launched = std::move(kernels->second);
      nodes_.push_back(std::move(node));
    }
    for (const Node& node : nodes_) {
      for (const uint32_t kernel : node.launched) kernel_events_.push_back(kernel);
    }
  }

  // What was launched before the begin and is not done then, in order of its begin; what a stream
  // shows behind the first kernel of a call is of calls that are not in the recording.
  void find_earlier() {
    std::vector<bool> is_seen(trace_.tracks.size(), false);
    std::vector<bool> is_used(trace_.tracks.size(), false);
    for (const uint32_t kernel : kernel_events_) is_used[event(kernel).track] = true;
    std::vector<uint32_t> earlier;
    for (uint32_t i = 0; i < trace_.events.size(); ++i) {
      if (!is_device(event(i).kind) || !is_used[event(i).track]) continue;
      const uint32_t launch = links_.launch[i];
      const bool is_earlier = launch == kNone || event(launch).start_ns < links_.start_ns();
      if (!is_earlier) is_seen[event(i).track] = true;
      if (!is_earlier || is_seen[event(i).track] || event(i).end_ns() <= links_.start_ns())
        continue;
      earlier.push_back(i);
    }
    recording_.program.earlier_count = static_cast<uint32_t>(earlier.size());
    kernel_events_.insert(kernel_events_.begin(), earlier.begin(), earlier.end());
  }

  uint32_t stream_of(uint32_t kernel_event) {
    const auto [found, is_new] = streams_.try_emplace(event(kernel_event).track, streams_.size());
    return static_cast<uint32_t>(found->second);
  }

  void place_kernels() {
    timing::Program& program = recording_.program;
    for (const uint32_t kernel_event : kernel_events_) {
      ReplayKernel kernel;
      kernel.stream = stream_of(kernel_event);
      kernel.group = group_of_[kernel_event];
      kernel.is_communication = kernel.group == communication_;
      // Of what runs at the begin only the rest is to come.
      kernel.duration_ns =
          event(kernel_event).end_ns() - std::max(event(kernel_event).start_ns, links_.start_ns());
      program.kernels.push_back(kernel);
    }
    uint32_t next = program.earlier_count;
    for (const Node& node : nodes_) {
      ReplayCall call;
      call.first_kernel = next;
      call.kernel_count = static_cast<uint32_t>(node.launched.size());
      next += call.kernel_count;
      call.kind = kind_of(node);
      if (call.kind == CallKind::launch || call.kind == CallKind::launch_graph) {
        call.cost_ns = event(node.event).duration_ns;
      }
      program.calls.push_back(call);
    }
    program.streams = static_cast<uint32_t>(streams_.size());
  }

  [[nodiscard]] CallKind kind_of(const Node& node) const {
    if (node.launched.empty()) return CallKind::wait;
    const TraceEvent& last = event(node.launched.back());
    const bool is_copy = last.kind == TraceEventKind::copy;
    if (is_copy && event(node.event).end_ns() >= last.end_ns()) return CallKind::copy_and_wait;
    const bool is_graph =
        node.launched.size() > 1 || contains(trace_.name_of(event(node.event)), "GraphLaunch");
    return is_graph ? CallKind::launch_graph : CallKind::launch;
  }

  // Time that a thread's own operators cover between two times.
  [[nodiscard]] int64_t busy_between(uint32_t track, int64_t from, int64_t to) const {
    const auto found = busy_.find(track);
    if (found == busy_.end()) return 0;
    const auto& spans = found->second;
    auto span = std::lower_bound(spans.begin(), spans.end(), from,
                                 [](const auto& a, int64_t time) { return a.second <= time; });
    int64_t covered = 0;
    for (; span != spans.end() && span->first < to; ++span) {
      covered += std::min(span->second, to) - std::max(span->first, from);
    }
    return covered;
  }

  // The outermost operators of each thread, as spans of time in order.
  void find_busy() {
    for (const TraceEvent& host : trace_.events) {
      if (host.kind != TraceEventKind::host_operator) continue;
      auto& spans = busy_[host.track];
      if (!spans.empty() && host.start_ns < spans.back().second) {
        spans.back().second = std::max(spans.back().second, host.end_ns());
      } else {
        spans.emplace_back(host.start_ns, host.end_ns());
      }
    }
  }

  // What each call follows. A thread that ran no operator of its own while another thread was at
  // work was waiting for that one: its next call follows the other's last.
  void find_order() {
    find_busy();
    std::unordered_map<uint32_t, uint32_t> last_of_track;
    uint32_t latest = kNoCall;  // of all threads, by its end
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      const TraceEvent& call = event(nodes_[i].event);
      const auto own = last_of_track.find(call.track);
      uint32_t after = own == last_of_track.end() ? kNoCall : own->second;
      const int64_t from = after == kNoCall ? links_.start_ns() : end_of(after);
      const bool was_idle =
          2 * busy_between(call.track, from, call.start_ns) < call.start_ns - from;
      const bool other_worked = latest != kNoCall && latest != after && end_of(latest) > from &&
                                end_of(latest) <= call.start_ns &&
                                event(nodes_[latest].event).track != call.track;
      if (was_idle && other_worked) after = latest;
      ReplayCall& made = recording_.program.calls[i];
      made.after = after;
      const int64_t begin = after == kNoCall ? links_.start_ns() : end_of(after);
      made.gap_ns = std::max<int64_t>(call.start_ns - begin, 0);
      last_of_track[call.track] = i;
      if (latest == kNoCall || end_of(i) >= end_of(latest)) latest = i;
    }
  }

  [[nodiscard]] int64_t end_of(uint32_t node) const { return event(nodes_[node].event).end_ns(); }

  // The last kernel on a stream that was launched before `time`.
  [[nodiscard]] uint32_t last_on(uint32_t stream, int64_t time) const {
    const auto& launches = launches_of_[stream];
    const auto after =
        std::lower_bound(launches.begin(), launches.end(), std::pair<int64_t, uint32_t>(time, 0));
    return after == launches.begin() ? kNoKernel : std::prev(after)->second;
  }

  void find_stream_waits() {
    launches_of_.resize(streams_.size());
    for (uint32_t i = 0; i < recording_.program.earlier_count; ++i) {
      launches_of_[recording_.program.kernels[i].stream].emplace_back(links_.start_ns() - 1, i);
    }
    for (const ReplayCall& call : recording_.program.calls) {
      const auto node = static_cast<size_t>(&call - recording_.program.calls.data());
      for (uint32_t i = 0; i < call.kernel_count; ++i) {
        const uint32_t kernel = call.first_kernel + i;
        launches_of_[recording_.program.kernels[kernel].stream].emplace_back(
            event(nodes_[node].event).start_ns, kernel);
      }
    }
    for (uint32_t i = 0; i < trace_.events.size(); ++i) {
      if (event(i).kind == TraceEventKind::call && event(i).correlation != 0) {
        start_of_[event(i).correlation] = event(i).start_ns;
      }
    }
    for (const formats::TraceWait& wait : trace_.waits) {
      if (wait.stream < 0 || wait.wait_on_stream < 0) continue;
      are_waits_recorded_ = true;
      const auto start = start_of_.find(wait.correlation);
      const auto record = start_of_.find(wait.record_correlation);
      if (start == start_of_.end() || record == start_of_.end()) continue;
      make_wait(find_stream(wait.stream), start->second, find_stream(wait.wait_on_stream),
                record->second);
    }
    if (!are_waits_recorded_) guess_stream_waits();
  }

  [[nodiscard]] uint32_t find_stream(int64_t number) const {
    const std::string name = std::to_string(number);
    for (const auto& [track, stream] : streams_) {
      if (trace_.tracks[track].thread == name) return static_cast<uint32_t>(stream);
    }
    return kNoKernel;
  }

  // The first kernel launched on `stream` after `since` waits for what was on `other` at `until`.
  void make_wait(uint32_t stream, int64_t since, uint32_t other, int64_t until) {
    if (stream >= launches_of_.size() || other >= launches_of_.size() || stream == other) return;
    const uint32_t awaited = last_on(other, until);
    if (awaited != kNoKernel) wait_for(stream, since, awaited);
  }

  void wait_for(uint32_t stream, int64_t since, uint32_t awaited) {
    const auto& launches = launches_of_[stream];
    const auto first = std::upper_bound(launches.begin(), launches.end(),
                                        std::pair<int64_t, uint32_t>(since, kNoKernel));
    if (first == launches.end() || first->second <= awaited) return;
    uint32_t& waits_for = recording_.program.kernels[first->second].waits_for;
    if (waits_for == kNoKernel || waits_for < awaited) waits_for = awaited;
  }

  // Without a record of what a cudaStreamWaitEvent waits for: PyTorch makes a side stream (of
  // collectives or copies) wait for the main one before it launches there, and the main one wait
  // for what was put on side streams, the oldest that nobody has waited for first.
  void guess_stream_waits() {
    const uint32_t main = busiest_stream();
    size_t node = 0;
    size_t taken = 0;
    std::vector<uint32_t> pending;  // the last kernel of each stretch of launches on a side stream
    for (uint32_t i = 0; i < trace_.events.size(); ++i) {
      const TraceEvent& call = event(i);
      if (call.kind != TraceEventKind::call || !contains(trace_.name_of(call), "StreamWaitEvent")) {
        continue;
      }
      stream_waits_.push_back(call.start_ns);
      bool continues = false;
      for (; node < nodes_.size() && event(nodes_[node].event).start_ns < call.start_ns; ++node) {
        const ReplayCall& launch = recording_.program.calls[node];
        if (launch.kernel_count == 0) continue;
        const uint32_t kernel = launch.first_kernel + launch.kernel_count - 1;
        if (recording_.program.kernels[kernel].stream == main) continue;
        if (continues) pending.pop_back();
        pending.push_back(kernel);
        continues = true;
      }
      const uint32_t waiting = next_stream(node, call.track);
      if (waiting == kNoKernel) continue;
      if (waiting != main) {
        make_wait(waiting, call.start_ns, main, call.start_ns);
      } else if (taken < pending.size()) {
        wait_for(main, call.start_ns, pending[taken++]);
      }
    }
  }

  [[nodiscard]] uint32_t busiest_stream() const {
    const auto most =
        std::max_element(launches_of_.begin(), launches_of_.end(),
                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
    return static_cast<uint32_t>(most - launches_of_.begin());
  }

  // The stream of the next launch of that thread.
  [[nodiscard]] uint32_t next_stream(size_t node, uint32_t track) const {
    for (size_t at = node; at < nodes_.size() && at - node < kLookAhead; ++at) {
      if (nodes_[at].launched.empty() || event(nodes_[at].event).track != track) continue;
      return static_cast<uint32_t>(streams_.at(event(nodes_[at].launched.front()).track));
    }
    return kNoKernel;
  }

  // What each call that waits waits for.
  void find_host_waits() {
    std::unordered_map<int64_t, const formats::TraceWait*> waits;
    for (const formats::TraceWait& wait : trace_.waits) waits[wait.correlation] = &wait;
    std::unordered_map<uint32_t, uint32_t> last_launch;  // by thread
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      ReplayCall& call = recording_.program.calls[i];
      const TraceEvent& host = event(nodes_[i].event);
      if (call.kernel_count > 0)
        last_launch[host.track] = call.first_kernel + call.kernel_count - 1;
      if (call.kind != CallKind::wait) continue;
      const std::string_view name = trace_.name_of(host);
      call.waits_for_all = contains(name, "Device") || contains(name, "Ctx");
      const auto wait = waits.find(host.correlation);
      if (call.waits_for_all) continue;
      if (wait != waits.end() && wait->second->wait_on_stream >= 0) {
        const auto record = start_of_.find(wait->second->record_correlation);
        const uint32_t stream = find_stream(wait->second->wait_on_stream);
        if (stream < launches_of_.size()) {
          call.waits_for =
              last_on(stream, record == start_of_.end() ? host.start_ns : record->second);
        }
      } else if (const auto last = last_launch.find(host.track); last != last_launch.end()) {
        call.waits_for = last->second;
      }
    }
  }

  // Holds the waits so far against what was recorded, and finds those that no one wrote down.
  void explain_delays() {
    const timing::Program& program = recording_.program;
    std::vector<RanKernel> ran(program.kernels.size());
    for (uint32_t i = 0; i < ran.size(); ++i) {
      ran[i].stream = program.kernels[i].stream;
      ran[i].waits_for = program.kernels[i].waits_for;
      ran[i].is_wait_recorded = are_waits_recorded_;
      ran[i].launched_ns = links_.start_ns();
      ran[i].start_ns = std::max(event(kernel_events_[i]).start_ns, links_.start_ns());
      ran[i].end_ns = event(kernel_events_[i]).end_ns();
      ran[i].is_alone = i < program.earlier_count;
    }
    mark_launches(ran);
    std::vector<StreamState> streams(streams_.size());
    find_waits(ran, streams, links_.start_ns());
    for (uint32_t i = 0; i < ran.size(); ++i) {
      ReplayKernel& kernel = recording_.program.kernels[i];
      kernel.waits_for = ran[i].waits_for;
      kernel.waits_for_begin = ran[i].waits_for_begin;
      kernel.unseen_ns = ran[i].unseen_ns;
      recording_.unseen_ns += static_cast<double>(kernel.unseen_ns);
    }
    for (const StreamState& stream : streams) {
      recording_.program.backlog_ns.push_back(stream.busy_ns);
    }
  }

  // When each kernel was launched, and whether a graph or a wait came before it on its stream.
  void mark_launches(std::vector<RanKernel>& ran) const {
    std::vector<bool> is_behind_graph(streams_.size(), false);
    std::vector<int64_t> last_launch(streams_.size(), INT64_MIN);
    size_t wait = 0;
    int64_t all_awaited = INT64_MAX;
    for (size_t node = 0; node < nodes_.size(); ++node) {
      const ReplayCall& call = recording_.program.calls[node];
      const int64_t launched = event(nodes_[node].event).start_ns;
      if (call.waits_for_all) all_awaited = std::min(all_awaited, launched);
      while (wait < stream_waits_.size() && stream_waits_[wait] < launched) ++wait;
      const bool is_graph = call.kind == CallKind::launch_graph;
      for (uint32_t i = call.first_kernel; i < call.first_kernel + call.kernel_count; ++i) {
        const uint32_t stream = ran[i].stream;
        ran[i].launched_ns = launched;
        ran[i].is_alone = is_graph || is_behind_graph[stream];
        ran[i].is_behind_wait = wait > 0 && stream_waits_[wait - 1] > last_launch[stream];
        ran[i].is_behind_all = all_awaited < launched;
        is_behind_graph[stream] = is_graph;
      }
      for (uint32_t i = call.first_kernel; i < call.first_kernel + call.kernel_count; ++i) {
        last_launch[ran[i].stream] = launched;
      }
    }
  }

  // A wait before anything is known to be on the device is for work that the trace does not hold:
  // that took as long as it took.
  void find_outside_waits() {
    if (recording_.program.earlier_count > 0) return;
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      ReplayCall& call = recording_.program.calls[i];
      if (call.kernel_count > 0) return;
      if (call.waits_for == kNoKernel) call.cost_ns = event(nodes_[i].event).duration_ns;
    }
  }

  struct AllSamples {
    Samples launch, graph_launch, gap, graph_gap, wake, wait_cost;
  };

  void sample_kernels(AllSamples& samples) {
    std::vector<int64_t> free(streams_.size(), INT64_MIN);
    size_t at = recording_.program.earlier_count;
    for (size_t i = 0; i < at; ++i) {
      int64_t& end = free[recording_.program.kernels[i].stream];
      end = std::max(end, event(kernel_events_[i]).end_ns());
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const TraceEvent& call = event(nodes_[i].event);
      const bool is_graph = recording_.program.calls[i].kind == CallKind::launch_graph;
      for (size_t k = 0; k < nodes_[i].launched.size(); ++k, ++at) {
        const TraceEvent& kernel = event(nodes_[i].launched[k]);
        int64_t& end = free[recording_.program.kernels[at].stream];
        const size_t half = at * kHalves / kernel_events_.size();
        const ReplayKernel& made = recording_.program.kernels[at];
        if (made.waits_for == kNoKernel && made.unseen_ns == 0 && end != INT64_MIN) {
          const auto since = static_cast<double>(kernel.start_ns - end);
          if (is_graph && k > 0) {
            samples.graph_gap.halves[half].push_back(since);
          } else if (call.start_ns + kQueued < end) {
            samples.gap.halves[half].push_back(since);
          } else if (end < call.start_ns) {
            (is_graph ? samples.graph_launch : samples.launch)
                .halves[half]
                .push_back(static_cast<double>(kernel.start_ns - call.start_ns));
          }
        }
        end = std::max(end, kernel.end_ns());
      }
    }
  }

  void sample_waits(AllSamples& samples) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const ReplayCall& call = recording_.program.calls[i];
      if (call.kind != CallKind::wait && call.kind != CallKind::copy_and_wait) continue;
      uint32_t awaited = call.waits_for;
      if (call.kind == CallKind::copy_and_wait) awaited = call.first_kernel + call.kernel_count - 1;
      if (awaited == kNoKernel) continue;
      const TraceEvent& host = event(nodes_[i].event);
      const int64_t done = event(kernel_events_[awaited]).end_ns();
      const size_t half = size_t{awaited} * kHalves / kernel_events_.size();
      if (done > host.start_ns && done <= host.end_ns()) {
        samples.wake.halves[half].push_back(static_cast<double>(host.end_ns() - done));
      } else if (done <= host.start_ns) {
        samples.wait_cost.halves[half].push_back(static_cast<double>(host.duration_ns));
      }
    }
  }

  void measure_latencies() {
    AllSamples samples;
    sample_kernels(samples);
    sample_waits(samples);
    const Latencies& typical = trace_.is_rocm ? kRocmLatencies : kCudaLatencies;
    for (size_t half = 0; half < kHalves; ++half) {
      recording_.program.latencies.push_back(
          {samples.launch.for_half(half, typical.launch),
           samples.graph_launch.for_half(half, typical.graph_launch),
           samples.gap.for_half(half, typical.gap),
           samples.graph_gap.for_half(half, typical.graph_gap),
           samples.wake.for_half(half, typical.wake),
           samples.wait_cost.for_half(half, typical.wait_cost)});
    }
    for (size_t i = 0; i < kernel_events_.size(); ++i) {
      recording_.program.kernels[i].latencies =
          static_cast<uint32_t>(i * kHalves / kernel_events_.size());
    }
  }

  void find_end() {
    int64_t host_end = links_.end_ns();
    if (!links_.has_steps) {
      host_end = links_.start_ns();
      for (const TraceEvent& host : trace_.events) {
        if (!is_device(host.kind)) host_end = std::max(host_end, host.end_ns());
      }
    }
    uint32_t last = kNoCall;
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      if (end_of(i) <= host_end && (last == kNoCall || end_of(i) >= end_of(last))) last = i;
    }
    recording_.program.last_call = last;
    recording_.program.tail_ns = host_end - (last == kNoCall ? links_.start_ns() : end_of(last));
    int64_t end = host_end;
    for (const uint32_t kernel : kernel_events_) end = std::max(end, event(kernel).end_ns());
    recording_.measured_ns = static_cast<double>(end - links_.start_ns());
  }

  static constexpr int64_t kQueued = 15'000;  // launched so long before that it was there
  static constexpr size_t kLookAhead = 256;
  static constexpr size_t kMostStreams = 1024;  // no device has as many; it bounds the waits

  const Trace& trace_;
  const Links& links_;
  GroupIndex communication_;
  std::unordered_map<uint32_t, GroupIndex> group_of_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> kernel_events_;  // by index of the program's kernels
  std::map<uint32_t, size_t> streams_;   // by track
  std::map<uint32_t, std::vector<std::pair<int64_t, int64_t>>> busy_;
  std::vector<std::vector<std::pair<int64_t, uint32_t>>> launches_of_;  // by stream
  std::unordered_map<int64_t, int64_t> start_of_;                       // of calls, by correlation
  std::vector<int64_t> stream_waits_;  // begins of the calls that make one stream wait
  bool are_waits_recorded_ = false;    // by the profiler, with what waits for what
  Recording recording_;
};

}  // namespace

std::optional<Recording> record(const Trace& trace, const Links& links,
                                const std::vector<Work>& work, const OperatorRules& rules) {
  return Builder(trace, links, work, rules).build();
}

}  // namespace headroom::ops
