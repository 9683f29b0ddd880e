#include "model/blocks/gemma4_layer.h"

#include <optional>
#include <tuple>

#include "model/blocks/attention.h"
#include "model/blocks/decoder_norm.h"
#include "model/blocks/gated_mlp.h"
#include "model/blocks/linear.h"
#include "model/blocks/rotary.h"

namespace headroom::model {

namespace {

class Gemma4Attention {
 public:
  Gemma4Attention(GraphBuilder& g, const Gemma4Shape& s, int64_t index, const std::string& name,
                  std::shared_ptr<SharedStates> shared)
      : s_(s), kind_(s.kind_of(index)), shared_(std::move(shared)) {
    const bool is_full = kind_ == LayerMask::full;
    head_dim_ = is_full ? s.full_head_dim : s.head_dim;
    kv_heads_ = is_full ? s.full_kv_heads : s.kv_heads;
    takes_over_ = s.takes_over(index);
    is_taken_from_ = s.is_taken_from(index);
    const auto linear = [&](const char* part, int64_t in, int64_t out) {
      return Linear(g, name + part, in, out, s.attention_bias);
    };
    q_ = linear(".q_proj", s.hidden, s.heads * head_dim_);
    q_norm_.emplace(g, name + ".q_norm", head_dim_);
    if (!takes_over_) {
      k_norm_.emplace(g, name + ".k_norm", head_dim_);
      k_ = linear(".k_proj", s.hidden, kv_heads_ * head_dim_);
      if (!is_full || !s.keys_are_values) v_ = linear(".v_proj", s.hidden, kv_heads_ * head_dim_);
    }
    o_ = linear(".o_proj", s.heads * head_dim_, s.hidden);
  }

  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                      const LayerInputs& in) const {
    Var query = heads(g, options, (*q_)(g, x));
    query = (*q_norm_)(g, query);
    query = apply_rotary_to_one(g, query, in.cos, in.sin, head_dim_, 2);
    query = g.transpose(query, 1, 2);
    auto [key, value] = takes_over_ ? shared_->at(kind_) : own_states(g, options, x, in);
    if (is_taken_from_) (*shared_)[kind_] = {key, value};
    AttentionShape shape{options.batch, options.sequence,     s_.heads, kv_heads_,
                         head_dim_,     s_.attention_dropout, true};
    shape.is_cached = takes_over_;
    Attended attended = attend(g, options, shape, query, key, value, in.mask);
    attended.output =
        g.contiguous(g.reshape(attended.output, {options.batch, options.sequence, -1}));
    attended.output = (*o_)(g, attended.output);
    return attended;
  }

 private:
  // [batch, sequence, heads, head]
  Var heads(GraphBuilder& g, const BuildOptions& options, Var x) const {
    return g.view(std::move(x), {options.batch, options.sequence, -1, head_dim_});
  }
  // [batch, heads, sequence, head], both.
  std::pair<Var, Var> own_states(GraphBuilder& g, const BuildOptions& options, const Var& x,
                                 const LayerInputs& in) const {
    Var key = heads(g, options, (*k_)(g, x));
    Var value = v_ ? heads(g, options, (*v_)(g, x)) : key;
    key = (*k_norm_)(g, key);
    key = apply_rotary_to_one(g, key, in.cos, in.sin, head_dim_, 2);
    key = g.transpose(key, 1, 2);
    value = PoweredRmsNorm()(g, value);
    value = g.transpose(value, 1, 2);
    return {std::move(key), std::move(value)};
  }

  const Gemma4Shape& s_;
  LayerMask kind_;
  std::shared_ptr<SharedStates> shared_;
  int64_t head_dim_ = 0, kv_heads_ = 0;
  bool takes_over_ = false, is_taken_from_ = false;
  std::optional<Linear> q_, k_, v_, o_;
  std::optional<PoweredRmsNorm> q_norm_, k_norm_;
};

// What the layer's function holds until it returns: `_`, and of a mixture what it is made of.
struct Held {
  Var unused, beside, weights, chosen, mixed;
};

// A mixture beside the feed-forward part, from what that is given before its norm.
class Gemma4Mixture {
 public:
  Gemma4Mixture(GraphBuilder& g, const BuildOptions& options, const Gemma4Shape& s,
                const std::string& name)
      : s_(s),
        scale_(g.parameter(name + ".router.scale", {s.hidden}, ParameterRole::other)),
        expert_scale_(g.parameter(name + ".router.per_expert_scale", {s.experts.experts},
                                  ParameterRole::other)),
        router_(g, name + ".router.proj", s.hidden, s.experts.experts, false),
        experts_(g, options, s.experts, name + ".experts"),
        after_mlp_(g, name + ".post_feedforward_layernorm_1", s.hidden),
        after_(g, name + ".post_feedforward_layernorm_2", s.hidden),
        before_(g, name + ".pre_feedforward_layernorm_2", s.hidden) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& fed, const Var& residual,
                 Held& held) const {
    held.beside = after_mlp_(g, fed);
    const Var rows = g.reshape(residual, {-1, s_.hidden});
    std::tie(held.unused, held.weights, held.chosen) = routed(g, rows);
    held.mixed = before_(g, rows);
    held.mixed = experts_(g, options, held.mixed, held.chosen, held.weights);
    held.mixed = g.reshape(held.mixed, {options.batch, options.sequence, s_.hidden});
    held.mixed = after_(g, held.mixed);
    return g.add(held.beside, held.mixed);
  }

 private:
  // Probabilities of all experts, weights of the chosen ones, which they are.
  std::tuple<Var, Var, Var> routed(GraphBuilder& g, const Var& rows) const {
    Var x = PoweredRmsNorm()(g, rows);
    x = g.mul(g.mul(x, scale_), 1.0);
    const Var scores = router_(g, x);
    const Var probabilities = g.softmax(scores, -1, DType::f32);
    const auto top = g.topk(probabilities, s_.experts.top_k);
    Var weights = top[0];
    weights = g.div_assign(weights, g.sum(weights, {-1}, true));
    weights = g.mul(weights, g.index(expert_scale_, top[1]));
    return {probabilities, weights, top[1]};
  }

  const Gemma4Shape& s_;
  Var scale_, expert_scale_;
  Linear router_;
  Experts experts_;
  PoweredRmsNorm after_mlp_, after_, before_;
};

class Gemma4Layer {
 public:
  Gemma4Layer(GraphBuilder& g, const BuildOptions& options, const Gemma4Shape& s, int64_t index,
              std::string name, const std::shared_ptr<SharedStates>& shared)
      : s_(s),
        name_(std::move(name)),
        index_(index),
        shared_(shared),
        attention_(g, s, index, name_ + ".self_attn", shared),
        mlp_(g, name_ + ".mlp", s.hidden,
             s.intermediate * (s.double_wide && s.takes_over(index) ? 2 : 1), s.activation),
        before_attention_(norm(g, ".input_layernorm")),
        after_attention_(norm(g, ".post_attention_layernorm")),
        before_mlp_(norm(g, ".pre_feedforward_layernorm")),
        after_mlp_(norm(g, ".post_feedforward_layernorm")),
        scalar_(g.buffer(name_ + ".layer_scalar", {1}, std::nullopt, true)) {
    if (s.layer_embedding > 0) {
      gate_.emplace(g, name_ + ".per_layer_input_gate", s.hidden, s.layer_embedding, false);
      projection_.emplace(g, name_ + ".per_layer_projection", s.layer_embedding, s.hidden, false);
      after_projection_ = norm(g, ".post_per_layer_input_norm");
    }
    if (s.experts.experts > 0) mixture_.emplace(g, options, s, name_);
  }

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input,
                 const LayerInputs& in) const {
    const Var embedding = in.for_layers ? g.select(in.for_layers, 2, index_) : Var();
    Var key, value;
    if (s_.takes_over(index_)) std::tie(key, value) = shared_->at(s_.kind_of(index_));
    RegionScope region(
        g, RegionKind::layer, name_,
        {&input, &embedding, &in.cos, &in.sin, &in.mask, &in.positions, &key, &value});
    region.set_positional(2);
    Held held;
    Var x = attended(g, options, input, in, held);
    x = fed(g, options, x, held);
    if (embedding) x = with_embedding(g, x, embedding);
    x = g.mul_assign(x, scalar_);
    Var made_key, made_value;
    if (s_.is_taken_from(index_)) std::tie(made_key, made_value) = shared_->at(s_.kind_of(index_));
    region.leave({&x, &made_key, &made_value});
    return x;
  }

 private:
  PoweredRmsNorm norm(GraphBuilder& g, const char* part) const {
    return {g, name_ + part, s_.hidden};
  }
  Var attended(GraphBuilder& g, const BuildOptions& options, const Var& input,
               const LayerInputs& in, Held& held) const {
    Var x = before_attention_(g, input);
    {
      RegionScope inner(g, RegionKind::attention, name_ + ".self_attn", {&x});
      Attended attended = attention_(g, options, x, in);
      inner.leave({&attended.output});
      x = std::move(attended.output);
      held.unused = std::move(attended.weights);
    }
    x = after_attention_(g, x);
    return g.add(input, x);
  }
  Var fed(GraphBuilder& g, const BuildOptions& options, const Var& residual, Held& held) const {
    Var x = before_mlp_(g, residual);
    {
      RegionScope inner(g, RegionKind::mlp, name_ + ".mlp", {&x});
      Var out = mlp_(g, x);
      inner.leave({&out});
      x = std::move(out);
    }
    if (mixture_) x = (*mixture_)(g, options, x, residual, held);
    x = after_mlp_(g, x);
    return g.add(residual, x);
  }
  Var with_embedding(GraphBuilder& g, const Var& residual, const Var& embedding) const {
    Var x = (*gate_)(g, residual);
    x = activate(g, s_.activation, x);
    x = g.mul(x, embedding);
    x = (*projection_)(g, x);
    x = after_projection_(g, x);
    return g.add(residual, x);
  }

  const Gemma4Shape& s_;
  std::string name_;
  int64_t index_;
  std::shared_ptr<SharedStates> shared_;
  Gemma4Attention attention_;
  GatedMlp mlp_;
  PoweredRmsNorm before_attention_, after_attention_, before_mlp_, after_mlp_, after_projection_;
  Var scalar_;
  std::optional<Linear> gate_, projection_;
  std::optional<Gemma4Mixture> mixture_;
};

}  // namespace

bool Gemma4Shape::is_taken_from(int64_t layer) const {
  if (sharing_layers == 0 || takes_over(layer)) return false;
  for (int64_t next = layer + 1; !takes_over(next); ++next) {
    if (kind_of(next) == kind_of(layer)) return false;
  }
  return true;
}

LayerCall gemma4_layer(GraphBuilder& g, const BuildOptions& options, const Gemma4Shape& shape,
                       int64_t index, const std::string& name,
                       const std::shared_ptr<SharedStates>& shared) {
  auto layer = std::make_shared<Gemma4Layer>(g, options, shape, index, name, shared);
  return [&g, &options, layer](const Var& x, const LayerInputs& in) {
    return (*layer)(g, options, x, in);
  };
}

ForLayersCalls gemma4_layer_embeddings(GraphBuilder& g, const Gemma4Shape& shape) {
  struct Modules {
    Var table, scale;
    Linear projection;
    PoweredRmsNorm norm;
  };
  const auto path = [&](const char* part) { return shape.model_name + "." + part; };
  const int64_t columns = shape.layers * shape.layer_embedding;
  const Var table = g.parameter(path("embed_tokens_per_layer.weight"),
                                {shape.layer_vocabulary, columns}, ParameterRole::embedding);
  const Var scale = g.buffer(path("embed_tokens_per_layer.embed_scale"), {}, std::nullopt, false);
  const Linear projection(g, path("per_layer_model_projection"), shape.hidden, columns, false);
  const PoweredRmsNorm norm(g, path("per_layer_projection_norm"), shape.layer_embedding);
  const auto modules = std::make_shared<Modules>(Modules{table, scale, projection, norm});
  const auto sizes = [layers = shape.layers, width = shape.layer_embedding](const BuildOptions& o) {
    return std::vector<int64_t>{o.batch, o.sequence, layers, width};
  };
  ForLayersCalls calls;
  calls.look_up = [modules, sizes](GraphBuilder& b, const BuildOptions& options, const Var& ids) {
    Var looked_up;
    {
      Var rows = b.embedding(modules->table, ids);
      looked_up = b.mul(std::move(rows), b.to_like(modules->scale, modules->table));
    }
    return b.reshape(std::move(looked_up), sizes(options));
  };
  calls.put_together = [modules, sizes](GraphBuilder& b, const BuildOptions& options,
                                        const Var& looked_up, const Var& embedded) {
    Var projected = b.mul(modules->projection(b, embedded), 1.0);
    projected = b.reshape(projected, sizes(options));
    projected = modules->norm(b, projected);
    return b.mul(b.add(projected, looked_up), 1.0);
  };
  return calls;
}

}  // namespace headroom::model
