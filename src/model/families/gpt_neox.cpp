// GPT-NeoX and Pythia (transformers' GPTNeoXForCausalLM): attention and perceptron side by side on
// norms of their own, query, key and value of a head from one product, part of a head rotated.
#include "model/families/gpt_neox.h"

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "model/blocks/attention.h"
#include "model/blocks/linear.h"
#include "model/blocks/mlp.h"
#include "model/blocks/norm.h"
#include "model/blocks/rotary.h"
#include "model/families/decoder_config.h"

namespace headroom::model {

namespace {

struct Config {
  DecoderSpec spec;
  double hidden_dropout = 0;
  bool parallel = true;
};

class HeadwiseAttention {
 public:
  HeadwiseAttention(GraphBuilder& g, const DecoderSpec& spec, const std::string& name)
      : s_(spec),
        qkv_(g, name + ".query_key_value", s_.hidden, 3 * s_.hidden, s_.qkv_bias),
        dense_(g, name + ".dense", s_.hidden, s_.hidden, s_.output_bias) {}

  Attended operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                      const LayerInputs& in) const {
    const int64_t b = options.batch;
    const int64_t s = options.sequence;
    const int64_t head = s_.head_dim;
    const Var fused = g.transpose(g.view(qkv_(g, x), {b, s, -1, 3 * head}), 1, 2);
    const std::vector<Var> parts = g.split(fused, {head, head, head}, -1);
    const auto [query, key] =
        rotate_then_join(g, parts[0], parts[1], in.cos, in.sin, s_.rotary_dims, head);
    const AttentionShape shape{b, s, s_.heads, s_.heads, head, s_.attention_dropout, true};
    Attended attended = attend(g, options, shape, query, key, parts[2], in.mask);
    attended.output = g.contiguous(g.reshape(attended.output, {b, s, -1}));
    attended.output = dense_(g, attended.output);
    return attended;
  }

 private:
  const DecoderSpec& s_;
  Linear qkv_, dense_;
};

class Layer {
 public:
  Layer(GraphBuilder& g, const Config& config, const std::string& name)
      : c_(config),
        name_(name),
        input_norm_(g, name + ".input_layernorm", c_.spec.hidden),
        mlp_norm_(g, name + ".post_attention_layernorm", c_.spec.hidden),
        attention_(g, c_.spec, name + ".attention"),
        mlp_{Linear(g, name + ".mlp.dense_h_to_4h", c_.spec.hidden, c_.spec.intermediate, true),
             Linear(g, name + ".mlp.dense_4h_to_h", c_.spec.intermediate, c_.spec.hidden, true),
             c_.spec.activation, 0} {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input,
                 const LayerInputs& in) const {
    RegionScope region(g, RegionKind::layer, name_,
                       {&input, &in.cos, &in.sin, &in.mask, &in.positions});
    Attended attended = attention(g, options, input, in);
    attended.output = g.dropout(attended.output, c_.hidden_dropout);
    if (!c_.parallel) attended.output = g.add(attended.output, input);
    Var x = feed_forward(g, options, c_.parallel ? input : attended.output);
    x = g.dropout(x, c_.hidden_dropout);
    x = c_.parallel ? g.add(g.add(x, attended.output), input) : g.add(x, attended.output);
    region.leave({&x});
    return x;
  }

 private:
  Attended attention(GraphBuilder& g, const BuildOptions& options, const Var& input,
                     const LayerInputs& in) const {
    const Var normed = input_norm_(g, input);
    RegionScope region(g, RegionKind::attention, name_ + ".attention", {&normed});
    Attended attended = attention_(g, options, normed, in);
    region.leave({&attended.output});
    return attended;
  }
  Var feed_forward(GraphBuilder& g, const BuildOptions& options, const Var& input) const {
    const Var normed = mlp_norm_(g, input);
    RegionScope region(g, RegionKind::mlp, name_ + ".mlp", {&normed});
    Var output = mlp_(g, options, normed);
    region.leave({&output});
    return output;
  }

  const Config& c_;
  std::string name_;
  LayerNorm input_norm_, mlp_norm_;
  HeadwiseAttention attention_;
  Mlp<Linear> mlp_;
};

}  // namespace

Result<Graph> build_gpt_neox(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Config c;
  c.spec = read_decoder(
      in, json, options,
      {.partial_rotary = 0.25, .partial_rotary_key = "rotary_pct", .activation = Activation::gelu});
  c.spec.qkv_bias = in.flag("attention_bias", true);
  c.spec.output_bias = c.spec.qkv_bias;
  c.spec.model_name = "gpt_neox";
  c.spec.embedding_name = "embed_in";
  c.spec.norm_name = "final_layer_norm";
  c.spec.norm = DecoderNorm::layer;
  c.spec.own_loss = kLossInModelType;
  c.hidden_dropout = in.dropout("hidden_dropout", 0, options);
  c.spec.embedding_dropout = c.hidden_dropout;
  c.parallel = in.flag("use_parallel_residual", true);
  in.require(c.spec.hidden % c.spec.heads == 0, "num_attention_heads",
             "the heads do not divide hidden_size");
  if (in.error()) return *in.error();
  return build_decoder_frame(
      c.spec, options, [&](GraphBuilder& g, int64_t, const std::string& name) -> LayerCall {
        auto layer = std::make_shared<Layer>(g, c, name);
        return [&g, &options, layer](const Var& x, const LayerInputs& inputs) {
          return (*layer)(g, options, x, inputs);
        };
      });
}

}  // namespace headroom::model
