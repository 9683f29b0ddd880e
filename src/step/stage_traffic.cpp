#include "step/stage_traffic.h"

#include <algorithm>
#include <utility>

#include "operator/functional.h"

namespace headroom::step {

using memory::Category;
using model::GraphChunk;
using op::Tensor;

namespace {

// Null where no such pass comes any more.
const GraphChunk* next_of(const std::vector<PipelinePass>& passes, size_t done, bool is_forward,
                          const std::vector<GraphChunk>& chunks) {
  const auto next = std::ranges::find(passes.begin() + static_cast<ptrdiff_t>(done) + 1,
                                      passes.end(), is_forward, &PipelinePass::is_forward);
  return next == passes.end() ? nullptr : &chunks[static_cast<size_t>(next->chunk)];
}

}  // namespace

void StageTraffic::put_inputs(const GraphChunk& chunk, Frame& frame) {
  sent_.clear();
  size_t received = 0;
  for (const model::GraphInput& input : chunk.inputs) {
    const bool is_there = input.requires_grad && received < received_inputs_.size();
    frame[input.value] = is_there ? std::move(received_inputs_[received++])
                                  : eager_.empty(input.shape, input.dtype.value_or(weights_));
    frame[input.value]->requires_grad = input.requires_grad;
  }
  received_inputs_.clear();
}

void StageTraffic::send_outputs(const GraphChunk& chunk, Frame& frame) {
  for (const model::ValueId id : chunk.outputs) {
    sent_sizes_ = frame[id].sizes();
    send_to_stage(frame[id].bytes());
    auto storage = eager_.empty({1}, frame[id].dtype())->storage;
    std::swap(frame[id]->storage, storage);
    if (pipeline_.receives_ahead()) sent_.push_back(std::move(storage));
  }
}

void StageTraffic::send_gradients(const GraphChunk& chunk, const Frame& frame) {
  sent_gradients_.clear();
  for (const model::GraphInput& input : chunk.inputs) {
    if (!input.requires_grad) continue;
    sent_gradients_.push_back(frame[input.value]->grad);
    send_to_stage(frame[input.value].bytes());
  }
}

void StageTraffic::receive_ahead(int step, const std::vector<PipelinePass>& passes, size_t done,
                                 const std::vector<GraphChunk>& chunks) {
  recorder_.begin_phase(Phase::input, step);
  recorder_.set_category(Category::input);
  const auto warmup = static_cast<size_t>(warmup_passes(pipeline_));
  const bool was_forward = passes[done].is_forward;
  const bool is_steady = done >= warmup && done + 1 < passes.size() &&
                         passes[done].is_forward != passes[done + 1].is_forward;
  if (was_forward) {
    if (const GraphChunk* chunk = next_of(passes, done, true, chunks)) receive_inputs(*chunk);
  }
  if (!is_steady) sent_.clear();
  if (was_forward && done + 1 != warmup) return;
  const GraphChunk* chunk = next_of(passes, done, false, chunks);
  if (chunk == nullptr || ends_in_loss(*chunk)) return;
  received_gradient_ = op::full(eager_, sent_sizes_, weights_);
}

void StageTraffic::receive_inputs(const GraphChunk& chunk) {
  for (const model::GraphInput& input : chunk.inputs) {
    if (!input.requires_grad) continue;
    received_inputs_.push_back(eager_.empty(input.shape, input.dtype.value_or(weights_)));
  }
}

// What is computed next waits for it, but where stages receive ahead.
void StageTraffic::send_to_stage(int64_t bytes) {
  const uint32_t sent = recorder_.send_to_stage(bytes);
  if (!pipeline_.receives_ahead()) recorder_.await(sent);
}

}  // namespace headroom::step
