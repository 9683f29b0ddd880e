// StepTime: what a training step takes on one of the devices that it is divided among, from the
// step's own operators and collectives, priced by the laws (timing_model.h).
//
// The device has one stream that computes, and for each kind of peers one that sends. Launches
// follow one another on the first; collectives among the same peers, in the order in which they
// begin, on theirs, each after what it reads is computed. Where the engine waits for one
// (OperatorCall::awaits) the first stream does too; what it stands still is exposed. A gather of
// parameters in forward or backward reads nothing that the pass computes: it begins as soon as the
// gather before it was taken out of its buffer, so that one unit's gather runs beside the computing
// of the unit before.
//
// Within a step kernels take longer than alone (InStep): what that comes to was learned from runs
// of one kind of device, so on others the interval is wide. Backward kernels, and gathers and
// reduce-scatters (half an all-reduce of the whole, as in a ring), have no laws of their own: the
// figure is extrapolated; its interval has the laws' own held-out errors and that of the step as a
// whole, or that of whole steps alone where a residual was learned from such (WholeSteps). The host
// launches beside all that (step_replay.h). Pure; linear in the launches, like ones priced once:
// some 0.2 ms for a 7B model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/device.h"
#include "step/trace.h"
#include "timing/operator_work.h"
#include "timing/step_replay.h"
#include "timing/timing_model.h"

namespace headroom::timing {

// The residuals of data/timing.json that are added: of PyTorch's eager mode, and of Megatron-LM.
inline constexpr std::string_view kEagerTraining = "eager-training";
inline constexpr std::string_view kMegatronTraining = "megatron-training";

// Where the devices are. Ranks of a tensor-parallel group are neighbours; those that a state is
// divided among are as far apart as such a group is large, and replicas of a state as far as both.
struct Cluster {
  int64_t devices_per_node = 8;
  BytesPerSecond network;  // of one device's share of a node's links to others; 0: one node
};

// Of collectives that do not say their group themselves (OperatorCall::group).
struct Division {
  int64_t ranks = 1;          // gather and reduce-scatter; reduce too where there are no replicas
  int64_t replicas = 1;       // reduce what is left
  int64_t tensor_ranks = 1;   // that each product is divided among, neighbours
  int64_t context_ranks = 1;  // that share a sequence, in a ring
  int64_t stages_apart = 1;   // devices from a stage of a pipeline to the next
  int64_t expert_ranks = 1;   // that share experts out, neighbours
};

struct StepTime {
  // 90 % interval.
  double seconds_low = 0;
  double seconds = 0;
  double seconds_high = 0;
  double compute_seconds = 0;        // launches alone
  double communication_seconds = 0;  // collectives alone
  double exposed_seconds = 0;        // of those, what computing stands still for
  double host_seconds = 0;           // that the step takes longer for what the host has to do
  double launching_seconds = 0;      // that the host takes for the launches, whoever waits for it
  // Of those, what is waited for as soon as it begins, among ranks that share a product or a
  // sequence: in any schedule of the same calls computing stands still for it.
  double blocking_seconds = 0;
  double repeat_seconds = 0;    // that each repetition adds, of very many
  double roofline_seconds = 0;  // launches at the device's peaks
  int64_t launches = 0;
  int64_t collectives = 0;
  double sent_bytes = 0;  // by one device, in rings
  Provenance provenance = Provenance::extrapolated;
  std::string basis;  // of the law that takes longest
};

struct StepTimeQuestion {
  const device::Device& device;
  StepShape shape;
  Cluster cluster;
  Division division;
  std::string_view residual = kEagerTraining;
};

// Of the trace's last step, of whose calls some may be repeated. An Error where a law lacks a
// figure of the device.
[[nodiscard]] Result<StepTime> time_of(const step::StepTrace& trace,
                                       const StepTimeQuestion& question, const TimingModel& model,
                                       const RepeatedCalls& repeated = {});

// What one device sends in the trace's last step, around rings.
[[nodiscard]] double sent_bytes(const step::StepTrace& trace, const Division& division,
                                const RepeatedCalls& repeated = {});

}  // namespace headroom::timing
