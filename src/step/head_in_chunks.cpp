#include "step/head_in_chunks.h"

#include <utility>
#include <vector>

#include "operator/functional.h"
#include "step/engine.h"

namespace headroom::step {

using op::DType;
using op::Eager;
using op::Grads;
using op::Node;
using op::Tensor;

namespace {

class ChunkLoop {
 public:
  ChunkLoop(Eager& e, const Tensor& weight, const HeadInChunks& options)
      : e_(e), options_(options), weight_(leaf_of(weight)) {}

  // Gives the sum of the chunks' losses; the gradients are in `hidden_gradient()` and
  // `weight_gradient()` then.
  Tensor run(const Tensor& hidden, const Tensor& target) {
    const std::vector<Tensor> chunks = chunks_of(hidden);
    const std::vector<Tensor> targets = chunks_of(target);
    const bool trains = e_.grad_enabled() && hidden.requires_grad();  // else forward alone
    if (trains) buffer_ = op::zeros(e_, hidden.sizes(), DType::f32);
    Tensor total = op::zeros(e_, {}, DType::f32);
    // As Python's names keep them, until the next chunk has its own.
    Tensor logits;
    Tensor loss;
    for (size_t i = 0; i < chunks.size(); ++i) {
      const Tensor chunk = leaf_of(chunks[i]);
      logits = op::linear(e_, chunk, weight_, Tensor());
      loss = loss_of(logits, targets[i]);
      total = op::add(e_, total, op::detach(e_, loss));
      if (!trains) continue;
      run_backward(loss);
      take_gradient(chunk);
    }
    if (trains) hidden_gradient_ = op::to(e_, buffer_, hidden.dtype());
    return total;
  }

  [[nodiscard]] Tensor hidden_gradient() const { return hidden_gradient_; }
  [[nodiscard]] Tensor weight_gradient() {
    if (!whole_) return std::exchange(weight_->grad, Tensor());
    {
      const Tensor reduced = e_.empty(weight_.sizes(), *options_.whole_gradient);
      e_.kernel(op::OpKind::copy, 0, whole_.bytes(), reduced.bytes());
      whole_ = Tensor();
    }
    return Tensor();  // made where backward begins
  }

 private:
  Tensor leaf_of(const Tensor& tensor) {
    Tensor leaf = e_.detach(tensor);
    leaf->requires_grad = true;
    return leaf;
  }

  // Copies, but of what lies so already.
  std::vector<Tensor> chunks_of(const Tensor& whole) {
    const op::GradMode no_grad(e_, false);
    const std::vector<int64_t> sizes(static_cast<size_t>(options_.chunks),
                                     whole.size(1) / options_.chunks);
    std::vector<Tensor> chunks;
    for (const Tensor& part : op::split(e_, whole, sizes, 1)) {
      chunks.push_back(op::contiguous(e_, part));
    }
    return chunks;
  }

  Tensor loss_of(const Tensor& logits, const Tensor& target) {
    Tensor rows = op::to(e_, op::view(e_, logits, {-1, logits.size(-1)}), DType::f32);
    const Tensor labels = op::view(e_, target, {-1});
    const Tensor sum = options_.is_of_parts ? op::parallel_loss(e_, rows, labels)
                                            : op::cross_entropy(e_, rows, labels);
    rows = Tensor();
    return op::div_scalar(e_, sum, 1);  // by all valid tokens
  }

  void run_backward(const Tensor& loss) {
    const op::GradMode no_grad(e_, false);
    const Tensor seed = op::full(e_, loss.sizes(), loss.dtype());
    Engine engine(e_, {});
    engine.run(loss, seed);
    if (!options_.whole_gradient) return;
    const Tensor gradient = std::exchange(weight_->grad, Tensor());
    if (whole_) {
      op::add_inplace(e_, whole_, gradient);
    } else {
      whole_ = op::to(e_, gradient, *options_.whole_gradient);
    }
  }

  void take_gradient(const Tensor& chunk) {
    const op::GradMode no_grad(e_, false);
    const Tensor wide = op::to(e_, chunk->grad, DType::f32);
    e_.kernel(op::OpKind::copy, 0, wide.bytes(), wide.bytes());  // into its place of the buffer
    chunk->grad = Tensor();
  }

  Eager& e_;
  const HeadInChunks& options_;
  const Tensor weight_;
  Tensor whole_;  // the weight's gradient under fully_shard
  Tensor buffer_;
  Tensor hidden_gradient_;
};

}  // namespace

model::Attributes HeadInChunks::attributes() const {
  model::Attributes attributes;
  attributes.ints = {chunks, is_of_parts ? 1 : 0};
  attributes.dtype = whole_gradient;
  return attributes;
}

HeadInChunks HeadInChunks::from(const model::Attributes& attributes) {
  return {attributes.ints[0], attributes.dtype, attributes.ints[1] != 0};
}

Tensor head_in_chunks(Eager& e, const Tensor& hidden, const Tensor& weight, const Tensor& target,
                      const HeadInChunks& options) {
  Tensor loss;
  Tensor to_hidden;
  Tensor to_weight;
  {
    ChunkLoop loop(e, weight, options);
    loss = op::detach(e, loop.run(hidden, target));
    to_weight = loop.weight_gradient();
    to_hidden = loop.hidden_gradient();
  }
  Tensor out = e.alias(loss, loss.sizes(), loss.strides());
  if (Node* node =
          e.history("_DecoderOutputGradientBackPropBackward", {&hidden, &weight}, {&out})) {
    node->save(to_hidden);
    if (to_weight) node->save(to_weight);
    node->apply = [sizes = weight.sizes(), type = weight.dtype()](Eager& eager, Node& n, Grads&,
                                                                  Grads& results) {
      results[0] = std::exchange(n.saved[0], Tensor());
      results[1] =
          n.saved.size() > 1 ? std::exchange(n.saved[1], Tensor()) : eager.empty(sizes, type);
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace headroom::step
