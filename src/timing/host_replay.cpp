#include "timing/host_replay.h"

#include <algorithm>

#include "base/check.h"

namespace headroom::timing {
namespace {

class Simulation {
 public:
  Simulation(const Program& program, const ReplayChange& change)
      : program_(program),
        change_(change),
        call_ends_(program.calls.size(), 0.0),
        kernel_begins_(program.kernels.size(), 0.0),
        kernel_ends_(program.kernels.size(), 0.0),
        stream_free_(program.streams, 0.0) {}

  ProgramTime run() {
    HEADROOM_CHECK(program_.earlier_count <= program_.kernels.size(), "earlier kernels of nothing");
    for (uint32_t i = 0; i < program_.earlier_count; ++i) run_kernel(i, 0.0, false);
    for (uint32_t i = 0; i < program_.calls.size(); ++i) {
      call_ends_[i] = run_call(program_.calls[i], i);
    }
    ProgramTime replayed;
    replayed.host_ns = end_of(program_.last_call) + host_time(program_.tail_ns);
    for (const double end : stream_free_) replayed.device_ns = std::max(replayed.device_ns, end);
    replayed.total_ns = std::max(replayed.host_ns, replayed.device_ns);
    return replayed;
  }

 private:
  [[nodiscard]] double end_of(uint32_t call) const {
    return call == kNoCall ? 0.0 : call_ends_[call];
  }
  [[nodiscard]] double host_time(int64_t ns) const {
    return static_cast<double>(ns) * change_.host_factor;
  }
  // The time between the call before and this one; none where one graph holds both.
  [[nodiscard]] double gap_of(const ReplayCall& call) const {
    const bool begins_anew = call.after == kNoCall ||
                             program_.calls[call.after].kind == CallKind::wait ||
                             program_.calls[call.after].kind == CallKind::copy_and_wait;
    return change_.in_graph && !begins_anew ? 0.0 : host_time(call.gap_ns);
  }
  [[nodiscard]] double added_to(uint32_t call) const {
    const bool is_known = call < change_.call_added_ns.size() && !change_.in_graph;
    return is_known ? change_.call_added_ns[call] * change_.host_factor : 0.0;
  }
  [[nodiscard]] double cost_of(const ReplayCall& call) const {
    return change_.in_graph ? 0.0 : host_time(call.cost_ns);
  }

  double run_call(const ReplayCall& call, uint32_t index) {
    HEADROOM_CHECK(call.first_kernel + call.kernel_count <= program_.kernels.size(),
                   "a call of kernels that are not there");
    const bool is_removed =
        index < change_.is_call_removed.size() && change_.is_call_removed[index];
    const double start = end_of(call.after) + (is_removed ? 0.0 : gap_of(call));
    const bool is_graph = call.kind == CallKind::launch_graph || change_.in_graph;
    for (uint32_t i = 0; i < call.kernel_count; ++i) {
      const uint32_t kernel = call.first_kernel + i;
      const Latencies& latencies = latencies_of(kernel);
      run_kernel(kernel, start + (is_graph ? latencies.graph_launch : latencies.launch),
                 is_graph && i > 0);
    }
    if (call.kind == CallKind::launch || call.kind == CallKind::launch_graph) {
      return start + (is_removed ? 0.0 : cost_of(call)) + added_to(index);
    }
    if (call.cost_ns > 0) return start + static_cast<double>(call.cost_ns);
    if (call.waits_for_all) return wait_for_all(start);
    const uint32_t awaited = call.kind == CallKind::copy_and_wait && call.kernel_count > 0
                                 ? call.first_kernel + call.kernel_count - 1
                                 : call.waits_for;
    if (awaited == kNoKernel) return start + program_.latencies[0].wait_cost * change_.host_factor;
    const Latencies& latencies = latencies_of(awaited);
    return std::max(start + latencies.wait_cost * change_.host_factor,
                    kernel_ends_[awaited] + latencies.wake);
  }

  [[nodiscard]] double wait_for_all(double start) const {
    double end = start + program_.latencies[0].wait_cost * change_.host_factor;
    for (const double free : stream_free_) {
      if (free > 0) end = std::max(end, free + program_.latencies[0].wake);
    }
    return end;
  }

  [[nodiscard]] const Latencies& latencies_of(uint32_t kernel) const {
    return program_.latencies[program_.kernels[kernel].latencies];
  }

  // `launched`: when it has reached the device.
  void run_kernel(uint32_t index, double launched, bool is_within_graph) {
    const ReplayKernel& kernel = program_.kernels[index];
    const Latencies& latencies = latencies_of(index);
    double& free = stream_free_[kernel.stream];
    const double gap = is_within_graph ? latencies.graph_gap : latencies.gap;
    double start = std::max(launched, free > 0 ? free + gap : 0.0);
    if (kernel.waits_for != kNoKernel) {
      const std::vector<double>& times = kernel.waits_for_begin ? kernel_begins_ : kernel_ends_;
      start = std::max(start, times[kernel.waits_for] + latencies.gap);
    }
    start += static_cast<double>(kernel.unseen_ns);
    const bool is_hidden = kernel.is_communication && change_.hides_communication;
    kernel_begins_[index] = start;
    kernel_ends_[index] = start + (is_hidden ? 0.0 : duration_of(index));
    free = std::max(free, kernel_ends_[index]);
  }

  [[nodiscard]] double duration_of(uint32_t index) const {
    const ReplayKernel& kernel = program_.kernels[index];
    const double by_group =
        kernel.group < change_.group_factors.size() ? change_.group_factors[kernel.group] : 1.0;
    const double own = index < change_.kernel_factors.size() ? change_.kernel_factors[index] : 1.0;
    return static_cast<double>(kernel.duration_ns) * by_group * own;
  }

  const Program& program_;
  const ReplayChange& change_;
  std::vector<double> call_ends_;
  std::vector<double> kernel_begins_;
  std::vector<double> kernel_ends_;
  std::vector<double> stream_free_;
};

}  // namespace

ProgramTime simulate(const Program& program, const ReplayChange& change) {
  HEADROOM_CHECK(!program.latencies.empty(), "a program without latencies");
  return Simulation(program, change).run();
}

}  // namespace headroom::timing
