#include "step/recorded.h"

#include <algorithm>
#include <memory>

#include "step/recorded_scratch.h"

namespace headroom::step {

using model::RecordedGradient;
using model::RecordedOutput;
using model::RecordedTensor;
using model::Recording;
using op::Eager;
using op::Grads;
using op::Node;
using op::Tensor;

namespace {

Tensor make_block(Eager& e, int64_t bytes) { return e.empty({bytes}, op::DType::u8); }

// A tensor of its own on the block's storage, as if it had been made with it.
Tensor on_block(const Tensor& block, const RecordedTensor& like) {
  Tensor tensor(new op::TensorImpl);
  tensor->sizes = like.sizes;
  tensor->strides = like.strides;
  tensor->dtype = like.dtype;
  tensor->storage = block->storage;
  return tensor;
}

// In backward a view's base counts: the engine adds in place only into what has none. In forward
// the storage is all that a view keeps; a base that is written to later would make a circle of
// nodes.
Tensor view_of(Eager& e, const Tensor& source, const RecordedTensor& like, bool holds_base) {
  Tensor view = e.alias(source, like.sizes, like.strides);
  if (!holds_base) view->base = Tensor();
  view->dtype = like.dtype;
  return view;
}

Tensor make_output(Eager& e, const RecordedOutput& output, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs) {
  const auto source = static_cast<size_t>(output.source);
  switch (output.kind) {
    case RecordedOutput::Kind::same_as_input:
      if (inputs[source]) return inputs[source];
      break;
    case RecordedOutput::Kind::view_of_input:
      if (inputs[source]) return view_of(e, inputs[source], output.tensor, false);
      break;
    case RecordedOutput::Kind::view_of_output:
      return view_of(e, outputs[source], output.tensor, false);
    case RecordedOutput::Kind::fresh:
      break;
  }
  return on_block(make_block(e, output.bytes), output.tensor);
}

Tensor make_gradient(Eager& e, const RecordedGradient& gradient, std::span<const Tensor> blocks,
                     const Grads& grads, const Grads& results) {
  const auto source = static_cast<size_t>(gradient.source);
  switch (gradient.kind) {
    case RecordedGradient::Kind::none:
      return {};
    case RecordedGradient::Kind::same_as_gradient:
      return grads[source];
    case RecordedGradient::Kind::same_as_result:
      return results[source];
    case RecordedGradient::Kind::view_of_gradient:
      return grads[source] ? view_of(e, grads[source], gradient.tensor, true) : Tensor();
    case RecordedGradient::Kind::block: {
      Tensor whole = on_block(blocks[source], gradient.tensor);
      return gradient.is_view ? view_of(e, whole, gradient.tensor, true) : whole;
    }
  }
  return {};
}

bool is_product(op::OpKind kind) { return op::group_of(kind) == op::OpGroup::gemm; }

// Reads of each input no more than it writes: the rows that indices name.
bool picks(op::OpKind kind) {
  return kind == op::OpKind::embedding || kind == op::OpKind::index_select ||
         kind == op::OpKind::index || kind == op::OpKind::gather;
}

// What the operator writes of an output; an input that it hands on has been written in place, but
// by views, which write nothing.
int64_t written_by(op::OpKind kind, const RecordedOutput& output, const Tensor& made) {
  if (output.kind == RecordedOutput::Kind::fresh) return output.bytes;
  if (op::group_of(kind) == op::OpGroup::none) return 0;
  return output.kind == RecordedOutput::Kind::same_as_input && made ? made.bytes() : 0;
}

// Of what goes row by row; a product's and attention's shapes follow from their work.
int64_t rows_of(op::OpKind kind, std::span<const Tensor> outputs) {
  const op::OpGroup group = op::group_of(kind);
  if (group == op::OpGroup::gemm || group == op::OpGroup::attention) return 0;
  if (outputs.empty() || !outputs.front() || outputs.front().rank() == 0) return 0;
  const int64_t width = outputs.front().size(-1);
  return width > 0 ? outputs.front().elements() / width : 0;
}

// The operand whose rows a product goes along: addmm's first is its bias.
size_t factor_of(op::OpKind kind) {
  return kind == op::OpKind::addmm || kind == op::OpKind::baddbmm ? 1 : 0;
}

// What a copy turns over; and what convolutions, layer norms and products in int8 make contiguous
// before they begin (products of floats read either way). Images may have their channels last.
op::Permuted permuted_by(op::OpKind kind, std::span<const Tensor> inputs,
                         std::span<const Tensor> outputs) {
  const size_t at = is_product(kind) ? factor_of(kind) : 0;
  if (inputs.size() <= at || !inputs[at]) return {};
  const Tensor& input = inputs[at];
  switch (kind) {
    case op::OpKind::clone:
    case op::OpKind::contiguous:
    case op::OpKind::cast: {
      if (outputs.empty() || outputs.front().sizes() != input.sizes()) return {};
      return op::permuted_into(input, outputs.front());
    }
    case op::OpKind::convolution:
      if (op::is_like_channels_last(input.sizes(), input.strides())) return {};
      return op::permuted_into_rows(input);
    case op::OpKind::layer_norm:
    case op::OpKind::mm:
    case op::OpKind::addmm:
    case op::OpKind::linear:
      return op::permuted_into_rows(input);
    default:
      return {};
  }
}

std::vector<Tensor> hold(Eager& e, std::span<const int64_t> sizes) {
  std::vector<Tensor> blocks;
  for (const int64_t bytes : sizes) blocks.push_back(e.scratch(bytes));
  return blocks;
}

void run_backward(Eager& e, op::OpKind kind, const Recording& recording,
                  const RecordedScratch& scratch, const Grads& grads, Grads& results) {
  const std::vector<Tensor> first = hold(e, scratch.first);
  hold(e, scratch.passing);
  std::vector<Tensor> blocks;
  int64_t written = 0;
  for (const model::RecordedBlock& change : recording.blocks) {
    if (change.free != model::kNowhere) {
      blocks[static_cast<size_t>(change.free)] = Tensor();
      continue;
    }
    blocks.push_back(make_block(e, change.bytes));
    written += change.bytes;
    if (is_product(kind)) e.use_blas();
  }
  const std::vector<Tensor> last = hold(e, scratch.at_the_end);
  if (!blocks.empty()) e.kernel(kind, 2 * recording.flops, written, written);
  for (size_t i = 0; i < recording.gradients.size(); ++i) {
    results[i] = make_gradient(e, recording.gradients[i], blocks, grads, results);
  }
}

void hang_node(Eager& e, const model::Operation& operation, std::span<const Tensor> inputs,
               std::span<const Tensor> outputs) {
  const Recording& recording = *operation.recording;
  const auto pick = [](std::span<const Tensor> from, int32_t index) {
    return index == model::kNowhere ? Tensor() : from[static_cast<size_t>(index)];
  };
  std::vector<Tensor> sources;
  for (const int32_t edge : recording.edges) sources.push_back(pick(inputs, edge));
  std::vector<Tensor> made;
  for (const int32_t output : recording.node_outputs) made.push_back(pick(outputs, output));
  Node* node = e.history("Recorded", sources, std::span<Tensor>(made));
  if (!node) return;
  for (const model::RecordedSave& save : recording.saves) {
    const Tensor tensor =
        save.input != model::kNowhere ? pick(inputs, save.input) : pick(outputs, save.output);
    node->save(tensor && save.detached ? e.detach(tensor) : tensor);
  }
  node->apply = [kind = operation.kind, shared = operation.recording,
                 scratch = backward_scratch(e.environment(), operation, inputs, outputs)](
                    Eager& eager, Node&, Grads& grads, Grads& results) {
    run_backward(eager, kind, *shared, scratch, grads, results);
  };
  e.finish(*node);
}

}  // namespace

void run_recorded(Eager& e, const model::Operation& operation, std::span<const Tensor> inputs,
                  std::vector<Tensor>& outputs) {
  const Recording& recording = *operation.recording;
  int64_t written = 0;
  for (const RecordedOutput& output : recording.outputs) {
    outputs.push_back(make_output(e, output, inputs, outputs));
    written += written_by(operation.kind, output, outputs.back());
  }
  if (is_product(operation.kind)) e.use_blas(recording.through_lt);
  if (written > 0) {
    int64_t read = 0;
    for (const Tensor& input : inputs) {
      const int64_t bytes = input ? input.bytes() : 0;
      read += picks(operation.kind) ? std::min(bytes, written) : bytes;
    }
    e.kernel({.kind = operation.kind,
              .flops = recording.flops,
              .bytes_read = read,
              .bytes_written = written,
              .rows = rows_of(operation.kind, outputs),
              .permuted = permuted_by(operation.kind, inputs, outputs),
              .has_bias = recording.through_lt});
  }
  if (recording.differentiable) hang_node(e, operation, inputs, outputs);
}

}  // namespace headroom::step
