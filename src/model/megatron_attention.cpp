#include "model/megatron_attention.h"

#include <algorithm>
#include <utility>

namespace headroom::model {

Var CoreAttention::operator()(GraphBuilder& g, const MegatronStage& stage, std::vector<Var> parts,
                              const MegatronContext& given, const std::string& module) const {
  RegionScope region(g, RegionKind::core_attention, module + ".core_attention",
                     {&parts[0], &parts[1], &parts[2]});
  region.set_positional(3);
  Var context;
  switch (stage.model.attention) {
    case MegatronAttention::unfused:
      context = unfused(g, stage, parts, given);
      break;
    case MegatronAttention::flash:
      context = flash(g, stage, parts);
      break;
    case MegatronAttention::automatic:
    case MegatronAttention::fused:
      context = stage.rank.context > 1 ? fused_ring(g, stage, parts) : fused(g, parts);
      break;
  }
  region.leave({&context});
  return context;
}

// Queries that were copied, as turned ones and those of groups are, no longer lie with keys and
// values, so that these are copied too (get_qkv_layout).
Var CoreAttention::fused(GraphBuilder& g, const std::vector<Var>& parts) const {
  const bool is_one = !lie_apart && kv_heads == heads;
  const Var key = is_one ? parts[1] : g.contiguous(parts[1]);
  const Var value = is_one ? parts[2] : g.contiguous(parts[2]);
  Attributes attributes;
  attributes.flag = !is_padded;  // causal
  return g.apply(OpKind::te_fused_attention, {parts[0], key, value}, std::move(attributes));
}

// Parts of the sequence go round as they are: views of one block are copied, keys and values again
// into what is sent.
Var CoreAttention::fused_ring(GraphBuilder& g, const MegatronStage& stage,
                              const std::vector<Var>& parts) const {
  std::vector<Var> whole;
  for (const Var& part : parts) whole.push_back(g.contiguous(part));
  Attributes attributes;
  attributes.ints = {stage.rank.context};
  attributes.flag = true;  // by cuDNN
  Var context = g.apply(OpKind::te_ring_attention, whole, std::move(attributes));
  return g.view(context, {queries, stage.micro_batch, heads * value_size});
}

// UnfusedDotProductAttention: the scores' input is a block that is made before. Megatron-LM's own
// DotProductAttention has it in the engine's buffer.
Var CoreAttention::unfused(GraphBuilder& g, const MegatronStage& stage,
                           const std::vector<Var>& parts, const MegatronContext& given) const {
  const int64_t b = stage.micro_batch;
  const int64_t rows = b * heads;
  Var query = parts[0];
  Var key = parts[1];
  Var value = parts[2];
  if (kv_heads != heads) {
    key = repeated(g, key, b, key_size);
    value = repeated(g, value, b, value_size);
  }
  query = g.reshape(query, {queries, rows, key_size});
  key = g.reshape(key, {keys, rows, key_size});
  Var scores = stage.model.local ? g.view(g.slice(given.gathered, 0, 0, rows * queries * keys),
                                          {rows, queries, keys})
                                 : g.empty_like({rows, queries, keys}, query);
  scores = g.baddbmm(scores, g.transpose(query, 0, 1), g.transpose(g.transpose(key, 0, 1), 1, 2));
  Var weights = softmax(g, stage, std::move(scores), given);
  weights = g.dropout(weights, stage.model.attention_dropout);
  value = g.reshape(value, {keys, rows, value_size});
  Var context = g.bmm(weights, g.transpose(value, 0, 1));
  context = g.contiguous(g.permute(g.view(context, {b, heads, queries, value_size}), {2, 0, 1, 3}));
  return g.view(context, {queries, b, heads * value_size});
}

// FusedScaleMaskSoftmax. Megatron-LM's own kernels take the mask of padding in; without them the
// scores are masked in place, by the loader's mask or one that each layer makes (utils.py).
Var CoreAttention::softmax(GraphBuilder& g, const MegatronStage& stage, Var scores,
                           const MegatronContext& given) const {
  const int64_t b = stage.micro_batch;
  if (!stage.model.local || stage.model.fused_softmax) {
    Var weights = g.apply(OpKind::te_causal_softmax, {std::move(scores)});
    const bool masks = is_padded && !stage.model.local;
    return masks ? without_padding(g, std::move(weights), b) : weights;
  }
  const Var narrow = g.dtype_of(scores);
  Var weights = g.view(std::move(scores), {b, heads, queries, keys});
  if (stage.model.wide_softmax) weights = g.to(std::move(weights), DType::f32);
  if (stage.model.scaled_softmax) weights = g.mul(std::move(weights), 1.0);
  Var mask = given.mask;
  if (!mask && !is_padded) {
    mask = g.to(g.triangle(g.full({queries, keys}, DType::f32)), DType::boolean);
  }
  if (mask) weights = g.masked_fill_assign(std::move(weights), std::move(mask));
  weights = g.to_like(g.softmax(std::move(weights), 3), narrow);
  return g.view(std::move(weights), {b * heads, queries, keys});
}

// get_full_mask, and zeros where it is set.
Var CoreAttention::without_padding(GraphBuilder& g, Var weights, int64_t batch) const {
  const Var mask = g.full({batch, 1, queries, keys}, DType::boolean);
  weights = g.view(std::move(weights), {batch, heads, queries, keys});
  weights = g.masked_fill(std::move(weights), mask);
  return g.view(std::move(weights), {batch * heads, queries, keys});
}

// repeat_interleave along the heads.
Var CoreAttention::repeated(GraphBuilder& g, const Var& x, int64_t batch, int64_t size) const {
  const int64_t group = heads / kv_heads;
  const Var wide = g.expand(g.unsqueeze(x, 3), {keys, batch, kv_heads, group, size});
  return g.reshape(g.contiguous(wide), {keys, batch, heads, size});
}

Var CoreAttention::flash(GraphBuilder& g, const MegatronStage& stage,
                         const std::vector<Var>& parts) const {
  std::vector<Var> rows;
  for (const Var& part : parts) rows.push_back(g.contiguous(g.transpose(part, 0, 1)));
  // The package wants values as wide as keys: the narrower are padded (_pad_qkv_head_dim).
  const int64_t width = std::max(key_size, value_size);
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t own = i == 2 ? value_size : key_size;
    if (own != width) rows[i] = g.pad(rows[i], {0, width - own});
  }
  Var context;
  if (stage.rank.context > 1) {
    Attributes attributes;
    attributes.ints = {stage.rank.context};
    context = g.apply(OpKind::te_ring_attention, rows, std::move(attributes));
  } else {
    context =
        g.flash_attention(rows[0], rows[1], rows[2], !is_padded, stage.model.attention_dropout);
  }
  rows.clear();
  if (value_size != width) context = g.contiguous(g.slice(context, 3, 0, value_size));
  context = g.view(context, {stage.micro_batch, queries, heads * value_size});
  return g.contiguous(g.transpose(context, 0, 1));
}

}  // namespace headroom::model
