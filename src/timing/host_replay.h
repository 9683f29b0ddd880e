// Host-aware replay: what a step takes when some of it is made faster.
//
// A recorded step as a program: what host threads do in order (with the time between, which is
// their own), what they put on the streams of a device, and where they wait for it. simulate() runs
// it: when each kernel begins and each wait ends is what comes out, never what goes in. So the same
// program with shorter kernels, or with a faster host, says what that change would really give,
// where Amdahl's law on kernel time forgets the host.
//
// The program holds no time at which the device began or ended anything, and of a call that waits
// no duration but where what it waited for is not in it: only a builder knows the recording
// (ops/program.h).
//
//   1. calls are in the order of the recording; a call follows an earlier one (`after`), its own
//      thread's last or the one that woke its thread;
//   2. kernels are in the order of their launch, those that were there before the first, and a
//      stream runs them in that order;
//   3. a kernel waits for kernels that were launched before it.
//
// Linear in calls, kernels and waits; pure, thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::timing {

inline constexpr uint32_t kNoCall = UINT32_MAX;
inline constexpr uint32_t kNoKernel = UINT32_MAX;

enum class CallKind : uint8_t {
  launch,        // puts kernels on a stream and goes on
  launch_graph,  // puts all kernels of a graph there
  wait,          // goes on when `waits_for` is done, at once where that is kNoKernel
  copy_and_wait  // puts a copy on a stream and goes on when it is done
};

struct ReplayCall {
  CallKind kind = CallKind::launch;
  uint32_t after = kNoCall;  // kNoCall: the begin of the step
  int64_t gap_ns = 0;        // host time between the end of `after` and this call
  // Of the call itself. Of a call that waits it is 0, as Latencies know, but where it waited for
  // work of which nothing else is known.
  int64_t cost_ns = 0;
  uint32_t first_kernel = 0;
  uint32_t kernel_count = 0;
  uint32_t waits_for = kNoKernel;  // and all before it on its stream
  bool waits_for_all = false;      // all that was launched, on every stream
};

struct ReplayKernel {
  uint32_t stream = 0;
  uint32_t latencies = 0;  // which of Program::latencies holds for it
  uint8_t group = 0;       // for changes, see ReplayChange
  bool is_communication = false;
  int64_t duration_ns = 0;
  int64_t unseen_ns = 0;           // before it on its stream: work that was not recorded
  uint32_t waits_for = kNoKernel;  // of another stream, and all before it there
  bool waits_for_begin = false;    // for what came before that kernel's begin, not for its end
};

// What lies between host and device, in nanoseconds.
struct Latencies {
  double launch = 0;        // begin of the call to begin of the kernel on an idle stream
  double graph_launch = 0;  // the same for a graph
  double gap = 0;           // between kernels that are both there
  double graph_gap = 0;     // the same within a graph
  double wake = 0;          // end of the kernel to the end of the call that waits for it
  double wait_cost = 0;     // of a wait for what is done already
};

struct Program {
  std::vector<ReplayCall> calls;
  std::vector<ReplayKernel> kernels;
  std::vector<Latencies> latencies;
  uint32_t streams = 0;
  uint32_t earlier_count = 0;    // kernels that no call launches: there from the begin
  uint32_t last_call = kNoCall;  // that the end of the step follows
  int64_t tail_ns = 0;           // host time between the two
};

// 1 everywhere is the step as it was. Factors multiply times, so 0.5 is twice as fast.
struct ReplayChange {
  std::vector<double> group_factors;  // by ReplayKernel::group; what is missing is 1
  double host_factor = 1;             // of gaps and of calls
  // All launches between two waits as one graph: only what the host does after a wait, before it
  // launches again, is left of its time.
  bool in_graph = false;
  bool hides_communication = false;  // communication takes no time of its own
  // Of single ones, by their place in the program; none where they are empty.
  std::vector<double> kernel_factors;
  std::vector<bool> is_call_removed;  // it takes the host no time, and what came before it neither
  std::vector<double> call_added_ns;  // that the host takes longer, before host_factor
};

struct ProgramTime {
  double total_ns = 0;  // until host and device are done
  double host_ns = 0;
  double device_ns = 0;
};

// REQUIRES: indices in range, and `after`, `waits_for` earlier than what follows them.
ProgramTime simulate(const Program& program, const ReplayChange& change = {});

}  // namespace headroom::timing
