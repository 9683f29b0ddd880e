// Transformer Engine's attention by its two fast backends: cuDNN's on one rank, and both on a ring
// of ranks that hold a part of the sequence each (AttnFuncWithCPAndKVP2P).
#include <utility>
#include <vector>

#include "operator/transformer_engine_parts.h"

namespace headroom::op {

namespace {

// The kernels of attention over queries whose values may be of another width. Forward multiplies
// queries by keys and scores by values; backward does the first again, and makes of the scores'
// gradients those of queries and keys, and of both of them that of values.
class AttentionWork {
 public:
  // `sequence`: the dimension of all three that counts tokens.
  AttentionWork(const Tensor& query, const Tensor& key, const Tensor& value, bool causal,
                int sequence)
      : inputs_(query.bytes() + key.bytes() + value.bytes()),
        element_bytes_(static_cast<uint8_t>(element_size(query.dtype()))),
        queries_(query.size(sequence)),
        keys_(key.size(sequence)) {
    const double scores = elements_of(query) / static_cast<double>(query.size(3)) *
                          static_cast<double>(keys_) / (causal ? 2 : 1);
    by_keys_ = 2 * scores * static_cast<double>(key.size(3));
    by_values_ = 2 * scores * static_cast<double>(value.size(3));
  }

  void forward(Eager& e, const Tensor& out) {
    out_ = out.bytes();
    kernel(e, by_keys_ + by_values_, inputs_, out_);
  }
  void backward(Eager& e) const {
    kernel(e, 3 * by_keys_ + 2 * by_values_, inputs_ + 2 * out_, inputs_);
  }

 private:
  void kernel(Eager& e, double flops, int64_t read, int64_t written) const {
    e.kernel({.kind = OpKind::flash_attention,
              .flops = flops,
              .bytes_read = read,
              .bytes_written = written,
              .element_bytes = element_bytes_,
              .rows = queries_,
              .keys = keys_});
  }

  int64_t inputs_;
  int64_t out_ = 0;
  uint8_t element_bytes_;
  int64_t queries_, keys_;
  double by_keys_, by_values_;
};

void fused_attention_gradients(Eager& e, const Node& n, Grads& result) {
  const auto& storage = n.saved[0]->storage;
  const bool is_one_block =
      storage.get() == n.saved[1]->storage.get() && storage.get() == n.saved[2]->storage.get();
  if (!is_one_block) {
    for (size_t i = 0; i < 3; ++i) result[i] = e.empty(n.saved[i].sizes(), n.saved[i].dtype());
    return;
  }
  int64_t features = 0;
  for (size_t i = 0; i < 3; ++i) features += n.saved[i].size(2) * n.saved[i].size(3);
  const Tensor& query = n.saved[0];
  const Tensor block = e.empty({query.size(0), query.size(1), features}, query.dtype());
  for (size_t i = 0; i < 3; ++i) {
    result[i] = e.alias(block, n.saved[i].sizes(), n.saved[i].strides());
  }
}

}  // namespace

Tensor te_fused_attention(Eager& e, const Tensor& query, const Tensor& key, const Tensor& value,
                          bool causal) {
  Tensor out =
      e.empty({query.size(0), query.size(1), query.size(2) * value.size(3)}, query.dtype());
  const Tensor lse = e.empty({query.size(1), query.size(2), query.size(0), 1}, DType::f32);
  AttentionWork one(query, key, value, causal, 0);
  one.forward(e, out);
  Node* node = e.history("FusedAttnFuncBackward", {&query, &key, &value}, {&out});
  if (node == nullptr) return out;
  for (const Tensor& tensor : {query, key, value, out, lse}) node->save(tensor);
  node->apply = [one](Eager& eager, Node& n, Grads&, Grads& result) {
    fused_attention_gradients(eager, n, result);
    one.backward(eager);
  };
  e.finish(*node);
  return out;
}

namespace {

// The part of a ring that its last rank does. What a step computes costs the same on every rank:
// the own tokens masked by cause, all queries by the first half of another's keys, or (on ranks
// before the last) the second half of the queries by all of another's keys, whose results are
// smaller. Holds no tensors.
class Ring {
 public:
  Ring(const Tensor& query, const Tensor& key, const Tensor& value, int64_t ranks,
       RingKernels kernels)
      : work_(query, key, value, true, kernels == RingKernels::cudnn ? 0 : 1),
        kernels_(kernels),
        ranks_(ranks),
        key_sizes_(key.sizes()),
        value_sizes_(value.sizes()),
        out_sizes_(query.sizes()) {
    out_sizes_[3] = value.size(3);
    const int sequence = is_cudnn() ? 0 : 1;
    sum_sizes_ = {query.size(1 - sequence), query.size(2), query.size(sequence)};
  }

  // What is kept for backward: the keys and values that were received last, the logarithms of the
  // softmax's sums, and the result.
  struct Kept {
    Tensor received, sums, out;
  };
  Kept forward(Eager& e, const Tensor& query, int64_t elements);
  void backward(Eager& e, Node& n, Grads& result) const;

 private:
  [[nodiscard]] bool is_cudnn() const { return kernels_ == RingKernels::cudnn; }
  [[nodiscard]] Dims gradient_sizes(const Dims& whole, bool is_own) const;
  void step_backward(Eager& e, const Tensor& query, bool is_own) const;

  AttentionWork work_;
  RingKernels kernels_;
  int64_t ranks_;
  Dims key_sizes_, value_sizes_, out_sizes_, sum_sizes_;
};

// Each step's result and sums stay until all have been added up.
Ring::Kept Ring::forward(Eager& e, const Tensor& query, int64_t elements) {
  std::vector<Tensor> buffers{e.empty({elements}, query.dtype())};
  std::vector<std::pair<Tensor, Tensor>> steps;
  for (int64_t i = 0; i < ranks_; ++i) {
    if (i > 0) e.await_sent();
    if (i + 1 < ranks_) {
      buffers.push_back(e.empty({elements}, query.dtype()));
      e.send(buffers[0].bytes());
    }
    Tensor out = e.empty(out_sizes_, query.dtype());
    work_.forward(e, out);
    steps.emplace_back(std::move(out), e.empty(sum_sizes_, DType::f32));
  }
  Kept kept{.received = buffers.back(), .sums = e.empty(sum_sizes_, DType::f32), .out = {}};
  const Tensor wide = e.empty(out_sizes_, DType::f32);
  kept.out = e.empty(out_sizes_, query.dtype());
  e.kernel(OpKind::mul, elements_of(wide), wide.bytes(), wide.bytes());
  return kept;
}

// cuDNN is given half of another rank's keys, and makes gradients of that size.
Dims Ring::gradient_sizes(const Dims& whole, bool is_own) const {
  Dims sizes = whole;
  if (is_cudnn() && !is_own) sizes[0] /= 2;
  return sizes;
}

// One step's gradients, let go when they have been added. The flash-attn package takes for its own
// the query's gradient in float32, and a sum a row.
void Ring::step_backward(Eager& e, const Tensor& query, bool is_own) const {
  const Tensor query_grad = e.empty(query.sizes(), query.dtype());
  const Tensor key_grad = e.empty(gradient_sizes(key_sizes_, is_own), query.dtype());
  const Tensor value_grad = e.empty(gradient_sizes(value_sizes_, is_own), query.dtype());
  Tensor accumulated, sums;
  if (!is_cudnn()) {
    accumulated = e.empty(query.sizes(), DType::f32);
    sums = e.empty(sum_sizes_, DType::f32);
  }
  work_.backward(e);
}

void Ring::backward(Eager& e, Node& n, Grads& result) const {
  const Tensor& query = n.saved[0];
  const Tensor& both = n.saved[1];
  const Tensor query_grad = e.empty(query.sizes(), query.dtype());
  Tensor buffers[2];
  for (Tensor& buffer : buffers) buffer = e.empty({2, both.elements()}, both.dtype());
  for (int64_t i = 0; i < ranks_; ++i) {
    // Keys and values to be used next, but behind the last step; their gradients so far, but before
    // the first. The own keys come last.
    const bool is_last = i + 1 == ranks_;
    e.send(i == 0 || is_last ? both.bytes() : 2 * both.bytes());
    step_backward(e, query, is_last);
    e.await_sent();  // what this step's gradients are added to
  }
  result[0] = query_grad;
  // The second half of the buffer that was received last.
  const Tensor& last = buffers[ranks_ % 2];
  if (n.needs(1)) result[1] = e.alias(last, key_sizes_, contiguous_strides(key_sizes_));
  if (n.needs(2)) result[2] = e.alias(last, value_sizes_, contiguous_strides(value_sizes_));
}

}  // namespace

Tensor te_ring_attention(Eager& e, const Tensor& query, const Tensor& key, const Tensor& value,
                         int64_t ranks, RingKernels kernels) {
  Ring ring(query, key, value, ranks, kernels);
  Ring::Kept kept = ring.forward(e, query, key.elements() + value.elements());
  Node* node = e.history("AttnFuncWithCPAndKVP2PBackward", {&query, &key, &value}, {&kept.out});
  if (node == nullptr) return kept.out;
  for (const Tensor& tensor : {query, kept.received, kept.out, kept.sums}) node->save(tensor);
  node->apply = [ring](Eager& eager, Node& n, Grads&, Grads& result) {
    ring.backward(eager, n, result);
  };
  e.finish(*node);
  return kept.out;
}

}  // namespace headroom::op
