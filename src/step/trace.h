// StepTrace: what a step does, in order: operators with their work, and the memory they take and
// give back. Everything that Headroom says of a step is read from here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memory/events.h"
#include "operator/kind.h"
#include "operator/permuted.h"
#include "step/rank_group.h"

namespace headroom::step {

enum class Phase : uint8_t { construct, input, forward, loss, backward, clip, optimizer, release };
[[nodiscard]] std::string_view name_of(Phase phase);

// Who takes part in a collective: the ranks that share what is trained, those that share each
// product (tensor parallelism), a neighbour that shares the sequence, a stage of a pipeline, those
// that share experts out.
enum class Peers : uint8_t { none, data, tensor, context, pipeline, expert };
inline constexpr size_t kPeers = 6;

// Instead of a number: all collectives that have begun.
inline constexpr uint16_t kAwaitsAll = UINT16_MAX;

// One kernel launch, or a collective: of that, what this rank puts in is read, and what it gets is
// written. Collectives among the same peers run one after the other beside the stream that
// computes.
struct OperatorCall {
  op::OpKind kind{};
  Phase phase{};
  uint8_t element_bytes = 0;   // as KernelWork has it
  bool has_bias = false;       // so too
  bool before_hopper = false;  // so too
  Peers peers = Peers::none;   // of a collective
  bool follows = false;  // of a gather of parameters: it begins behind what was launched before
  // Before this call the stream that computes waits for the collective that was begun so many
  // collectives ago, 1 for the latest one, and so for those before it among the same peers; 0: it
  // waits for none.
  uint16_t awaits = 0;
  // Behind the call before, so many units that FSDP1 had gathered went: what it counts by how far
  // the host may be ahead (step_replay.h).
  uint8_t let_go = 0;
  uint32_t module = 0;  // index into StepTrace::modules
  double flops = 0;
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t rows = 0;  // and keys: as KernelWork has them
  int64_t keys = 0;
  op::Permuted permuted{};
  RankGroup group{};  // of a collective whose peers alone do not say it
};

// Whether two calls do the same, wherever in the model.
[[nodiscard]] inline bool does_the_same(const OperatorCall& a, const OperatorCall& b) {
  return a.kind == b.kind && a.phase == b.phase && a.element_bytes == b.element_bytes &&
         a.has_bias == b.has_bias && a.before_hopper == b.before_hopper && a.peers == b.peers &&
         a.follows == b.follows && a.awaits == b.awaits && a.let_go == b.let_go &&
         a.flops == b.flops && a.bytes_read == b.bytes_read && a.bytes_written == b.bytes_written &&
         a.rows == b.rows && a.keys == b.keys && a.permuted == b.permuted && a.group == b.group;
}

// Where a phase begins. Iteration 0 is construction, 1 the first step, 2 the steady state.
struct PhaseMark {
  Phase phase{};
  int iteration = 0;
  uint32_t first_event = 0;
  uint32_t first_call = 0;
};

// What stays in the host's memory where parts of a step are kept there, on one rank. PyTorch takes
// a power of two for each page-locked block (ATen/core/CachingHostAllocator.h, 2.13).
struct HostMemory {
  enum class Kind : uint8_t { pageable, pinned };
  int64_t requested_bytes = 0;
  int64_t taken_bytes = 0;
};

struct StepTrace {
  memory::MemoryTrace memory;  // MemoryEvent::operation indexes `calls`
  std::vector<OperatorCall> calls;
  std::vector<std::string> modules;  // [0] is ""
  std::vector<PhaseMark> phases;
  int64_t saved_bytes = 0;      // unique storages kept for backward, parameters excepted
  int64_t output_bytes = 0;     // what the forward function returned
  int64_t peak_live_bytes = 0;  // the most that was asked for at one time
  uint32_t unfolded_units = 0;  // layers, or groups of them, that were not run (layer_fold.h)
  HostMemory host;
  bool cut_short = false;  // ends where the step grew beyond what was of interest
};

}  // namespace headroom::step
