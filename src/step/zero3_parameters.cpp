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
  Tensor sent;      // a copy of the one share
  bool is_awaited = false;
};

Zero3Parameters::Zero3Parameters(const Options& options, op::Eager& eager, Recorder& recorder)
    : options_(options), eager_(eager), recorder_(recorder) {
  eager_.set_muted(true);  // no block
  nothing_ = eager_.empty({0}, DType::u8);
  eager_.set_muted(false);
}

void Zero3Parameters::add(const op::Dims& shape, DType type, bool is_trained) {
  Zero3Parameter parameter;
  parameter.share = (op::product(shape) + options_.ranks - 1) / options_.ranks;
  parameter.leaf = eager_.empty(shape, type);
  parameter.leaf->is_parameter = true;
  parameter.leaf->requires_grad = is_trained;
  parameter.persists = parameter.leaf.elements() <= options_.persistent;
  parameters_.push_back(std::move(parameter));
}

void Zero3Parameters::take_part(size_t index) {
  Zero3Parameter& parameter = parameters_[index];
  if (!options_.on_host || parameter.persists) {
    parameter.part = eager_.empty({parameter.share}, parameter.leaf.dtype());
    eager_.kernel(op::OpKind::copy, 0, parameter.part.bytes(), parameter.part.bytes());
  }
  let_go(index);
}

std::shared_ptr<Zero3Parameters::Gather> Zero3Parameters::begin_gather(
    std::vector<size_t> indices) {
  const CategoryScope scope(recorder_, Category::gathered);
  const StreamScope on_stream(recorder_, options_.stream);
  auto gather = std::make_shared<Gather>();
  if (options_.ranks == 1) {
    for (const size_t index : indices) show_part(parameters_[index]);
  } else if (indices.size() == 1) {
    Zero3Parameter& parameter = parameters_[indices[0]];
    const Tensor whole = block(parameter.share * options_.ranks, parameter.leaf.dtype());
    gather->sent = copied_part(parameter);
    gather->collective = send(whole.bytes() / options_.ranks);
    parameter.leaf->storage = whole->storage;
  } else {
    int64_t shares = 0;
    for (const size_t index : indices) shares += parameters_[index].share;
    gather->together = block(shares * options_.ranks, parameters_[indices[0]].leaf.dtype());
    std::vector<Tensor> copies;
    for (const size_t index : indices) copies.push_back(copied_part(parameters_[index]));
    const int64_t bytes = gather->together.bytes() / options_.ranks;
    eager_.kernel(op::OpKind::cat, 0, bytes, bytes);
    gather->collective = send(bytes);
  }
  gather->indices = std::move(indices);
  return gather;
}

void Zero3Parameters::await(Gather& gather) {
  if (std::exchange(gather.is_awaited, true) || options_.ranks == 1) return;
  recorder_.await(gather.collective);
  gather.sent = Tensor();
  if (!gather.together) return;
  const CategoryScope scope(recorder_, Category::gathered);
  const StreamScope on_stream(recorder_, options_.stream);
  for (const size_t index : gather.indices) {
    const Tensor& leaf = parameters_[index].leaf;
    leaf->storage = block(leaf.elements(), leaf.dtype())->storage;
    eager_.kernel(op::OpKind::cat, 0, leaf.bytes(), leaf.bytes());
  }
}

void Zero3Parameters::gather_apart(std::span<const size_t> indices) {
  const CategoryScope scope(recorder_, Category::gathered);
  if (options_.ranks == 1) {
    for (const size_t index : indices) show_part(parameters_[index]);
    return;
  }
  std::vector<Tensor> copies;
  for (const size_t index : indices) copies.push_back(copied_part(parameters_[index]));
  for (const size_t index : indices) {
    const Zero3Parameter& parameter = parameters_[index];
    parameter.leaf->storage =
        block(parameter.share * options_.ranks, parameter.leaf.dtype())->storage;
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

Tensor Zero3Parameters::copied_part(const Zero3Parameter& parameter) {
  if (!options_.on_host || parameter.part) return {};
  const bool is_whole = options_.ranks == 1;
  const CategoryScope scope(recorder_, is_whole ? Category::gathered : Category::temporary);
  return block(parameter.share, parameter.leaf.dtype());
}

void Zero3Parameters::show_part(Zero3Parameter& parameter) {
  if (const Tensor copy = copied_part(parameter)) {
    parameter.leaf->storage = copy->storage;
  } else {
    parameter.leaf->storage = parameter.part ? parameter.part->storage : flat_->storage;
  }
}

uint32_t Zero3Parameters::send(int64_t share_bytes) {
  return recorder_.begin_collective(op::OpKind::all_gather, share_bytes,
                                    share_bytes * options_.ranks);
}

}  // namespace headroom::step
