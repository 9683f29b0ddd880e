#include "step/torch_stages.h"

#include <algorithm>
#include <utility>

#include "operator/functional.h"

namespace headroom::step {

using memory::Category;
using model::GraphInput;
using op::Dims;
using op::Tensor;

TorchStages::TorchStages(op::Eager& eager, Recorder& recorder, Interpreter& interpreter,
                         Engine& engine, const model::Graph& graph, TorchStagesOptions options)
    : eager_(eager),
      recorder_(recorder),
      interpreter_(interpreter),
      engine_(engine),
      options_(std::move(options)),
      sent_sizes_(graph.passed_on) {
  for (model::GraphChunk& chunk : model::chunks_of(graph)) {
    Stage& stage = stages_.emplace_back();
    stage.receives = std::ranges::any_of(chunk.inputs, &GraphInput::requires_grad);
    stage.loss_begin = chunk.end;
    stage.chunk = std::move(chunk);
  }
  for (const model::Region& region : graph.regions) {
    if (region.kind == model::RegionKind::lm_head) stages_.back().loss_begin = region.end;
  }
  for (const model::Parameter& parameter : graph.parameters) {
    if (!parameter.tied_to) stages_[parameter.chunk].parameters.push_back(parameter.value);
  }
}

bool TorchStages::run_step(int step, Frame& frame) {
  begin_step(step);
  for (const PipelineAction& action : actions_of(options_.pipeline, options_.micro_batches)) {
    if (!run_action(step, action, frame)) return false;
  }
  end_step(frame);
  return true;
}

bool TorchStages::run_action(int step, const PipelineAction& action, Frame& frame) {
  ParallelMethod* parallel = options_.parallel;
  if (action.kind == PipelineActionKind::pass) {
    if (parallel != nullptr) parallel->begin_pass(action.chunk);
    Stage& stage = stages_[action.chunk];
    if (!action.pass.is_forward) return run_backward(step, stage, action.pass.part, frame);
    run_forward(step, stage, frame);
    return true;
  }
  if (parallel == nullptr) return true;
  if (action.kind == PipelineActionKind::gather) parallel->gather_chunk(action.chunk);
  if (action.kind == PipelineActionKind::let_go) parallel->let_go_of_chunk(action.chunk);
  if (action.kind == PipelineActionKind::reduce) parallel->reduce_chunk(action.chunk);
  return true;
}

void TorchStages::begin_step(int step) {
  recorder_.begin_phase(Phase::input, step);
  recorder_.set_category(Category::input);
  for (Stage& stage : stages_) {
    stage.whole_inputs.clear();
    for (const GraphInput& input : stage.chunk.inputs) {
      Tensor& whole = stage.whole_inputs.emplace_back();
      if (input.requires_grad) continue;
      Dims sizes = input.shape;
      sizes[0] *= options_.buffers;
      whole = eager_.empty(sizes, input.dtype.value_or(options_.weights));
    }
  }
  // clear_runtime_states(), behind the loader.
  for (Stage& stage : stages_) {
    stage.forward = stage.backward = stage.weights = 0;
    stage.held.clear();
    stage.held.resize(static_cast<size_t>(options_.micro_batches));
    for (const Tensor& received : stage.received) received->grad = Tensor();
  }
  outputs_.clear();
  make_buffers();
  hold_what_is_not_run();
  recorder_.begin_phase(Phase::forward, step);  // what is gathered for the first pass is of it
}

// Activations of all stages first, then gradients from the last stage on.
void TorchStages::make_buffers() {
  if (std::ranges::any_of(
          stages_, [](const Stage& s) { return !s.received.empty() || !s.gradients.empty(); })) {
    return;
  }
  recorder_.set_category(Category::communication);
  const auto count = static_cast<size_t>(options_.buffers);
  for (Stage& stage : stages_) {
    for (const GraphInput& input : stage.chunk.inputs) {
      if (!input.requires_grad) continue;
      while (stage.received.size() < count) {
        stage.received.push_back(eager_.empty(input.shape, input.dtype.value_or(options_.weights)));
      }
    }
  }
  for (size_t i = stages_.size(); i-- > 0;) {
    Stage& stage = stages_[i];
    if (stage.is_last()) continue;
    while (stage.gradients.size() < count) {
      stage.gradients.push_back(eager_.empty(sent_sizes_, options_.weights));
    }
  }
}

void TorchStages::hold_what_is_not_run() {
  if (options_.pipeline.is_single()) return;
  int64_t sends = 0;  // of a micro-batch
  for (int64_t chunk = 0; chunk < std::ssize(stages_); ++chunk) {
    const Stage& stage = stages_[static_cast<size_t>(chunk)];
    sends += !stage.is_last() && !options_.pipeline.hands_to_itself(chunk);
    sends += !stage.is_first() && !(chunk > 0 && options_.pipeline.hands_to_itself(chunk - 1));
  }
  recorder_.set_category(Category::communication);
  for (int64_t i = (options_.buffers - options_.micro_batches) * sends; i > 0; --i) {
    sent_.push_back(eager_.empty(sent_sizes_, options_.weights));
  }
}

void TorchStages::put_inputs(Stage& stage, size_t micro_batch, Frame& frame) {
  for (size_t i = 0; i < stage.chunk.inputs.size(); ++i) {
    const GraphInput& input = stage.chunk.inputs[i];
    if (input.requires_grad) {
      frame[input.value] = stage.received[micro_batch];
      frame[input.value]->requires_grad = true;
      continue;
    }
    const auto begin = static_cast<int64_t>(micro_batch) * input.shape[0];
    frame[input.value] = op::slice(eager_, stage.whole_inputs[i], 0, begin, begin + input.shape[0]);
  }
}

void TorchStages::run_forward(int step, Stage& stage, Frame& frame) {
  const auto micro_batch = static_cast<size_t>(stage.forward++);
  recorder_.begin_phase(Phase::forward, step);
  eager_.set_module(0);
  put_inputs(stage, micro_batch, frame);
  if (options_.parallel != nullptr) {
    options_.parallel->begin_forward({stage.forward == 1, stage.forward == options_.micro_batches},
                                     frame);
  }
  interpreter_.run(stage.chunk.begin, stage.loss_begin, frame);
  last_output_ = Tensor();
  interpreter_.run(stage.loss_begin, stage.chunk.end, frame);
  if (options_.parallel != nullptr) options_.parallel->end_forward(frame);
  eager_.set_module(0);
  Held& held = stage.held[micro_batch];
  held.output = std::exchange(frame[stage.output()], Tensor());
  if (stage.is_last()) {
    held.loss = std::exchange(frame[stage.chunk.loss], Tensor());
    losses_.push_back(held.loss);
    if (options_.returns_outputs) outputs_.push_back(held.output);
  } else if (Stage* next = behind_here(stage)) {
    next->received[micro_batch] = eager_.detach(held.output);
  } else {
    // Without its history (get_fwd_send_ops): what is on its way keeps no leaves.
    send(eager_.detach(held.output), sent_forward_);
  }
  for (const GraphInput& input : stage.chunk.inputs) {
    if (input.requires_grad) held.input = frame[input.value];
    frame[input.value] = Tensor();
  }
  if (options_.pipeline.is_single()) last_output_ = held.output;
  if (is_sent_in_warmup(stage)) sent_in_warmup_ = eager_.detach(held.output);
}

bool TorchStages::is_sent_in_warmup(const Stage& stage) const {
  if (!waits_for_each() || stage.is_last()) return false;
  return stage.forward <= std::min(warmup_passes(options_.pipeline), options_.micro_batches - 1);
}

bool TorchStages::waits_for_each() const {
  return options_.pipeline.is_single() &&
         options_.pipeline.schedule == PipelineSchedule::one_forward_one_backward;
}

void TorchStages::send(const Tensor& tensor, Tensor& latest) {
  const uint32_t sent = recorder_.send_to_stage(tensor.bytes());
  if (options_.pipeline.is_single()) recorder_.await(sent);
  if (waits_for_each()) {
    latest = tensor;
  } else {
    sent_.push_back(tensor);
  }
}

TorchStages::Stage* TorchStages::behind_here(const Stage& stage) {
  const int64_t chunk = &stage - stages_.data();
  return options_.pipeline.hands_to_itself(chunk) ? &stages_[chunk + 1] : nullptr;
}

void TorchStages::send_back(const Stage& stage, size_t micro_batch, const Tensor& gradient) {
  const int64_t chunk = &stage - stages_.data();
  if (chunk > 0 && options_.pipeline.hands_to_itself(chunk - 1)) {
    stages_[chunk - 1].gradients[micro_batch] = gradient;
  } else {
    send(gradient, sent_gradient_);
  }
}

Tensor TorchStages::seed_of(const Stage& stage, size_t micro_batch, const Tensor& root) {
  if (!stage.is_last()) return stage.gradients[micro_batch];
  return op::full(eager_, root.sizes(), root.dtype());
}

bool TorchStages::run_backward(int step, Stage& stage, BackwardPart part, Frame& frame) {
  recorder_.begin_phase(Phase::backward, step);
  recorder_.set_category(stage.is_last() ? Category::loss : Category::temporary);
  eager_.set_module(0);
  if (part != BackwardPart::weights) {
    const auto micro_batch = static_cast<size_t>(stage.backward++);
    if (part == BackwardPart::whole) {
      ++stage.weights;
      return run_whole(stage, micro_batch);
    }
    // Nobody waits for the first part's: all of it comes with the weights'.
    return stage.is_first() || run_to_input(stage, micro_batch, frame);
  }
  const auto micro_batch = static_cast<size_t>(stage.weights++);
  if (stage.is_first()) return run_whole(stage, micro_batch);
  Held& held = stage.held[micro_batch];
  backward_to_weights(engine_, eager_, std::move(held.weights), options_.accumulated);
  held = {};
  return true;
}

bool TorchStages::run_whole(Stage& stage, size_t micro_batch) {
  Held& held = stage.held[micro_batch];
  const Tensor root = stage.is_last() ? held.loss : held.output;
  if (!root.requires_grad()) return false;
  const Tensor seed = seed_of(stage, micro_batch, root);
  engine_.run(root, seed);
  if (options_.parallel != nullptr) options_.parallel->end_backward();
  if (held.input) {
    const Tensor gradient = std::exchange(held.input->grad, Tensor());
    send_back(stage, micro_batch, gradient);
  }
  held = {};
  if (stage.forward == options_.micro_batches) sent_in_warmup_ = Tensor();
  return true;
}

bool TorchStages::run_to_input(Stage& stage, size_t micro_batch, Frame& frame) {
  Held& held = stage.held[micro_batch];
  const Tensor root = stage.is_last() ? held.loss : held.output;
  if (!root.requires_grad()) return false;
  std::vector<Tensor> parameters;
  for (const model::ValueId id : stage.parameters) parameters.push_back(frame[id]);
  const Tensor seed = seed_of(stage, micro_batch, root);
  held.weights = backward_to_input(engine_, eager_, root, seed, held.input, parameters);
  send_back(stage, micro_batch, held.input->grad);
  if (!stage.is_last()) return true;
  held.output = held.loss = Tensor();
  // Returned without its history, which the weights' part is done with alone.
  if (options_.returns_outputs) outputs_[micro_batch] = eager_.detach(outputs_[micro_batch]);
  return true;
}

void TorchStages::end_step(Frame& frame) {
  eager_.set_module(0);
  sent_.clear();
  sent_forward_ = sent_gradient_ = sent_in_warmup_ = last_output_ = Tensor();
  losses_.clear();
  if (options_.parallel != nullptr && options_.pipeline.is_single())
    options_.parallel->end_passes();
  for (const Stage& stage : stages_) {
    for (const model::ValueId id : stage.parameters) {
      const Tensor& gradient = frame[id]->grad;
      if (!gradient || options_.buffers == 1) continue;
      eager_.kernel(op::OpKind::div, static_cast<double>(op::product(gradient.sizes())),
                    gradient.bytes(), gradient.bytes());
    }
  }
  if (!outputs_.empty()) {
    recorder_.set_category(Category::logits);
    const op::GradMode no_grad(eager_, false);
    merged_ = op::cat(eager_, outputs_, 0);
  }
  for (Stage& stage : stages_) stage.whole_inputs.clear();
}

}  // namespace headroom::step
