#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "ops/program_draft.h"
#include "ops/stream_waits.h"

namespace headroom::ops {
namespace {

using formats::TraceEvent;
using formats::TraceEventKind;
using timing::CallKind;
using timing::kNoKernel;
using timing::ReplayCall;
using timing::ReplayKernel;

class WaitFinder {
 public:
  explicit WaitFinder(ProgramDraft& run) : run_(run) {}

  void find() {
    index_streams();
    find_stream_waits();
    find_host_waits();
    explain_delays();
    find_outside_waits();
  }

 private:
  // The last kernel on a stream that was launched before `time`.
  [[nodiscard]] uint32_t last_on(uint32_t stream, int64_t time) const {
    const auto& launches = launches_of_[stream];
    const auto after =
        std::lower_bound(launches.begin(), launches.end(), std::pair<int64_t, uint32_t>(time, 0));
    return after == launches.begin() ? kNoKernel : std::prev(after)->second;
  }

  void find_stream_waits() {
    launches_of_.resize(run_.streams.size());
    for (uint32_t i = 0; i < run_.recording.program.earlier_count; ++i) {
      launches_of_[run_.recording.program.kernels[i].stream].emplace_back(run_.links.start_ns() - 1,
                                                                          i);
    }
    for (const ReplayCall& call : run_.recording.program.calls) {
      const auto node = static_cast<size_t>(&call - run_.recording.program.calls.data());
      for (uint32_t i = 0; i < call.kernel_count; ++i) {
        const uint32_t kernel = call.first_kernel + i;
        launches_of_[run_.recording.program.kernels[kernel].stream].emplace_back(
            run_.event(run_.calls[node].event).start_ns, kernel);
      }
    }
    for (uint32_t i = 0; i < run_.trace.events.size(); ++i) {
      if (run_.event(i).kind == TraceEventKind::call && run_.event(i).correlation != 0) {
        start_of_[run_.event(i).correlation] = run_.event(i).start_ns;
      }
    }
    for (const formats::TraceWait& wait : run_.trace.waits) {
      if (wait.stream < 0 || wait.wait_on_stream < 0) continue;
      are_waits_recorded_ = true;
      const auto start = start_of_.find(wait.correlation);
      const auto record = start_of_.find(wait.record_correlation);
      if (start == start_of_.end() || record == start_of_.end()) continue;
      make_wait(find_stream(wait.device, wait.stream), start->second,
                find_stream(wait.device, wait.wait_on_stream), record->second);
    }
    if (!are_waits_recorded_) guess_stream_waits();
  }

  // Streams of several devices may have one number; of a wait that says no device any is taken.
  [[nodiscard]] uint32_t find_stream(int64_t device, int64_t number) const {
    const auto found = stream_at_.find({device, number});
    return found == stream_at_.end() ? kNoKernel : found->second;
  }

  void index_streams() {
    for (const auto& [track, stream] : run_.streams) {
      const formats::TraceTrack& known = run_.trace.tracks[track];
      const auto number = whole_number(known.thread);
      if (!number) continue;
      stream_at_.emplace(std::pair(int64_t{-1}, *number), static_cast<uint32_t>(stream));
      if (const auto device = whole_number(known.process)) {
        stream_at_.emplace(std::pair(*device, *number), static_cast<uint32_t>(stream));
      }
    }
  }

  static std::optional<int64_t> whole_number(const std::string& words) {
    int64_t number = 0;
    const auto [end, fault] = std::from_chars(words.data(), words.data() + words.size(), number);
    if (fault != std::errc() || end != words.data() + words.size()) return std::nullopt;
    return number;
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
    uint32_t& waits_for = run_.recording.program.kernels[first->second].waits_for;
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
    for (uint32_t i = 0; i < run_.trace.events.size(); ++i) {
      const TraceEvent& call = run_.event(i);
      if (call.kind != TraceEventKind::call ||
          !contains(run_.trace.name_of(call), "StreamWaitEvent")) {
        continue;
      }
      stream_waits_.push_back(call.start_ns);
      bool continues = false;
      for (;
           node < run_.calls.size() && run_.event(run_.calls[node].event).start_ns < call.start_ns;
           ++node) {
        const ReplayCall& launch = run_.recording.program.calls[node];
        if (launch.kernel_count == 0) continue;
        const uint32_t kernel = launch.first_kernel + launch.kernel_count - 1;
        if (run_.recording.program.kernels[kernel].stream == main) continue;
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
    for (size_t at = node; at < run_.calls.size() && at - node < kLookAhead; ++at) {
      if (run_.calls[at].launched.empty() || run_.event(run_.calls[at].event).track != track)
        continue;
      return static_cast<uint32_t>(
          run_.streams.at(run_.event(run_.calls[at].launched.front()).track));
    }
    return kNoKernel;
  }

  // What each call that waits waits for.
  void find_host_waits() {
    std::unordered_map<int64_t, const formats::TraceWait*> waits;
    for (const formats::TraceWait& wait : run_.trace.waits) waits[wait.correlation] = &wait;
    std::unordered_map<uint32_t, uint32_t> last_launch;  // by thread
    for (uint32_t i = 0; i < run_.calls.size(); ++i) {
      ReplayCall& call = run_.recording.program.calls[i];
      const TraceEvent& host = run_.event(run_.calls[i].event);
      if (call.kernel_count > 0)
        last_launch[host.track] = call.first_kernel + call.kernel_count - 1;
      if (call.kind != CallKind::wait) continue;
      const std::string_view name = run_.trace.name_of(host);
      call.waits_for_all = contains(name, "Device") || contains(name, "Ctx");
      const auto wait = waits.find(host.correlation);
      if (call.waits_for_all) continue;
      if (wait != waits.end() && wait->second->wait_on_stream >= 0) {
        const auto record = start_of_.find(wait->second->record_correlation);
        const uint32_t stream = find_stream(wait->second->device, wait->second->wait_on_stream);
        if (stream < launches_of_.size()) {
          call.waits_for =
              last_on(stream, record == start_of_.end() ? host.start_ns : record->second);
        }
      } else if (const auto last = last_launch.find(host.track); last != last_launch.end()) {
        call.waits_for = last->second;
      }
    }
  }

  // Holds the waits so far against what was recorded, and finds those that no one wrote down. A
  // host that has waited for the whole device left nothing on it.
  void explain_delays() {
    const timing::Program& program = run_.recording.program;
    std::vector<RanKernel> ran(program.kernels.size());
    for (uint32_t i = 0; i < ran.size(); ++i) {
      ran[i].stream = program.kernels[i].stream;
      ran[i].waits_for = program.kernels[i].waits_for;
      ran[i].is_wait_recorded = are_waits_recorded_;
      ran[i].launched_ns = run_.links.start_ns();
      ran[i].start_ns =
          std::max(run_.event(run_.recording.events[i]).start_ns, run_.links.start_ns());
      ran[i].end_ns = run_.event(run_.recording.events[i]).end_ns();
      ran[i].is_alone = i < program.earlier_count;
    }
    mark_launches(ran);
    ops::find_waits(ran, run_.streams.size());
    for (uint32_t i = 0; i < ran.size(); ++i) {
      ReplayKernel& kernel = run_.recording.program.kernels[i];
      kernel.waits_for = ran[i].waits_for;
      kernel.waits_for_begin = ran[i].waits_for_begin;
      kernel.unseen_ns = ran[i].unseen_ns;
      run_.recording.unseen_ns += static_cast<double>(kernel.unseen_ns);
    }
  }

  // When each kernel was launched, and whether a graph or a wait came before it on its stream.
  void mark_launches(std::vector<RanKernel>& ran) const {
    std::vector<bool> is_behind_graph(run_.streams.size(), false);
    std::vector<int64_t> last_launch(run_.streams.size(), INT64_MIN);
    size_t wait = 0;
    int64_t all_awaited = INT64_MAX;
    for (size_t node = 0; node < run_.calls.size(); ++node) {
      const ReplayCall& call = run_.recording.program.calls[node];
      const int64_t launched = run_.event(run_.calls[node].event).start_ns;
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
    if (run_.recording.program.earlier_count > 0) return;
    for (uint32_t i = 0; i < run_.calls.size(); ++i) {
      ReplayCall& call = run_.recording.program.calls[i];
      if (call.kernel_count > 0) return;
      if (call.waits_for != kNoKernel) continue;
      call.cost_ns = run_.event(run_.calls[i].event).duration_ns;
      run_.recording.unseen_ns += static_cast<double>(call.cost_ns);
    }
  }

  static constexpr size_t kLookAhead = 256;

  ProgramDraft& run_;
  std::map<std::pair<int64_t, int64_t>, uint32_t> stream_at_;  // by numbers of device and stream
  std::vector<std::vector<std::pair<int64_t, uint32_t>>> launches_of_;  // by stream
  std::unordered_map<int64_t, int64_t> start_of_;                       // of calls, by correlation
  std::vector<int64_t> stream_waits_;  // begins of the calls that make one stream wait
  bool are_waits_recorded_ = false;    // by the profiler, with what waits for what
};

}  // namespace

void find_waits(ProgramDraft& run) { WaitFinder(run).find(); }

}  // namespace headroom::ops
