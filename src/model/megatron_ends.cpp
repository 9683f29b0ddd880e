#include "model/megatron_ends.h"

#include <algorithm>

#include "model/megatron_moe.h"

namespace headroom::model {

namespace {

// Of Megatron-LM's own modules: the scores of attention, and inputs of matrices put together.
int64_t local_elements(const MegatronStage& stage, const MegatronSizes& sizes, int64_t longest) {
  if (!stage.model.local) return 0;
  const int64_t inputs =
      sizes.sequence_ranks > 1 ? op::product({longest, stage.micro_batch, stage.model.hidden}) : 0;
  return std::max(inputs, op::product({stage.micro_batch, sizes.heads, longest, longest}));
}

}  // namespace

MegatronBuffers::MegatronBuffers(GraphBuilder& g, const MegatronSizes& sizes, int64_t longest) {
  const MegatronStage& stage = sizes.stage;
  const int64_t head_elements = stage.rank.is_last() && sizes.sequence_ranks > 1
                                    ? sizes.local_sequence * stage.micro_batch * stage.model.hidden
                                    : 0;
  const int64_t gathers = std::max({head_elements, MegatronExperts::gathered_elements(stage),
                                    local_elements(stage, sizes, longest)});
  if (gathers > 0) {
    gathered = g.buffer("global_memory_buffer.mpu", {gathers}, std::nullopt, false);
  }
  if (stage.workspace_bytes > 0) {
    workspace = g.buffer("transformer_engine.workspace", {stage.workspace_bytes}, DType::u8, false);
  }
}

Var megatron_embedding(GraphBuilder& g, const MegatronSizes& sizes, const Var& words,
                       const Var& places, const BertTokenTypes* types) {
  const MegatronStage& stage = sizes.stage;
  const int64_t s = sizes.local_sequence;
  const int64_t b = stage.micro_batch;
  const Var ids = g.input("tokens", {b, s}, DType::i64);
  const Var position_ids = g.input("position_ids", {b, s}, DType::i64);
  Var x;
  if (stage.rank.tensor > 1) {
    const Var outside = g.compare(ids, ids);
    Var masked = g.add(g.clone(ids), 0.0);
    masked = g.masked_fill(masked, outside);
    x = g.embedding(words, masked);
    x = g.masked_fill(x, g.unsqueeze(outside, 2));
  } else {
    x = g.embedding(words, ids);
  }
  if (places) x = g.add(std::move(x), g.embedding(places, position_ids));
  x = g.contiguous(g.transpose(std::move(x), 0, 1));
  if (types != nullptr) x = (*types)(g, std::move(x));
  if (sizes.sequence_ranks > 1) {
    x = g.clone(g.slice(std::move(x), 0, 0, sizes.hidden_rows()));
  }
  return g.dropout(std::move(x), stage.model.hidden_dropout);
}

Var megatron_loss(GraphBuilder& g, const MegatronSizes& sizes, Var logits) {
  const int64_t s = sizes.local_sequence;
  const int64_t b = sizes.stage.micro_batch;
  const Var labels = g.input("labels", {b, s}, DType::i64);
  const Var loss_mask = g.input("loss_mask", {b, s}, DType::f32);
  RegionScope region(g, RegionKind::loss, "loss", {&logits});
  const Var targets = g.contiguous(g.transpose(labels, 0, 1));
  Attributes attributes;
  attributes.flag = sizes.stage.model.compiled_loss;
  Var losses =
      g.apply(OpKind::parallel_cross_entropy, {std::move(logits), targets}, std::move(attributes));
  losses = g.contiguous(g.transpose(std::move(losses), 0, 1));
  Var masked = g.mul(g.view(std::move(losses), {-1}), g.view(loss_mask, {-1}));
  Var loss = g.sum(std::move(masked), {0}, false);
  region.leave({&loss});
  return loss;
}

Var megatron_logits(GraphBuilder& g, const MegatronSizes& sizes, const Var& hidden,
                    const Var& weight, const Var& bias, const Var& gathered) {
  RegionScope region(g, RegionKind::lm_head, "output_layer", {&hidden});
  Var logits =
      g.apply(OpKind::column_linear, {hidden, weight, Var(), gathered}, divided(sizes.stage.rank));
  if (bias) logits = g.add(std::move(logits), bias);
  region.leave({&logits});
  return logits;
}

}  // namespace headroom::model
