// OpsAnswer: where the time of a trace goes, as plain values; report/ makes text, JSON and a page
// of it.
//
// Field names are the JSON keys. Times are milliseconds over all steps of the trace; shares are
// percent of the total beside them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/roofline.h"

namespace headroom::ops {

struct GroupShare {
  std::string name;   // "gemm"
  std::string title;  // "GEMM"
  double ms = 0;
  double pct = 0;
};

// Disjoint groups that sum to the total; those without time are there too.
struct Accounting {
  double total_ms = 0;
  std::vector<GroupShare> groups;
};

struct IdleTime {
  double ms = 0;
  double host_ms = 0;     // what came next was not launched yet
  double launch_ms = 0;   // it was, and had not begun
  double unknown_ms = 0;  // when it was launched, or what held it up, is not in the trace
};

struct OperatorTime {
  std::string name;  // of the operator, or of the kernel
  std::string group;
  int64_t count = 0;  // operators that put work on the device, or kernels
  double kernel_ms = 0;
  double pct = 0;  // of the kernel time
};

struct KernelRow {
  std::string name;
  std::string operation;  // the innermost operator, "" where none is known
  std::string group;
  std::string name_group;  // what its name alone would say
  int64_t count = 0;
  double kernel_ms = 0;
  double pct = 0;
};

// What Nsight Compute counted of a kernel, averaged over its launches there (counters.h).
struct CounterValue {
  std::string name;
  std::string unit;
  double mean = 0;
};

struct CounterRow {
  std::string kernel;
  std::string group;
  int64_t count = 0;     // in the trace
  double kernel_ms = 0;  // in the trace
  double pct = 0;
  int64_t launches = 0;  // that were counted
  std::vector<CounterValue> values;
};

struct KernelCounters {
  std::vector<CounterRow> rows;  // the longest in the trace first
  double covered_pct = 0;        // of the kernel time
  int64_t unmatched_launches = 0;
};

struct StepTime {
  std::string name;
  double wall_ms = 0;
  double kernel_ms = 0;   // of what this step launched
  double backlog_ms = 0;  // of earlier work that still ran in it
};

struct Coverage {
  double unlinked_pct_of_kernel_time = 0;
  double unclassified_pct_of_kernel_time = 0;
  double in_graphs_pct_of_kernel_time = 0;
  // Of the kernels with an operator: the share whose name alone gives the same group.
  std::optional<double> names_agree_pct_of_kernel_time;
};

// How the replay of the unchanged run compares with the run: the trust in the horizon.
struct ReplayError {
  double measured_ms = 0;
  double replayed_ms = 0;
  double error_pct = 0;  // (replayed - measured) / (measured - unseen)
  // In which the device did, or the host waited for, what was not recorded: no change touches it.
  double unseen_ms = 0;
};

struct HorizonChange {
  std::string change;  // "gemm_2x"
  std::string title;   // "GEMM 2x faster"
  double speedup = 0;
  // With the latencies between host and device halved and doubled, widened by the replay's error.
  double speedup_low = 0;
  double speedup_high = 0;
  double amdahl_speedup = 0;  // on kernel time; 0: without bound
};

// What bounds the run: idle where why was not recorded, unseen where the profiler has nothing of
// what the device did or the host waited for, not_recorded where it has no kernel at all, no_starts
// where the file does not say when anything ran.
enum class Bound {
  nothing,
  host,
  idle,
  unseen,
  not_recorded,
  no_starts,
  communication,
  gemm_attention,
  non_gemm,
  unclassified,
  mixed
};

struct TraceFacts {
  std::string file;
  std::string format;
  std::string device;  // "NVIDIA H100 80GB HBM3", or "CPU"
  int64_t rank = -1;
  int64_t events = 0;
  int64_t kernels = 0;  // launched by the steps
  bool has_device = false;
  bool lacks_kernels = false;  // of a run on a device, and nothing of what that did
  // Cut off before it could say whether there was a device; nothing shows one.
  bool lacks_devices = false;
  // Of a file that was cut off: kernel launches, and those whose kernels are lost.
  int64_t launches = 0;
  int64_t lost_launches = 0;
  int64_t devices = 0;  // that kernels ran on
  bool has_steps = false;
  bool has_starts = true;   // else there are durations alone: no wall time, no steps, no horizon
  bool is_partial = false;  // the file was cut, or had events that could not be read
  bool is_cut = false;
  std::vector<std::string> faults;
};

struct OpsAnswer {
  TraceFacts trace;
  std::vector<StepTime> steps;
  Bound bound = Bound::nothing;
  double bound_pct = 0;  // of the wall time

  Accounting kernel_time;
  Accounting wall_time;  // with "idle"; empty where the trace has no starts
  IdleTime idle;
  double communication_hidden_ms = 0;
  double backlog_ms = 0;
  double overrun_ms =
      0;  // behind the steps' end, until the device was done with what they launched
  Accounting nongemm_bench;        // the paper's formula, our groups
  Accounting nongemm_bench_paper;  // the paper's formula, its own groups and "missed"
  Coverage coverage;
  std::optional<ReplayError> replay;         // nothing where there is nothing to replay
  std::vector<HorizonChange> horizon;        // the most speedup first
  std::optional<OperatorRoofline> roofline;  // where the device's limits are known
  std::vector<OperatorTime> operators;       // the longest first
  std::vector<KernelRow> kernels;            // the same
  std::optional<KernelCounters> counters;    // where a file of them was given
  std::vector<std::string> notes;
};

}  // namespace headroom::ops
