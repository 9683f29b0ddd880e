#include "model/families/moe_config.h"

#include <utility>

namespace headroom::model {

void MoeConfig::read(ConfigReader& reader, const BuildOptions& options,
                     ConfigReader::Names experts_key, const char* size_key) {
  decoder.vocabulary = options.vocabulary.value_or(reader.size({"vocab_size"}));
  decoder.hidden = reader.size({"hidden_size"});
  decoder.layers = reader.size({"num_hidden_layers"}, {}, kLayersMax);
  decoder.tied = reader.flag("tie_word_embeddings", false);
  attention.hidden = decoder.hidden;
  attention.heads = reader.size({"num_attention_heads"}, {}, kHeadsMax);
  const int64_t kv_heads = reader.is_null("num_key_value_heads")
                               ? attention.heads
                               : default_kv_heads.value_or(attention.heads);
  const int64_t head_dim = std::max<int64_t>(1, decoder.hidden / attention.heads);
  attention.kv_heads = reader.size({"num_key_value_heads"}, kv_heads, kHeadsMax);
  attention.head_dim = reader.size(
      {"head_dim"}, reader.is_null("head_dim") ? head_dim : default_head_dim.value_or(head_dim));
  attention.rotary_dims = attention.head_dim;
  attention.dropout = reader.dropout("attention_dropout", 0, options);
  decoder.rotary_dims = attention.head_dim;
  reader.require(attention.heads % attention.kv_heads == 0, "num_key_value_heads",
                 "does not divide num_attention_heads");
  activation = reader.activation("hidden_act", Activation::silu);
  experts.hidden = decoder.hidden;
  experts.experts = reader.size(experts_key, {}, kExpertsMax);
  experts.top_k = reader.size({"num_experts_per_tok", "moe_k"}, {}, kExpertsMax);
  experts.intermediate = reader.size({size_key});
  experts.activation = activation;
  reader.require(experts.top_k <= experts.experts, "num_experts_per_tok",
                 "more experts than there are");
  reader.require(experts.experts % options.expert_ranks == 0, experts_key.begin()[0],
                 std::to_string(experts.experts) + " experts are not divided by " +
                     std::to_string(options.expert_ranks) + " ranks that share them out");
  // Products of these stay far from overflow, and a loop over experts in every layer stays small.
  reader.require(experts.experts * experts.intermediate <= kSizeMax, size_key,
                 "more than 2^24 columns in all experts of a layer");
  reader.require(decoder.layers * experts.experts <= kExpertsOfModelMax, *experts_key.begin(),
                 "more than 2^17 experts in all layers");
  reader.require(attention.heads * attention.head_dim <= kSizeMax, "head_dim",
                 "more than 2^24 columns in all heads");
  intermediate = reader.size({"intermediate_size"}, experts.intermediate);
  router.hidden = decoder.hidden;
  router.experts = experts.experts;
  router.top_k = experts.top_k;
}

MoeBlock::MoeBlock(GraphBuilder& g, const BuildOptions& options, const MoeConfig& config,
                   const MoeLayout& layout, const std::string& name)
    : config_(config), layout_(layout) {
  const auto make_router = [&] {
    router_.emplace_back(g, config.router, name + "." + layout.router_name);
  };
  if (layout.router_first) make_router();
  experts_.emplace_back(g, options, config.experts, name + ".experts");
  if (!layout.router_first) make_router();
  if (layout.shared_size == 0) return;
  shared_.emplace_back(g, name + "." + layout.shared_name, config.decoder.hidden,
                       layout.shared_size, config.activation, config.mlp_bias);
  if (layout.shared_gate) {
    shared_gate_.emplace_back(g, name + "." + layout.shared_name + "_gate", config.decoder.hidden,
                              1, false);
  }
}

Var MoeBlock::with_shared_first(GraphBuilder& g, const BuildOptions& options, const Var& x) const {
  const Var rows = g.view(x, {-1, config_.decoder.hidden});
  Var shared = shared_[0](g, rows);
  const Routed routed = router_[0](g, options, rows);
  Var output = experts_[0](g, options, rows, routed.chosen, routed.weights);
  if (layout_.shared_gate) {
    Var gate = shared_gate_[0](g, rows);
    gate = g.sigmoid(gate);
    shared = g.mul(std::move(gate), shared);
  }
  output = g.add(output, shared);
  return g.reshape(output, {options.batch, options.sequence, config_.decoder.hidden});
}

Var MoeBlock::with_shared(GraphBuilder& g, const BuildOptions& options, const Var& x) const {
  const Routed routed = router_[0](g, options, x);
  Var output = g.view(x, {-1, config_.decoder.hidden});
  output = experts_[0](g, options, output, routed.chosen, routed.weights);
  output = g.view(output, {options.batch, options.sequence, config_.decoder.hidden});
  return g.add(output, shared_[0](g, x));
}

// Both the block and its router multiply by noise in place, the router what is a view by then.
Var MoeBlock::jittered_rows(GraphBuilder& g, const BuildOptions& options, const Var& x) const {
  const int64_t hidden = config_.decoder.hidden;
  const Var jittered = g.mul_assign(x, g.empty_like({options.batch, options.sequence, hidden}, x));
  Var rows = g.view(jittered, {-1, hidden});
  Var noise = g.empty_like({options.batch * options.sequence, hidden}, rows);
  return g.mul_assign(std::move(rows), std::move(noise));
}

FeedForward MoeBlock::operator()(GraphBuilder& g, const BuildOptions& options, const Var& x) const {
  if (layout_.shared_gate || (layout_.shared_first && !shared_.empty())) {
    return {with_shared_first(g, options, x), {}};
  }
  if (!shared_.empty()) return {with_shared(g, options, x), {}};
  const Var rows = layout_.jitters_input ? jittered_rows(g, options, x)
                                         : g.view(x, {-1, config_.decoder.hidden});
  const Routed routed = router_[0](g, options, rows);
  const Var output = experts_[0](g, options, rows, routed.chosen, routed.weights);
  // gpt-oss hands the weights on.
  return {g.reshape(output, {options.batch, options.sequence, config_.decoder.hidden}),
          config_.router.routing == Routing::top_k_softmax ? routed.weights : Var()};
}

FeedForwardCall moe_call(GraphBuilder& g, const BuildOptions& options, const MoeConfig& config,
                         const MoeLayout& layout, const std::string& name) {
  auto block = std::make_shared<MoeBlock>(g, options, config, layout, name);
  return [&g, &options, block](const Var& x) { return (*block)(g, options, x); };
}

FeedForwardCall dense_call(GraphBuilder& g, const MoeConfig& config, const std::string& name) {
  auto block = std::make_shared<GatedMlp>(g, name, config.decoder.hidden, config.intermediate,
                                          config.activation, config.mlp_bias);
  return [&g, block](const Var& x) { return FeedForward{(*block)(g, x), {}}; };
}

Result<std::vector<bool>> sparse_layers(const text::JsonView& json, int64_t layers) {
  HEADROOM_ASSIGN(const auto step, json.optional_int("decoder_sparse_step", 1, kLayersMax));
  HEADROOM_ASSIGN(const auto dense, json.optional_array("mlp_only_layers", kLayersMax));
  std::vector<bool> sparse;
  for (int64_t i = 0; i < layers; ++i) sparse.push_back((i + 1) % step.value_or(1) == 0);
  if (!dense) return sparse;
  for (const text::JsonView& item : *dense) {
    HEADROOM_ASSIGN(const int64_t layer, item.to_int(0, kLayersMax));
    if (layer < layers) sparse[static_cast<size_t>(layer)] = false;
  }
  return sparse;
}

LayerMaker layer_maker(const BuildOptions& options, const MoeConfig& config,
                       const MoeLayout& layout, std::vector<bool> sparse) {
  LayerMaker make;
  make.attention = [&](GraphBuilder& g, int64_t, const std::string& name) -> AttentionCall {
    auto block = std::make_shared<SelfAttention>(g, config.attention, name);
    return [&g, &options, block](const Var& x, const LayerInputs& inputs) {
      return (*block)(g, options, x, inputs);
    };
  };
  make.feed_forward = [&options, &config, layout, sparse = std::move(sparse)](
                          GraphBuilder& g, int64_t index, const std::string& name) {
    const bool has_experts = sparse.empty() || sparse[static_cast<size_t>(index)];
    return has_experts ? moe_call(g, options, config, layout, name) : dense_call(g, config, name);
  };
  return make;
}

}  // namespace headroom::model
