// Three accountings of the same run, side by side, each with disjoint groups that sum to the whole.
//
//   kernel time    the durations of what the steps launched, added up: what the device was busy
//                  with, whoever waited for it;
//   wall time      each moment of the steps given to what ran in it. Where several kernels run at
//                  once they share the moment; communication counts only where nothing hides it;
//                  where nothing runs the device is idle, and why is told apart;
//   NonGEMM Bench  the formula of that paper's code: for each operator that no other operator
//                  called, its time on the host plus the time of its kernels on the device.
//
// Times are nanoseconds; wall time has fractions where moments are shared. Linear but for a sort.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/links.h"
#include "ops/work.h"

namespace headroom::ops {

// Nanoseconds by group, as many as OperatorRules::groups().
using GroupTimes = std::vector<double>;

struct KernelTime {
  GroupTimes groups;
  double unlinked_ns = 0;     // no operator is known
  double graph_ns = 0;        // launched by a graph, many in one call
  double linked_ns = 0;       // an operator is known, and no graph between
  double name_agrees_ns = 0;  // of linked_ns, where the name alone gives the same group
  double backlog_ns = 0;      // ran inside the steps, launched before them
  double overrun_ns = 0;      // until all was done that they launched, behind their end
  int64_t from_calls = 0;     // whose launch is in the trace; of them
  int64_t too_early = 0;      // began before it, so the clocks differ
  int64_t launched = 0;       // kernels, copies and fills
};
KernelTime kernel_time(const formats::Trace& trace, const std::vector<Work>& work,
                       const Links& links, size_t groups);

// The most that a launch may take from the end of its call to its kernel, with nothing before it.
// Typical are 6.5 to 20 us (program_latencies.cpp): fifty times as much is held up by something
// that the trace does not have, another rank or work that was not recorded.
inline constexpr double kMostLaunchNs = 1e6;

// Whose a stretch is in which nothing ran, by when the call was over that launched what ended it.
struct IdleParts {
  double host_ns = 0;     // until then
  double launch_ns = 0;   // behind it; one of these two is 0
  double unknown_ns = 0;  // the same, where no launch takes so long
};
// `called_ns`: from the begin of the stretch, whose length is `length_ns`; below 0: before it.
IdleParts idle_parts(double length_ns, double called_ns);

struct WallTime {
  GroupTimes groups;
  double idle_ns = 0;                  // nothing ran; of it:
  double idle_host_ns = 0;             //   the host had not launched what came next
  double idle_launch_ns = 0;           //   it was launched, and had not begun
  double idle_unknown_ns = 0;          //   when it was launched, or what held it up, is not there
  double communication_hidden_ns = 0;  // ran beside other kernels
  double total_ns = 0;
  std::vector<double> exposed_ns;  // by piece of work: its part of `groups`
};
WallTime wall_time(const formats::Trace& trace, const std::vector<Work>& work, const Links& links,
                   const OperatorRules& rules);

struct PaperTime {
  GroupTimes groups;
  std::vector<double> paper_groups;  // as OperatorRules::paper_groups()
  double total_ns = 0;
};
PaperTime paper_time(const formats::Trace& trace, const std::vector<Work>& work, const Links& links,
                     Classifier& classifier);

}  // namespace headroom::ops
