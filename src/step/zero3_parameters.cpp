#include "step/zero3_parameters.h"

#include <utility>

namespace headroom::step {

using memory::Category;
using op::DType;
using op::Tensor;

struct Zero3Parameters::Gather {
  std::vector<size_t> indices;
  uint32_t collective = 0;
  Tensor together;  // all shares of several
  bool is_awaited = false;
};

Zero3Parameters::Zero3Parameters(int64_t ranks, uint32_t stream, op::Eager& eager,
                                 Recorder& recorder)
    : ranks_(ranks), stream_(stream), eager_(eager), recorder_(recorder) {
  eager_.set_muted(true);  // no block
  nothing_ = eager_.empty({0}, DType::u8);
  eager_.set_muted(false);
}

void Zero3Parameters::add(const op::Dims& shape, DType type, bool is_trained) {
  Zero3Parameter parameter;
  parameter.share = (op::product(shape) + ranks_ - 1) / ranks_;
  parameter.leaf = eager_.empty(shape, type);
  parameter.leaf->is_parameter = true;
  parameter.leaf->requires_grad = is_trained;
  parameters_.push_back(std::move(parameter));
}

void Zero3Parameters::take_part(size_t index) {
  Zero3Parameter& parameter = parameters_[index];
  parameter.part = eager_.empty({parameter.share}, parameter.leaf.dtype());
  eager_.kernel(op::OpKind::copy, 0, parameter.part.bytes(), parameter.part.bytes());
  let_go(index);
}

std::shared_ptr<Zero3Parameters::Gather> Zero3Parameters::begin_gather(
    std::vector<size_t> indices) {
  const CategoryScope scope(recorder_, Category::gathered);
  const StreamScope on_stream(recorder_, stream_);
  auto gather = std::make_shared<Gather>();
  if (indices.size() == 1) {
    Zero3Parameter& parameter = parameters_[indices[0]];
    const Tensor whole = block(parameter.share * ranks_, parameter.leaf.dtype());
    gather->collective = send(whole.bytes() / ranks_);
    parameter.leaf->storage = whole->storage;
  } else {
    int64_t shares = 0;
    for (const size_t index : indices) shares += parameters_[index].share;
    gather->together = block(shares * ranks_, parameters_[indices[0]].leaf.dtype());
    const int64_t bytes = gather->together.bytes() / ranks_;
    eager_.kernel(op::OpKind::cat, 0, bytes, bytes);
    gather->collective = send(bytes);
  }
  gather->indices = std::move(indices);
  return gather;
}

void Zero3Parameters::await(Gather& gather) {
  if (std::exchange(gather.is_awaited, true)) return;
  recorder_.await(gather.collective);
  if (!gather.together) return;
  const CategoryScope scope(recorder_, Category::gathered);
  const StreamScope on_stream(recorder_, stream_);
  for (const size_t index : gather.indices) {
    const Tensor& leaf = parameters_[index].leaf;
    leaf->storage = block(leaf.elements(), leaf.dtype())->storage;
    eager_.kernel(op::OpKind::cat, 0, leaf.bytes(), leaf.bytes());
  }
}

void Zero3Parameters::gather_apart(std::span<const size_t> indices) {
  const CategoryScope scope(recorder_, Category::gathered);
  for (const size_t index : indices) {
    const Zero3Parameter& parameter = parameters_[index];
    parameter.leaf->storage = block(parameter.share * ranks_, parameter.leaf.dtype())->storage;
  }
  for (const size_t index : indices) {
    const Zero3Parameter& parameter = parameters_[index];
    recorder_.await(send(parameter.share * op::element_size(parameter.leaf.dtype())));
  }
}

void Zero3Parameters::let_go(size_t index) { parameters_[index].leaf->storage = nothing_->storage; }

Tensor Zero3Parameters::block(int64_t elements, DType type) {
  return eager_.empty({elements}, type);
}

uint32_t Zero3Parameters::send(int64_t share_bytes) {
  return recorder_.begin_collective(op::OpKind::all_gather, share_bytes, share_bytes * ranks_);
}

}  // namespace headroom::step
