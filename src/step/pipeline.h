// One stage of a pipeline of ranks: in which order it runs its micro-batches.
//
// A stage holds one chunk of the model, or several that lie apart ("virtual stages", interleaved):
// chunk c of stage s is part c * stages + s of the whole, so that a micro-batch passes each stage
// as often as there are chunks.
//   1F1B         so many forward passes that the stages behind have work (the warm-up), then one
//                forward and one backward in turn, then what is left backward.
//   GPipe        all passes forward, then all backward.
//   zero bubble  1F1B with a shorter warm-up, whose passes backward give the stage before its
//                gradients and no more; the weights' gradients follow as many passes later as there
//                are stages before, in what would be bubbles (ZB-H1).
// Two chunks may lie mirrored instead, with orders of their own (pipeline_v.h).
//
// Invariants: each chunk runs forward and backward once a micro-batch, backward in the order of
// forward; under 1F1B with one chunk no more than stages - stage micro-batches wait for their
// backward pass. Cost: linear in the passes. Sources: arXiv 2104.04473, section 2.2; 1811.06965;
// 2401.10241; megatron/core/pipeline_parallel/schedules.py at d98e8a64 (get_pp_rank_microbatches,
// get_schedule_table); torch/distributed/pipelining/schedules.py (2.13), whose orders test_pipeline
// holds these against.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::step {

enum class PipelineSchedule : uint8_t {
  one_forward_one_backward,
  gpipe,
  zero_bubble,
  zero_bubble_v,
  dual_pipe_v
};

// Two chunks a stage, the second one as far from the model's end as the first from its beginning.
[[nodiscard]] constexpr bool is_mirrored(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::zero_bubble_v || schedule == PipelineSchedule::dual_pipe_v;
}
// Some passes backward give the gradients of inputs alone.
[[nodiscard]] constexpr bool splits_backward(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::zero_bubble || is_mirrored(schedule);
}

// Whose stages they are: what they hold beside the passes differs (stage_traffic.h,
// torch_stages.h), and of several chunks the warm-up.
enum class PipelineEngine : uint8_t { megatron, torch };

struct Pipeline {
  int64_t stages = 1;
  int64_t stage = 0;
  int64_t chunks = 1;  // of the model on this stage
  // Micro-batches that go through one chunk before the next one is taken up, where there are
  // several (--microbatch-group-size-per-virtual-pipeline-stage); 0: as many as stages.
  int64_t group = 0;
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  PipelineEngine engine = PipelineEngine::megatron;
  // Of a whole step, however many are run: torch's have buffers for each.
  int64_t micro_batches = 1;
  [[nodiscard]] int64_t group_size() const {
    if (is_mirrored(schedule)) return 1;
    return group > 0 ? group : stages;
  }
  // What comes from the neighbours is received while something else runs (overlap_p2p_comm), which
  // Megatron-LM does with several chunks alone.
  [[nodiscard]] bool receives_ahead() const { return chunks > 1; }
  // GPipe and 1F1B of one chunk, for which PyTorch has loops (PipelineScheduleSingle); of all
  // others it has lists of actions, and runs micro-batches in rounds.
  [[nodiscard]] bool is_single() const {
    return chunks == 1 && schedule != PipelineSchedule::zero_bubble;
  }
  // Whether a micro-batch may wait for its backward pass while others run.
  [[nodiscard]] bool holds_micro_batches() const { return chunks > 1 || stage + 1 < stages; }
  // The chunk behind `chunk` is this stage's, too, and what they pass on is not sent.
  [[nodiscard]] bool hands_to_itself(int64_t chunk) const {
    return is_mirrored(schedule) && chunk == 0 && stage + 1 == stages;
  }
  bool operator==(const Pipeline&) const = default;
};

// What of a chunk's gradients a pass backward makes.
enum class BackwardPart : uint8_t { whole, inputs, weights };

struct PipelinePass {
  bool is_forward = true;
  int64_t chunk = 0;
  BackwardPart part = BackwardPart::whole;  // of one backward
  bool operator==(const PipelinePass&) const = default;
};

// Passes forward before the first one backward, were there micro-batches without end; under GPipe
// all of them. REQUIRES: chunks are not mirrored.
[[nodiscard]] int64_t warmup_passes(const Pipeline& pipeline);

// Of one step. With several chunks that lie apart the micro-batches are a multiple of a group's.
// REQUIRES: micro_batches >= 1; of DualPipeV at least two a stage.
[[nodiscard]] std::vector<PipelinePass> passes_of(const Pipeline& pipeline, int64_t micro_batches);

// The most passes that have run forward and wait for their backward pass, or for its last part.
[[nodiscard]] int64_t most_in_flight(const Pipeline& pipeline, int64_t micro_batches);

// So few micro-batches that a step of them has every state that one of `micro_batches` has: the
// whole warm-up, and all chunks' turns behind it. `steady` more stand for those in between where
// there is one chunk. Under GPipe, where every micro-batch is held, all of them.
[[nodiscard]] int64_t representative_micro_batches(const Pipeline& pipeline, int64_t micro_batches,
                                                   int64_t steady);

}  // namespace headroom::step
