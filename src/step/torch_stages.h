// TorchStages: the stages of a pipeline that one rank has under torch.distributed.pipelining, as
// its schedules run them.
//
// Invariants, all of which are bytes:
//   1. What comes from a neighbour comes into a buffer of its own for each micro-batch of the step,
//      activations and gradients alike; they are made in the first step and stay.
//   2. A micro-batch's input and output are held until its backward pass has run, with a split one
//      (split_backward.h) until its weights' part has.
//   3. What is sent is held by the request that sends it: of 1F1B until the next one's, but that of
//      the warm-up until the last pass forward; of other schedules to the step's end, where all are
//      waited for: those of micro-batches that are not run are held from the step's beginning.
//   4. GPipe and 1F1B name a micro-batch's output until the next one's is there.
//   5. Where outputs are returned, all logits are held, and joined at the end.
//   6. What a stage hands to itself (mirrored chunks) takes the place of the buffer, and is held
//      until the next step's takes its place.
//   7. Gradients are divided by the number of micro-batches at the end, in place.
// Hidden states and their shapes are taken to be told to the stages (input_args); else the first
// step has one more pass each way, of one micro-batch, before anything else.
// Of one TrainingRun; not thread-safe.
// Source: torch/distributed/pipelining/{stage,schedules}.py (2.13);
// ProcessGroupNCCL::pointToPoint, whose work holds the tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model/graph.h"
#include "operator/eager.h"
#include "step/engine.h"
#include "step/interpreter.h"
#include "step/parallel_method.h"
#include "step/pipeline.h"
#include "step/pipeline_actions.h"
#include "step/recorder.h"
#include "step/split_backward.h"

namespace headroom::step {

struct TorchStagesOptions {
  ParallelMethod* parallel = nullptr;  // that shares each stage among ranks; null: none
  // Called behind each gradient of a parameter that a pass for weights alone made.
  std::function<void(const op::Tensor& parameter)> accumulated;
  Pipeline pipeline;
  int64_t micro_batches = 1;  // that passes are run of
  int64_t buffers = 1;        // micro-batches of a whole step, which there are buffers for
  op::DType weights = op::DType::bf16;
  bool returns_outputs = false;
};

class TorchStages {
 public:
  // All must outlive the stages.
  TorchStages(op::Eager& eager, Recorder& recorder, Interpreter& interpreter, Engine& engine,
              const model::Graph& graph, TorchStagesOptions options);

  // The passes of one step. False where no gradient reaches the loss.
  bool run_step(int step, Frame& frame);

 private:
  // Of one micro-batch, while it waits.
  struct Held {
    op::Tensor input;  // what was received; null in the model's first part
    op::Tensor output;
    op::Tensor loss;
    std::vector<WeightGroup> weights;  // what is left of a split pass
  };
  struct Stage {
    model::GraphChunk chunk;
    std::vector<model::ValueId> parameters;  // of this chunk, in the module's order
    std::vector<op::Tensor> whole_inputs;    // of the loader, by input; null where it is received
    std::vector<op::Tensor> received;        // activations, by micro-batch
    std::vector<op::Tensor> gradients;       // of the outputs, by micro-batch
    std::vector<Held> held;                  // by micro-batch
    bool receives = false;
    uint32_t loss_begin = 0;                         // instruction: the module has returned
    int64_t forward = 0, backward = 0, weights = 0;  // passes that are done

    [[nodiscard]] bool is_last() const { return chunk.loss != model::kNoValue; }
    [[nodiscard]] bool is_first() const { return !receives; }
    [[nodiscard]] model::ValueId output() const {
      return is_last() ? chunk.logits : chunk.outputs.front();
    }
  };

  // False where no gradient reaches the loss.
  bool run_action(int step, const PipelineAction& action, Frame& frame);
  void begin_step(int step);
  void make_buffers();
  // What requests of micro-batches that only count hold at the step's end, as if they had run.
  void hold_what_is_not_run();
  void run_forward(int step, Stage& stage, Frame& frame);
  void put_inputs(Stage& stage, size_t micro_batch, Frame& frame);
  bool run_backward(int step, Stage& stage, BackwardPart part, Frame& frame);
  bool run_whole(Stage& stage, size_t micro_batch);
  bool run_to_input(Stage& stage, size_t micro_batch, Frame& frame);
  void send(const op::Tensor& tensor, op::Tensor& latest);
  // The chunk that gets what this one passes on, if it is here; null else.
  Stage* behind_here(const Stage& stage);
  void send_back(const Stage& stage, size_t micro_batch, const op::Tensor& gradient);
  void end_step(Frame& frame);
  [[nodiscard]] op::Tensor seed_of(const Stage& stage, size_t micro_batch, const op::Tensor& root);
  // 1F1B, which has one request each way at a time.
  [[nodiscard]] bool waits_for_each() const;
  // 1F1B sends what the warm-up makes at once but for its last, and has the request until it is
  // through with passes forward.
  [[nodiscard]] bool is_sent_in_warmup(const Stage& stage) const;

  op::Eager& eager_;
  Recorder& recorder_;
  Interpreter& interpreter_;
  Engine& engine_;
  const TorchStagesOptions options_;
  std::vector<Stage> stages_;
  const op::Dims sent_sizes_;     // of hidden states
  std::vector<op::Tensor> sent_;  // to be waited for at the end
  op::Tensor sent_forward_;       // by 1F1B, the latest
  op::Tensor sent_gradient_;      // the same
  op::Tensor sent_in_warmup_;     // the last before the one that is sent_forward_
  op::Tensor last_output_;
  std::vector<op::Tensor> losses_;
  std::vector<op::Tensor> outputs_;  // to be returned
  op::Tensor merged_;
};

}  // namespace headroom::step
