#include <algorithm>

#include "base/median.h"
#include "ops/program_draft.h"

namespace headroom::ops {
namespace {

using formats::TraceEvent;
using timing::CallKind;
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
constexpr int64_t kQueued = 15'000;  // launched so long before that it was there

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

struct AllSamples {
  Samples launch, graph_launch, gap, graph_gap, wake, wait_cost;
};

void sample_kernels(const ProgramDraft& run, AllSamples& samples) {
  std::vector<int64_t> free(run.streams.size(), INT64_MIN);
  size_t at = run.recording.program.earlier_count;
  for (size_t i = 0; i < at; ++i) {
    int64_t& end = free[run.recording.program.kernels[i].stream];
    end = std::max(end, run.event(run.recording.events[i]).end_ns());
  }
  for (size_t i = 0; i < run.calls.size(); ++i) {
    const TraceEvent& call = run.event(run.calls[i].event);
    const bool is_graph = run.recording.program.calls[i].kind == CallKind::launch_graph;
    for (size_t k = 0; k < run.calls[i].launched.size(); ++k, ++at) {
      const TraceEvent& kernel = run.event(run.calls[i].launched[k]);
      int64_t& end = free[run.recording.program.kernels[at].stream];
      const size_t half = at * kHalves / run.recording.events.size();
      const ReplayKernel& made = run.recording.program.kernels[at];
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

void sample_waits(const ProgramDraft& run, AllSamples& samples) {
  for (size_t i = 0; i < run.calls.size(); ++i) {
    const ReplayCall& call = run.recording.program.calls[i];
    if (call.kind != CallKind::wait && call.kind != CallKind::copy_and_wait) continue;
    uint32_t awaited = call.waits_for;
    if (call.kind == CallKind::copy_and_wait) awaited = call.first_kernel + call.kernel_count - 1;
    if (awaited == kNoKernel) continue;
    const TraceEvent& host = run.event(run.calls[i].event);
    const int64_t done = run.event(run.recording.events[awaited]).end_ns();
    const size_t half = size_t{awaited} * kHalves / run.recording.events.size();
    if (done > host.start_ns && done <= host.end_ns()) {
      samples.wake.halves[half].push_back(static_cast<double>(host.end_ns() - done));
    } else if (done <= host.start_ns) {
      samples.wait_cost.halves[half].push_back(static_cast<double>(host.duration_ns));
    }
  }
}

}  // namespace

void measure_latencies(ProgramDraft& run) {
  AllSamples samples;
  sample_kernels(run, samples);
  sample_waits(run, samples);
  const Latencies& typical = run.trace.is_rocm ? kRocmLatencies : kCudaLatencies;
  for (size_t half = 0; half < kHalves; ++half) {
    run.recording.program.latencies.push_back(
        {samples.launch.for_half(half, typical.launch),
         samples.graph_launch.for_half(half, typical.graph_launch),
         samples.gap.for_half(half, typical.gap),
         samples.graph_gap.for_half(half, typical.graph_gap),
         samples.wake.for_half(half, typical.wake),
         samples.wait_cost.for_half(half, typical.wait_cost)});
  }
  for (size_t i = 0; i < run.recording.events.size(); ++i) {
    run.recording.program.kernels[i].latencies =
        static_cast<uint32_t>(i * kHalves / run.recording.events.size());
  }
}

}  // namespace headroom::ops
