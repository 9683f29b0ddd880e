#include "ops/notes.h"

#include <string>

#include "ops/bound.h"
#include "text/number.h"

namespace headroom::ops {
namespace {

using text::formatted;

constexpr double kNsPerMs = 1e6;
constexpr double kUsPerMs = 1e3;

std::string share(double part, double whole) {
  return formatted("%.1f %%", whole > 0 ? 100 * part / whole : 0);
}

void add_durations_alone(OpsAnswer& answer) {
  answer.notes.emplace_back(
      "this file has durations, and not when anything began: wall time, idling, steps, what "
      "bounds the run and what a change would give are not in it, and all of it counts as one; "
      "the profiler's trace of the same run has them");
  const double most_ms = static_cast<double>(answer.trace.kernels) / kUsPerMs;
  answer.notes.push_back(
      "its durations are whole microseconds, cut: the kernel time may be up to " +
      formatted("%.3f ms", most_ms) + " more");
}

// Of a run without a device, or of one of which nothing was recorded.
void add_no_device(const formats::Trace& trace, OpsAnswer& answer) {
  answer.notes.emplace_back(
      "no device in this trace: an operator's own time on the CPU counts as kernel time");
  if (answer.trace.lacks_kernels) {
    answer.notes.emplace_back(
        answer.trace.lacks_devices
            ? "the file was cut off before it could name a device: if the run used one, this is "
              "its host's part alone"
        : trace.is_cut ? "kernels come last in the file: it was cut off before them"
                       : "calls into a device's runtime were recorded, and no kernel: record with "
                         "ProfilerActivity.CUDA");
  } else if (!trace.devices.empty()) {
    answer.notes.push_back("the machine has " + trace.devices.front().name +
                           ", of which nothing was recorded: if the run used it, this is its "
                           "host's part alone");
  }
}

void add_what_the_file_lacks(const RecordedRun& run, OpsAnswer& answer) {
  if (!run.trace.has_starts) {
    add_durations_alone(answer);
  } else if (!run.links.has_steps) {
    answer.notes.emplace_back("the trace names no steps (ProfilerStep#N): all of it counts as one");
  }
  if (!run.links.has_device) add_no_device(run.trace, answer);
  if (lacks_many_kernels(answer.trace)) {
    answer.notes.push_back("the file was cut off before " +
                           std::to_string(answer.trace.lost_launches) + " of " +
                           std::to_string(answer.trace.launches) +
                           " launches have their kernels: where those ran looks idle");
  }
  if (answer.trace.devices > 1) {
    answer.notes.push_back(
        "kernels ran on " + std::to_string(answer.trace.devices) +
        " devices: idle is where none of them worked, and limits are those of the first");
  }
  if (run.trace.has_stacks) {
    answer.notes.emplace_back(
        "Python stacks were recorded, which slows the host down: idle time is less without them");
  }
}

// Some clocks of a device run apart from the host's; a kernel never begins before its launch.
void add_clocks(const KernelTime& kernels, OpsAnswer& answer) {
  constexpr int64_t kMost = 100;  // one in a hundred changes nothing
  if (kernels.too_early * kMost <= kernels.from_calls) return;
  answer.notes.push_back(
      std::to_string(kernels.too_early) + " of " + std::to_string(kernels.from_calls) +
      " kernels begin before the calls that launch them: the clocks of host and device differ in "
      "this file, so that idling, what bounds the run and the horizon are not to be trusted; "
      "kernel time is");
}

// Work that is in one of the accountings and not in the other.
void add_both_ends(const KernelTime& kernels, OpsAnswer& answer) {
  const double wall_ns = answer.wall_time.total_ms * kNsPerMs;
  if (kernels.backlog_ns > 0) {
    answer.notes.push_back("work launched before the steps still ran in them (" +
                           share(kernels.backlog_ns, wall_ns) +
                           " of the wall time): it is in the wall time, not in the kernel time");
  }
  constexpr double kMuch = 0.01;
  if (kernels.overrun_ns > kMuch * wall_ns) {
    answer.notes.push_back("the device went on for " +
                           formatted("%.4g ms", kernels.overrun_ns / kNsPerMs) +
                           " behind the steps with what they launched: that is in the kernel time, "
                           "not in the wall time");
  }
}

}  // namespace

void add_notes(const RecordedRun& run, const KernelTime& kernels, OpsAnswer& answer) {
  add_what_the_file_lacks(run, answer);
  if (run.trace.has_starts) {
    add_clocks(kernels, answer);
    add_both_ends(kernels, answer);
  }
  if (kernels.graph_ns > 0 && run.trace.captured.empty()) {
    answer.notes.push_back(share(kernels.graph_ns, answer.kernel_time.total_ms * kNsPerMs) +
                           " of the kernel time is in graphs, where no operator is known: sorted "
                           "by kernel name (--capture FILE, a trace of the capture, knows them)");
  }
  constexpr double kMuchUnseenPct = 1;
  if (const double unseen = unseen_pct(answer); unseen > kMuchUnseenPct) {
    answer.notes.push_back("for " + formatted("%.1f %%", unseen) +
                           " of the time the device did, or the host waited for, what the profiler "
                           "did not record: no change of the horizon touches that");
  }
}

}  // namespace headroom::ops
