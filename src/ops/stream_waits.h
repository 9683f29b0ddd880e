// What kernels waited for, where no one recorded it.
//
// Profilers before 2024 name neither the stream nor the event of a cudaStreamWaitEvent, and none
// records a graph's kernels always and in full. What is left is the order in which things happened:
//
//   1. a kernel that began before another had ended did not wait for that one: a guess that the
//      recording contradicts is dropped;
//   2. a kernel that began long after its launch and after all before it on its stream, and just
//      when a kernel of another stream, launched earlier, ended, waited for that one;
//   3. the same where the other stream had something unseen until just then: it waited for that;
//   4. nothing on the host delays what is in a graph: a long stretch before a graph's kernel, or
//      before the kernel behind a graph, in which its stream shows nothing and which none of the
//      above explains, is work of the graph that was not recorded. It stays as long as it was;
//   5. so does the first kernel of a stream that began long after its launch, for work from before
//      the recording or for its code to be loaded, unless the host had waited for all that was on
//      the device. What was before its launch is the host's.
//
// What comes out are edges and unseen stretches, no times of the device. Sorts, else linear; pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "timing/host_replay.h"

namespace headroom::ops {

// A kernel as it was recorded, in order of launch.
struct RanKernel {
  uint32_t stream = 0;
  int64_t launched_ns = 0;  // begin of its call
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  bool is_alone = false;          // no host delays it: in a graph, the first behind one, earlier
  bool is_behind_wait = false;    // a wait between streams was asked for since the launch before
  bool is_behind_all = false;     // the host had waited for the whole device before its launch
  bool is_wait_recorded = false;  // `waits_for` is no guess
  uint32_t waits_for = timing::kNoKernel;
  bool waits_for_begin = false;
  int64_t unseen_ns = 0;
};

// No launch takes so long to reach the device: a longer delay has a reason.
inline constexpr int64_t kLongWait = 100'000;

// REQUIRES: streams below `streams`.
void find_waits(std::vector<RanKernel>& kernels, size_t streams);

}  // namespace headroom::ops
