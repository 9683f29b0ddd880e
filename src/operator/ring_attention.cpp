// Attention of one of several ranks that share each sequence:
// torch.distributed.tensor.experimental's context_parallel with its standard way, which gathers
// keys and values once.
//
// Forward: the gathered keys and values stay to its end; results of turns are merged in float32. A
// turn of which half is masked is half a turn: in all each rank does its share of the causal work.
// Backward: the same gathering; gradients of keys and values travel on in float32.
// Source: torch/distributed/tensor/experimental/_context_parallel/_attention.py (PyTorch 2.6
// to 2.13).
#include <array>

#include "operator/functional.h"
#include "operator/scratch.h"

namespace headroom::op {

namespace {

struct RingSizes {
  int64_t ranks = 1;
  double flops = 0;  // forward, of this rank
};

RingSizes sizes_of(const Tensor& query, const Tensor& key, bool causal, int64_t ranks) {
  const double pairs = static_cast<double>(query.size(-2)) * static_cast<double>(key.size(-2));
  const double all = 4.0 * static_cast<double>(query.size(0) * query.size(1)) * pairs *
                     static_cast<double>(ranks) * static_cast<double>(query.size(-1));
  return {ranks, causal ? all / 2 : all};
}

// Keys and values of all ranks, in one block.
Tensor gather_keys(Eager& e, const Tensor& key, const Tensor& value, int64_t ranks) {
  const Tensor mine = e.empty({key.elements() + value.elements()}, key.dtype());
  e.kernel(OpKind::cat, 0, mine.bytes(), mine.bytes());
  Tensor all = e.empty({mine.elements() * ranks}, key.dtype());
  for (int64_t i = 1; i < ranks; ++i) e.send(mine.bytes());
  return all;
}

void attend(Eager& e, const RingSizes& sizes, const Tensor& query, const Tensor& key,
            double times) {
  e.await_sent();
  e.kernel({.kind = OpKind::sdpa,
            .flops = times * sizes.flops,
            .bytes_read = query.bytes() + 2 * key.bytes() * sizes.ranks,
            .bytes_written = query.bytes(),
            .element_bytes = static_cast<uint8_t>(element_size(query.dtype())),
            .rows = query.size(-2),
            .keys = key.size(-2) * sizes.ranks,
            .before_hopper = true});
}

void ring_backward(Eager& e, Node& n, Grads&, Grads& results, const RingSizes& sizes) {
  const Tensor& query = n.saved[0];
  const Tensor& key = n.saved[1];
  const Tensor& value = n.saved[2];
  Tensor to_query = e.empty(query.sizes(), DType::f32);
  Tensor to_keys = e.empty({key.elements() + value.elements()}, DType::f32);
  {
    const Tensor keys = gather_keys(e, key, value, sizes.ranks);
    // A turn's own, and what is on its way to the neighbour.
    const Tensor turn_query = e.empty_like(query, query.dtype());
    const Tensor turn_key = e.empty_like(key, key.dtype());
    const Tensor turn_value = e.empty_like(value, value.dtype());
    const AttentionSizes shape{query.size(0), query.size(1), key.size(1),
                               query.size(2), key.size(2),   query.size(3)};
    const auto scratch = flash_backward_scratch(e.environment(), shape, query.dtype());
    const std::array blocks{e.scratch(scratch.row_sums_bytes),
                            e.scratch(scratch.query_gradient_bytes),
                            e.scratch(scratch.expanded_bytes), e.scratch(scratch.expanded_bytes)};
    attend(e, sizes, query, key, 2.5);
  }
  const Tensor sent = e.empty(to_keys.sizes(), DType::f32);
  for (int64_t i = 1; i < sizes.ranks; ++i) e.send(sent.bytes());
  e.await_sent();
  results[0] = to(e, to_query, query.dtype());
  to_query = Tensor();
  results[1] = e.empty(key.sizes(), key.dtype());
  results[2] = e.empty(value.sizes(), value.dtype());
  e.kernel(OpKind::cast, 0, to_keys.bytes(), to_keys.bytes() / 2);
}

}  // namespace

Tensor ring_attention(Eager& e, const Tensor& query, const Tensor& key, const Tensor& value,
                      bool causal, int64_t ranks) {
  const RingSizes sizes = sizes_of(query, key, causal, ranks);
  Tensor out;
  Tensor logsumexp;
  if (!e.recall(OpKind::sdpa, {&out, &logsumexp})) {
    const Tensor keys = gather_keys(e, key, value, ranks);
    const Tensor merged = e.empty(query.sizes(), DType::f32);
    {
      const Tensor turn = e.empty_like(query, query.dtype());
      const Tensor wide_turn = e.empty(query.sizes(), DType::f32);
      const Tensor difference = e.empty(query.sizes(), DType::f32);
      const Tensor weighted = e.empty(query.sizes(), DType::f32);
      attend(e, sizes, query, key, 1);
    }
    out = e.empty_like(query, query.dtype());
    logsumexp = e.empty({query.size(0), query.size(1), query.size(2)}, DType::f32);
    e.kernel(OpKind::cast, 0, merged.bytes(), out.bytes());
    e.made(OpKind::sdpa, {&out, &logsumexp});
  }
  if (Node* node = e.history("RingAttentionBackward", {&query, &key, &value}, {&out})) {
    for (const Tensor& tensor : {query, key, value, out, logsumexp}) node->save(tensor);
    node->apply = [sizes](Eager& eager, Node& n, Grads& grads, Grads& results) {
      ring_backward(eager, n, grads, results, sizes);
    };
    e.finish(*node);
  }
  return out;
}

}  // namespace headroom::op
