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
  Attending(GraphBuilder& g, const DecoderSpec& spec, const std::string& name) : s_(spec) {
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
    if (s_.head_norms != HeadNorms::none) {
      q_norm_.emplace(g, s_.norm, name + ".q_norm", s_.head_dim);
      k_norm_.emplace(g, s_.norm, name + ".k_norm", s_.head_dim);
    }
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
      query = normed_heads(g, options, (*q_)(g, x), q_norm_);
      key = normed_heads(g, options, (*k_)(g, x), k_norm_);
      value = heads(g, options, (*v_)(g, x));
      if (s_.head_norms == HeadNorms::after_transpose) {
        query = (*q_norm_)(g, query);
        key = (*k_norm_)(g, key);
      }
    }
    std::tie(query, key) = rotate(g, options, query, key, in);
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
  Var heads(GraphBuilder& g, const BuildOptions& options, const Var& x) const {
    return g.transpose(g.view(x, {options.batch, options.sequence, -1, s_.head_dim}), 1, 2);
  }
  Var normed_heads(GraphBuilder& g, const BuildOptions& options, Var x,
                   const std::optional<NormOfDecoder>& norm) const {
    Var viewed = g.view(std::move(x), {options.batch, options.sequence, -1, s_.head_dim});
    if (s_.head_norms == HeadNorms::before_transpose) viewed = (*norm)(g, viewed);
    return g.transpose(std::move(viewed), 1, 2);
  }
  std::pair<Var, Var> rotate(GraphBuilder& g, const BuildOptions& options, const Var& query,
                             const Var& key, const LayerInputs& in) const {
    switch (s_.rotation) {
      case Rotation::halves:
        return apply_rotary(g, query, key, in.cos, in.sin, s_.head_dim);
      case Rotation::partial_halves:
        return apply_partial_rotary(g, query, key, in.cos, in.sin, s_.rotary_dims, s_.head_dim);
      case Rotation::partial_pairs:
        return apply_partial_rotary_to_pairs(g, options, query, key, in.cos, in.sin, s_.rotary_dims,
                                             s_.head_dim);
    }
    return {};
  }

  const DecoderSpec& s_;
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
        return (*out_)(g, g.mul(std::move(activated), (*up_)(g, x)));
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
    }
    return {};
  }

 private:
  const DecoderSpec& s_;
  std::optional<Linear> in_, up_, out_;
};

class DecoderLayer {
 public:
  DecoderLayer(GraphBuilder& g, const DecoderSpec& spec, std::string name)
      : s_(spec),
        name_(std::move(name)),
        attention_(g, spec, name_ + ".self_attn"),
        feed_forward_(g, spec, name_ + ".mlp"),
        before_attention_(norm(g, ".input_layernorm")) {
    // Each in the order of the module's constructor.
    switch (s_.norms) {
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
    Var residual = input;
    Var x = before_attention_(g, input);
    Var unused_weights;
    {
      RegionScope inner(g, RegionKind::attention, name_ + ".self_attn", {&x});
      const Attended attended = attention_(g, options, x, in);
      x = attended.output;
      unused_weights = attended.weights;
      inner.leave({&x});
    }
    if (after_attention_) x = (*after_attention_)(g, x);
    x = g.add(residual, onto_residual(g, x));
    residual = x;
    x = (*before_mlp_)(g, x);
    {
      RegionScope inner(g, RegionKind::mlp, name_ + ".mlp", {&x});
      x = feed_forward_(g, x);
      inner.leave({&x});
    }
    if (after_mlp_) x = (*after_mlp_)(g, x);
    x = g.add(residual, onto_residual(g, x));
    region.leave({&x});
    return x;
  }

 private:
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
  NormOfDecoder before_attention_;
  std::optional<NormOfDecoder> after_attention_, before_mlp_, after_mlp_;
};

}  // namespace

Graph build_causal_decoder(const DecoderSpec& spec, const BuildOptions& options) {
  return build_decoder_frame(
      spec, options, [&](GraphBuilder& g, int64_t, const std::string& name) -> LayerCall {
        auto layer = std::make_shared<DecoderLayer>(g, spec, name);
        return [&g, &options, layer](const Var& x, const LayerInputs& inputs) {
          return (*layer)(g, options, x, inputs);
        };
      });
}

}  // namespace headroom::model
