#include "model/blocks/causal_decoder.h"
#include "model/blocks/cache.h"

#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "model/blocks/attention.h"
#include "model/blocks/linear.h"
#include "model/blocks/rotary.h"

namespace headroom::model {

namespace {

class Attending {
 public:
  Attending(GraphBuilder& g, const DecoderSpec& spec, int64_t index, const std::string& name)
      : s_(spec),
        rotates_(spec.rotates_layer.empty() || spec.rotates_layer[static_cast<size_t>(index)]) {
    const int64_t query = s_.heads * s_.head_dim;
    const int64_t key = s_.kv_heads * s_.head_dim;
    // Phi-3 declares the output projection first.
    if (s_.fused_qkv) {
      o_.emplace(g, name + ".o_proj", query, s_.hidden, s_.output_bias);
      qkv_.emplace(g, name + ".qkv_proj", s_.hidden, query + 2 * key, s_.qkv_bias);
    } else {
      q_.emplace(g, name + ".q_proj", s_.hidden, query, s_.qkv_bias);
      k_.emplace(g, name + ".k_proj", s_.hidden, key, s_.qkv_bias);
      v_.emplace(g, name + ".v_proj", s_.hidden, key, s_.qkv_bias);
      o_.emplace(g, name + ".o_proj", query, s_.hidden, s_.output_bias);
    }
    declare_head_norms(g, name);
  }

  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                      const LayerInputs& in) const {
    const int64_t b = options.batch;
    const int64_t s = options.sequence;
    Var fused;
    Var query, key, value;
    if (qkv_) {
      fused = (*qkv_)(g, x);
      const int64_t key_begin = s_.heads * s_.head_dim;
      const int64_t value_begin = key_begin + s_.kv_heads * s_.head_dim;
      query = g.slice(fused, -1, 0, key_begin);
      key = g.slice(fused, -1, key_begin, value_begin);
      value = g.slice(fused, -1, value_begin, value_begin + s_.kv_heads * s_.head_dim);
      query = heads(g, options, query);
      key = heads(g, options, key);
      value = heads(g, options, value);
    } else {
      std::tie(query, key, value) = projected(g, options, x);
    }
    if (s_.head_norms == HeadNorms::after_transpose) norm_both(g, query, key);
    if (rotates_) std::tie(query, key) = rotate(g, options, query, key, in);
    if (s_.head_norms == HeadNorms::after_rotation) norm_both(g, query, key);
    if (s_.scales_queries) query = scaled_by_position(g, query, in.positions);
    AttentionShape shape{b, s, s_.heads, s_.kv_heads, s_.head_dim, s_.attention_dropout, true};
    shape.softcap = s_.softcap_scores;
    shape.repeats_for_flash = s_.repeats_for_flash;
    rebind_to_cache(g, options, shape, key, value);
    Attended attended = attend(g, options, shape, query, key, value, in.mask);
    attended.output = g.contiguous(g.reshape(attended.output, {b, s, -1}));
    attended.output = (*o_)(g, attended.output);
    attended.output = g.dropout(attended.output, s_.attention_output_dropout);
    return attended;
  }

 private:
  void declare_head_norms(GraphBuilder& g, const std::string& name) {
    const auto declare = [&](std::optional<NormOfDecoder>& norm, const char* part, int64_t heads) {
      if (s_.head_norms == HeadNorms::own_for_each) {
        norm.emplace(g, name + part + "_norm", Dims{heads, s_.head_dim});
      } else if (s_.head_norms == HeadNorms::after_rotation) {
        norm.emplace(g, s_.norm, name + part + "_layernorm", s_.head_dim);
      } else {
        const int64_t normed = s_.head_norms == HeadNorms::all_heads ? heads : 1;
        norm.emplace(g, s_.norm, name + part + "_norm", normed * s_.head_dim);
      }
    };
    if (s_.head_norms == HeadNorms::none) return;
    const bool in_full = s_.head_norms == HeadNorms::after_rotation;
    declare(q_norm_, in_full ? ".query" : ".q", s_.heads);
    declare(k_norm_, in_full ? ".key" : ".k", s_.kv_heads);
  }
  std::tuple<Var, Var, Var> projected(GraphBuilder& g, const BuildOptions& options,
                                      const Var& x) const {
    if (s_.head_cut != HeadCut::each) return projected_first(g, options, x);
    Var query = normed_heads(g, options, (*q_)(g, x), q_norm_);
    Var key = normed_heads(g, options, (*k_)(g, x), k_norm_);
    return {std::move(query), std::move(key), heads(g, options, (*v_)(g, x))};
  }
  // The three products, before anything is turned.
  std::tuple<Var, Var, Var> projected_first(GraphBuilder& g, const BuildOptions& options,
                                            const Var& x) const {
    const auto product = [&](const std::optional<Linear>& linear,
                             const std::optional<NormOfDecoder>& norm) {
      Var projected = (*linear)(g, x);
      if (s_.head_norms == HeadNorms::all_heads && norm) projected = (*norm)(g, projected);
      if (s_.head_cut == HeadCut::turned_last) projected = cut(g, options, projected);
      return projected;
    };
    Var query = product(q_, q_norm_);
    Var key = product(k_, k_norm_);
    Var value = product(v_, std::nullopt);
    if (s_.head_norms == HeadNorms::own_for_each) norm_both(g, query, key);
    if (s_.clips_products) {
      for (Var* each : {&query, &key, &value}) *each = g.clamp_assign(std::move(*each), 2);
    }
    for (Var* each : {&query, &key, &value}) {
      if (s_.head_cut == HeadCut::last) *each = cut(g, options, *each);
      *each = g.transpose(*each, 1, 2);
    }
    return {std::move(query), std::move(key), std::move(value)};
  }
  void norm_both(GraphBuilder& g, Var& query, Var& key) const {
    query = (*q_norm_)(g, query);
    key = (*k_norm_)(g, key);
  }
  // query * (1 + beta * log(1 + floor(position / trained positions))), the factor in query's type.
  static Var scaled_by_position(GraphBuilder& g, const Var& query, const Var& positions) {
    Var scale;
    {
      const Var scaling = g.add(
          g.mul(g.log(g.add(g.floor_divide(g.to(positions, DType::f32), 1.0), 1.0)), 1.0), 1.0);
      scale = g.unsqueeze(g.unsqueeze(scaling, 1), -1);
    }
    return g.mul(query, g.to_like(std::move(scale), query));
  }
  // [batch, sequence, heads, head]
  Var cut(GraphBuilder& g, const BuildOptions& options, Var x) const {
    return g.view(std::move(x), {options.batch, options.sequence, -1, s_.head_dim});
  }
  Var heads(GraphBuilder& g, const BuildOptions& options, const Var& x) const {
    return g.transpose(cut(g, options, x), 1, 2);
  }
  Var normed_heads(GraphBuilder& g, const BuildOptions& options, Var x,
                   const std::optional<NormOfDecoder>& norm) const {
    Var viewed = cut(g, options, std::move(x));
    if (s_.head_norms == HeadNorms::before_transpose) viewed = (*norm)(g, viewed);
    return g.transpose(std::move(viewed), 1, 2);
  }
  std::pair<Var, Var> rotate(GraphBuilder& g, const BuildOptions& options, const Var& query,
                             const Var& key, const LayerInputs& in) const {
    switch (s_.rotation) {
      case Rotation::halves: {
        const auto turned = apply_rotary(g, query, key, in.cos, in.sin, s_.head_dim);
        if (s_.tables != RotaryTables::wide) return turned;
        Var narrowed = g.to_like(turned.first, query);
        return {narrowed, g.to_like(turned.second, key)};
      }
      case Rotation::partial_halves:
        return apply_partial_rotary(g, query, key, in.cos, in.sin, s_.rotary_dims, s_.head_dim);
      case Rotation::partial_pairs:
        return apply_partial_rotary_to_pairs(g, options, query, key, in.cos, in.sin, s_.rotary_dims,
                                             s_.head_dim);
      case Rotation::pairs:
        return apply_rotary_to_neighbours(g, options, query, key, in.cos, in.sin, s_.head_dim,
                                          s_.pair_rotation);
    }
    return {};
  }

  const DecoderSpec& s_;
  bool rotates_;
  std::optional<Linear> q_, k_, v_, qkv_, o_;
  std::optional<NormOfDecoder> q_norm_, k_norm_;
};

class FeedingForward {
 public:
  FeedingForward(GraphBuilder& g, const DecoderSpec& spec, const std::string& name) : s_(spec) {
    const auto linear = [&](const char* part, int64_t in, int64_t out) {
      return Linear(g, name + part, in, out, s_.mlp_bias);
    };
    switch (s_.feed_forward) {
      case FeedForwardKind::gated:
        in_ = linear(".gate_proj", s_.hidden, s_.intermediate);
        up_ = linear(".up_proj", s_.hidden, s_.intermediate);
        out_ = linear(".down_proj", s_.intermediate, s_.hidden);
        break;
      case FeedForwardKind::fused_gated:
        in_ = linear(".gate_up_proj", s_.hidden, 2 * s_.intermediate);
        out_ = linear(".down_proj", s_.intermediate, s_.hidden);
        break;
      case FeedForwardKind::plain:
        in_ = linear(".c_fc", s_.hidden, s_.intermediate);
        out_ = linear(".c_proj", s_.intermediate, s_.hidden);
        break;
      case FeedForwardKind::ungated:
        in_ = linear(".up_proj", s_.hidden, s_.intermediate);
        out_ = linear(".down_proj", s_.intermediate, s_.hidden);
        break;
    }
  }

  Var operator()(GraphBuilder& g, const Var& x) const {
    switch (s_.feed_forward) {
      case FeedForwardKind::gated: {
        // Named, since C++ does not say in which order arguments are made.
        Var activated;
        {
          const Var gate = (*in_)(g, x);
          activated = activate(g, s_.activation, gate);
        }
        const Var hidden = (*out_)(g, g.mul(std::move(activated), (*up_)(g, x)));
        return g.dropout(hidden, s_.mlp_output_dropout);
      }
      case FeedForwardKind::fused_gated: {
        Var up = (*in_)(g, x);
        const std::vector<Var> halves = g.split(up, {s_.intermediate, s_.intermediate}, -1);
        up = halves[1];
        up = g.mul(up, activate(g, s_.activation, halves[0]));
        return (*out_)(g, up);
      }
      case FeedForwardKind::plain: {
        Var hidden = (*in_)(g, x);
        hidden = activate(g, s_.activation, hidden);
        hidden = (*out_)(g, hidden);
        return g.dropout(hidden, s_.mlp_output_dropout);
      }
      case FeedForwardKind::ungated: {
        Var activated;
        {
          const Var up = (*in_)(g, x);
          activated = activate(g, s_.activation, up);
        }
        return (*out_)(g, std::move(activated));
      }
    }
    return {};
  }

 private:
  const DecoderSpec& s_;
  std::optional<Linear> in_, up_, out_;
};

class DecoderLayer {
 public:
  DecoderLayer(GraphBuilder& g, const DecoderSpec& spec, int64_t index, std::string name)
      : s_(spec),
        name_(std::move(name)),
        attention_(g, spec, index, name_ + ".self_attn"),
        feed_forward_(g, spec, name_ + ".mlp") {
    if (s_.norms != NormPlacement::after) before_attention_ = norm(g, ".input_layernorm");
    // Each in the order of the module's constructor.
    switch (s_.norms) {
      case NormPlacement::shared:
        break;
      case NormPlacement::after:
        after_attention_ = norm(g, ".post_attention_layernorm");
        after_mlp_ = norm(g, ".post_feedforward_layernorm");
        break;
      case NormPlacement::before:
        before_mlp_ = norm(g, ".post_attention_layernorm");
        break;
      case NormPlacement::gemma:
        after_attention_ = norm(g, ".post_attention_layernorm");
        before_mlp_ = norm(g, ".pre_feedforward_layernorm");
        after_mlp_ = norm(g, ".post_feedforward_layernorm");
        break;
      case NormPlacement::glm:
        before_mlp_ = norm(g, ".post_attention_layernorm");
        after_attention_ = norm(g, ".post_self_attn_layernorm");
        after_mlp_ = norm(g, ".post_mlp_layernorm");
        break;
    }
  }

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input,
                 const LayerInputs& in) const {
    RegionScope region(g, RegionKind::layer, name_,
                       {&input, &in.cos, &in.sin, &in.mask, &in.positions});
    Var x = s_.norms == NormPlacement::shared ? side_by_side(g, options, input, in)
                                              : one_by_one(g, options, input, in);
    region.leave({&x});
    return x;
  }

 private:
  Var one_by_one(GraphBuilder& g, const BuildOptions& options, const Var& input,
                 const LayerInputs& in) const {
    Var residual = input;
    Var x = before_attention_ ? (*before_attention_)(g, input) : input;
    Var unused_weights;
    std::tie(x, unused_weights) = attend(g, options, x, in);
    if (after_attention_) x = (*after_attention_)(g, x);
    x = g.add(residual, onto_residual(g, x));
    residual = x;
    if (before_mlp_) x = (*before_mlp_)(g, x);
    x = fed_forward(g, x);
    if (after_mlp_) x = (*after_mlp_)(g, x);
    return g.add(residual, onto_residual(g, x));
  }
  Var side_by_side(GraphBuilder& g, const BuildOptions& options, const Var& input,
                   const LayerInputs& in) const {
    const Var x = (*before_attention_)(g, input);
    const auto [attended, unused_weights] = attend(g, options, x, in);
    const Var fed = fed_forward(g, x);
    return g.add(g.add(input, attended), fed);
  }
  // What attention gives, and the weights that the caller's `_` holds.
  std::pair<Var, Var> attend(GraphBuilder& g, const BuildOptions& options, const Var& x,
                             const LayerInputs& in) const {
    RegionScope inner(g, RegionKind::attention, name_ + ".self_attn", {&x});
    Attended attended = attention_(g, options, x, in);
    inner.leave({&attended.output});
    return {std::move(attended.output), std::move(attended.weights)};
  }
  Var fed_forward(GraphBuilder& g, const Var& x) const {
    RegionScope inner(g, RegionKind::mlp, name_ + ".mlp", {&x});
    Var fed = feed_forward_(g, x);
    inner.leave({&fed});
    return fed;
  }
  NormOfDecoder norm(GraphBuilder& g, const char* part) const {
    return {g, s_.norm, name_ + part, s_.hidden};
  }
  // What is added to the residual stream.
  Var onto_residual(GraphBuilder& g, const Var& x) const {
    if (s_.residual_multiplier) return g.mul(x, *s_.residual_multiplier);
    return g.dropout(x, s_.residual_dropout);
  }

  const DecoderSpec& s_;
  std::string name_;
  Attending attention_;
  FeedingForward feed_forward_;
  std::optional<NormOfDecoder> before_attention_, after_attention_, before_mlp_, after_mlp_;
};

}  // namespace

Graph build_causal_decoder(const DecoderSpec& spec, const BuildOptions& options) {
  return build_decoder_frame(
      spec, options, [&](GraphBuilder& g, int64_t index, const std::string& name) -> LayerCall {
        auto layer = std::make_shared<DecoderLayer>(g, spec, index, name);
        return [&g, &options, layer](const Var& x, const LayerInputs& inputs) {
          return (*layer)(g, options, x, inputs);
        };
      });
}

}  // namespace headroom::model
