#include "operator/eager.h"

#include <algorithm>
#include <array>

namespace headroom::op {

Node* new_node() { return ObjectPool<Node>::of_thread().take(); }

void destroy(Node* node) {
  if (node->variable && node->variable->accumulator == node) node->variable->accumulator = nullptr;
  // A long chain of nodes is taken apart in a loop, so that depth cannot exhaust the stack.
  std::vector<Edge> pending;
  pending.swap(node->next);
  node->task.gradients.clear();
  node->task.run = 0;
  node->task.dependencies = 0;
  node->task.is_wanted = true;
  node->variable = Tensor();
  node->apply.reset();
  node->hook_owner.reset();
  node->hooked.clear();
  node->saved.clear();
  node->outputs.clear();
  while (!pending.empty()) {
    Edge edge = std::move(pending.back());
    pending.pop_back();
    if (edge.node && edge.node->refs == 1) {
      for (Edge& next : edge.node->next) pending.push_back(std::move(next));
      edge.node->next.clear();
    }
  }
  node->next.swap(pending);  // for its capacity
  ObjectPool<Node>::of_thread().recycle(node);
}

Ref<Storage> Eager::allocate(int64_t bytes) {
  // First, since a sink may end the run by an exception.
  const uint32_t buffer = muted_ ? kNoBuffer : sink_.on_allocate(bytes);
  if (!muted_) newest_buffer_ = buffer;
  auto* storage = new Storage;
  storage->bytes = bytes;
  storage->sink = &sink_;
  storage->buffer = buffer;
  return Ref<Storage>(storage);
}

Ref<Storage> Eager::allocate_workspace(int64_t bytes) {
  const uint32_t buffer = sink_.on_workspace(bytes);
  auto* storage = new Storage;
  storage->bytes = bytes;
  storage->sink = &sink_;
  storage->buffer = buffer;
  return Ref<Storage>(storage);
}

Ref<Storage> Eager::adopt_storage(uint32_t buffer, int64_t bytes) {
  if (buffer == kNoBuffer) return {};
  auto* storage = new Storage;
  storage->buffer = buffer;
  storage->bytes = bytes;
  storage->sink = &sink_;
  return Ref<Storage>(storage);
}

Eager::HeldWorkspaces Eager::held_workspaces() const {
  HeldWorkspaces held;
  for (size_t thread = 0; thread < std::size(blas_main_); ++thread) {
    if (blas_main_[thread]) held.main[thread] = blas_main_[thread]->buffer;
    if (blas_lt_[thread]) held.lt[thread] = blas_lt_[thread]->buffer;
  }
  return held;
}

void Eager::hold_workspaces(const HeldWorkspaces& held) {
  for (size_t thread = 0; thread < std::size(blas_main_); ++thread) {
    blas_main_[thread] = adopt_storage(held.main[thread], environment_.blas.main_bytes);
    blas_lt_[thread] = adopt_storage(held.lt[thread], environment_.blas.lt_bytes);
  }
}

void Eager::release_storage(const Tensor& tensor) {
  Storage& storage = *tensor->storage;
  sink_.on_free(storage.buffer);
  storage.buffer = kNoBuffer;
}

void Eager::restore_storage(const Tensor& tensor) {
  tensor->storage->buffer = sink_.on_allocate(tensor->storage->bytes);
}

Tensor Eager::scratch(int64_t bytes) {
  if (muted_ || bytes <= 0 || !environment_.kernel_scratch) return {};
  return empty({bytes}, DType::u8);
}

void Eager::use_blas(bool through_lt) {
  const BlasWorkspaces& blas = environment_.blas;
  if (muted_ || blas.main_bytes <= 0) return;
  const auto thread = static_cast<size_t>(thread_);
  if (!through_lt || blas.lt == BlasWorkspaces::Lt::shared) {
    if (!blas_main_[thread]) blas_main_[thread] = allocate_workspace(blas.main_bytes);
  } else if (blas.lt == BlasWorkspaces::Lt::persistent) {
    if (!blas_lt_[thread]) blas_lt_[thread] = allocate_workspace(blas.lt_bytes);
  } else {
    allocate_workspace(blas.lt_bytes);  // back at once
  }
}

namespace {

[[noreturn]] void too_large(const Dims& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : " x ") + std::to_string(size);
  throw Impossible{"a tensor of " + text + " elements is beyond 2^56 bytes"};
}

void check_size(const Dims& sizes, DType dtype) {
  if (product(sizes) > kTensorBytesMax / element_size(dtype)) too_large(sizes);
}

}  // namespace

Tensor Eager::empty_strided(const Dims& sizes, const Dims& strides, DType dtype) {
  check_size(sizes, dtype);
  Tensor tensor(new TensorImpl);
  tensor->sizes = sizes;
  tensor->strides = strides;
  tensor->dtype = dtype;
  tensor->storage = allocate(product(sizes) * element_size(dtype));
  return tensor;
}

Tensor Eager::empty(const Dims& sizes, DType dtype) {
  check_size(sizes, dtype);
  return empty_strided(sizes, contiguous_strides(sizes), dtype);
}

Tensor Eager::empty_like(const Tensor& source, DType dtype) {
  if (source.is_contiguous()) return empty(source.sizes(), dtype);
  if (is_non_overlapping_and_dense(source.sizes(), source.strides())) {
    return empty_strided(source.sizes(), source.strides(), dtype);
  }
  return elementwise_output({&source}, dtype);
}

Tensor Eager::alias(const Tensor& source, const Dims& sizes, const Dims& strides) {
  check_size(sizes, source.dtype());
  Tensor view(new TensorImpl);
  view->sizes = sizes;
  view->strides = strides;
  view->dtype = source.dtype();
  view->storage = source->storage;
  view->base = source->base ? source->base : source;
  return view;
}

Tensor Eager::adopt(uint32_t buffer, const Dims& sizes, const Dims& strides, DType dtype) {
  Tensor tensor(new TensorImpl);
  tensor->sizes = sizes;
  tensor->strides = strides;
  tensor->dtype = dtype;
  tensor->storage = adopt_storage(buffer, product(sizes) * element_size(dtype));
  return tensor;
}

Tensor Eager::detach(const Tensor& source) {
  Tensor detached = alias(source, source.sizes(), source.strides());
  detached->base = Tensor();
  return detached;
}

namespace {

struct Operand {
  Dims strides;  // broadcast to the output's rank, zero where broadcast
};

// TensorIterator's order of dimensions, fastest first: insertion sort by the operands' strides,
// where an ambiguous comparison (a broadcast dimension) decides nothing.
InlineVector<uint8_t, kDimsMax> iteration_order(const Dims& sizes,
                                                std::span<const Operand> operands) {
  InlineVector<uint8_t, kDimsMax> order;
  for (size_t i = sizes.size(); i-- > 0;) order.push_back(static_cast<uint8_t>(i));
  const auto should_swap = [&](uint8_t a, uint8_t b) {
    for (const Operand& operand : operands) {
      const int64_t stride_a = operand.strides[a];
      const int64_t stride_b = operand.strides[b];
      if (stride_a == 0 || stride_b == 0) continue;
      if (stride_a != stride_b) return stride_a < stride_b ? -1 : 1;
      if (sizes[a] > sizes[b]) return 1;
    }
    return 0;
  };
  for (size_t i = 1; i < order.size(); ++i) {
    size_t at = i;
    for (size_t j = i; j-- > 0;) {
      const int comparison = should_swap(order[j], order[at]);
      if (comparison > 0) {
        std::swap(order[j], order[at]);
        at = j;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  return order;
}

Dims broadcast_sizes(std::initializer_list<const Tensor*> inputs) {
  Dims sizes;
  for (const Tensor* input : inputs) {
    const Dims& other = input->sizes();
    while (sizes.size() < other.size()) sizes.insert(0, 1);
    const size_t lead = sizes.size() - other.size();
    for (size_t i = 0; i < other.size(); ++i) {
      int64_t& size = sizes[lead + i];
      require(size == other[i] || size == 1 || other[i] == 1, "operands of different sizes");
      if (size == 1) size = other[i];
    }
  }
  return sizes;
}

}  // namespace

Tensor Eager::elementwise_output(std::initializer_list<const Tensor*> inputs, DType dtype) {
  const Dims sizes = broadcast_sizes(inputs);
  // The usual cases first: every input of the output's sizes and contiguous, or all laid out alike.
  bool all_contiguous = true;
  for (const Tensor* input : inputs) {
    if (input->rank() == 0) continue;
    all_contiguous = all_contiguous && input->sizes() == sizes && input->is_contiguous();
  }
  if (all_contiguous) return empty(sizes, dtype);

  std::array<Operand, 4> operands;
  size_t count = 0;
  for (const Tensor* input : inputs) {
    if (count == operands.size()) break;
    Operand& operand = operands[count++];
    const size_t lead = sizes.size() - input->sizes().size();
    for (size_t i = 0; i < sizes.size(); ++i) {
      const bool broadcast = i < lead || (input->sizes()[i - lead] == 1 && sizes[i] != 1);
      operand.strides.push_back(broadcast ? 0 : input->strides()[i - lead]);
    }
  }
  const auto order = iteration_order(sizes, std::span(operands.data(), count));
  Dims strides = sizes;
  int64_t stride = 1;
  for (const uint8_t dim : order) {
    strides[dim] = stride;
    stride *= std::max<int64_t>(sizes[dim], 1);
  }
  return empty_strided(sizes, strides, dtype);
}

Edge Eager::gradient_edge(const Tensor& tensor) {
  if (!tensor || !tensor->requires_grad) return {};
  if (tensor->grad_fn) return {tensor->grad_fn, tensor->output_number};
  if (!tensor->accumulator) {
    Node* node = new_node();
    node->module = 0;
    node->name = "AccumulateGrad";
    node->sequence = UINT64_MAX;
    node->outputs.push_back({tensor.sizes(), tensor.dtype()});
    node->variable = tensor;
    tensor->accumulator = node;
  }
  return {NodeRef(tensor->accumulator), 0};
}

namespace {

const Tensor& tensor_of(const Tensor& tensor) { return tensor; }
const Tensor& tensor_of(const Tensor* tensor) { return *tensor; }
Tensor& tensor_of(Tensor& tensor) { return tensor; }
Tensor& tensor_of(Tensor* tensor) { return *tensor; }

}  // namespace

// Inputs and outputs are tensors, or pointers to them.
template <typename Inputs, typename Outputs>
Node* Eager::make_history(const char* name, Inputs& inputs, Outputs& outputs) {
  if (!grad_enabled_) return nullptr;
  bool wanted = false;
  for (const auto& input : inputs)
    wanted = wanted || (tensor_of(input) && tensor_of(input)->requires_grad);
  if (!wanted) return nullptr;
  Node* node = new_node();
  node->name = name;
  node->sequence = sequence_++;
  node->module = module_;
  for (const auto& input : inputs) node->next.push_back(gradient_edge(tensor_of(input)));
  const NodeRef reference(node);
  for (auto& each : outputs) {
    Tensor& output = tensor_of(each);
    if (output) {
      output->requires_grad = is_floating(output.dtype());
      output->grad_fn = reference;
      output->output_number = static_cast<uint32_t>(node->outputs.size());
      node->outputs.push_back({output.sizes(), output.dtype()});
    } else {
      node->outputs.push_back({});
    }
  }
  return node;
}

Node* Eager::history(const char* name, std::span<const Tensor> inputs, std::span<Tensor> outputs) {
  return make_history(name, inputs, outputs);
}

Node* Eager::history(const char* name, std::initializer_list<const Tensor*> inputs,
                     std::initializer_list<Tensor*> outputs) {
  return make_history(name, inputs, outputs);
}

void Eager::finish(Node& node) {
  for (size_t slot = 0; slot < node.saved.size(); ++slot) {
    Tensor& tensor = node.saved[slot];
    if (!tensor) continue;
    // An output of the node itself is kept without its history, or the node would keep itself.
    if (tensor->grad_fn.get() == &node) tensor = detach(tensor);
    if (hooks_ && hooks_->pack(node, slot, tensor)) {
      tensor = Tensor();
      continue;
    }
    if (tensor->storage->buffer != kNoBuffer) sink_.on_saved(tensor->storage->buffer);
  }
}

}  // namespace headroom::op
