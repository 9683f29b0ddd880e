// StageTraffic: what a stage of a pipeline gets from its neighbours and gives to them, and which of
// it is still named while other passes run.
//
// With one chunk a stage waits for what it receives; with several it receives ahead. A single stage
// of one chunk only has its loader's inputs. Of one TrainingRun, between whose passes it is told
// what was done; not thread-safe.
//
// Source: megatron/core/pipeline_parallel/{schedules,p2p_communication}.py at d98e8a64.
#pragma once

#include <vector>

#include "model/graph.h"
#include "operator/eager.h"
#include "step/interpreter.h"
#include "step/pipeline.h"
#include "step/recorder.h"

namespace headroom::step {

class StageTraffic {
 public:
  // `weights` is the type of what says nothing else.
  StageTraffic(op::Eager& eager, Recorder& recorder, const Pipeline& pipeline, op::DType weights)
      : eager_(eager), recorder_(recorder), pipeline_(pipeline), weights_(weights) {}

  // A pass forward begins: what came from the stage before, or else the loader's.
  void put_inputs(const model::GraphChunk& chunk, Frame& frame);
  // A pass forward is done that is not the model's last: what stays is the history
  // (deallocate_output_tensor).
  void send_outputs(const model::GraphChunk& chunk, Frame& frame);
  // The gradient that came ahead of its pass backward; undefined where none did.
  op::Tensor take_gradient() { return std::exchange(received_gradient_, op::Tensor()); }
  // A pass backward is done. The loop over micro-batches names what it sent back until the next one
  // is ready.
  void send_gradients(const model::GraphChunk& chunk, const Frame& frame);
  // Pass `done` is done: what the next passes forward and backward need comes while this stage
  // still runs, after a pass forward the next one's input, after the warm-up and each pass backward
  // the next one's gradient. What a pass forward sent is there until the next, but in the warm-up
  // and at the step's end.
  void receive_ahead(int step, const std::vector<PipelinePass>& passes, size_t done,
                     const std::vector<model::GraphChunk>& chunks);
  void end_step() { sent_gradients_.clear(); }

 private:
  void receive_inputs(const model::GraphChunk& chunk);
  void send_to_stage(int64_t bytes);

  op::Eager& eager_;
  Recorder& recorder_;
  const Pipeline& pipeline_;
  op::DType weights_;
  std::vector<op::Tensor> sent_gradients_;  // to the stage before
  std::vector<op::Ref<op::Storage>> sent_;  // to the one behind, while it may still be read
  op::Dims sent_sizes_;
  std::vector<op::Tensor> received_inputs_;  // before they are used
  op::Tensor received_gradient_;
};

// A chunk that is not a model's last ends in what it sends on.
[[nodiscard]] inline bool ends_in_loss(const model::GraphChunk& chunk) {
  return chunk.loss != model::kNoValue;
}

}  // namespace headroom::step
