// StableLM (transformers' StableLmForCausalLM): Llama's gated feed-forward part under layer norms,
// part of a head rotated; attention and feed-forward part side by side where the config says so.
#include "model/families/stablelm.h"

#include <memory>
#include <optional>
#include <string>

#include "model/blocks/gated_mlp.h"
#include "model/blocks/norm.h"
#include "model/blocks/self_attention.h"
#include "model/families/decoder_config.h"

namespace headroom::model {

namespace {

class Layer {
 public:
  Layer(GraphBuilder& g, const DecoderSpec& spec, const SelfAttentionShape& attention,
        bool parallel, const std::string& name)
      : dropout_(spec.residual_dropout),
        name_(name),
        attention_(g, attention, name + ".self_attn"),
        mlp_(g, name + ".mlp", spec.hidden, spec.intermediate, spec.activation),
        input_norm_(g, name + ".input_layernorm", spec.hidden) {
    if (!parallel) mlp_norm_.emplace(g, name + ".post_attention_layernorm", spec.hidden);
  }

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input,
                 const LayerInputs& in) const {
    RegionScope region(g, RegionKind::layer, name_,
                       {&input, &in.cos, &in.sin, &in.mask, &in.positions});
    Var residual = input;
    Var x = input_norm_(g, input);
    Attended attended;
    {
      RegionScope inner(g, RegionKind::attention, name_ + ".self_attn", {&x});
      attended = attention_(g, options, x, in);
      inner.leave({&attended.output});
    }
    Var fed_forward;
    if (!mlp_norm_) {
      fed_forward = g.dropout(feed_forward(g, x), dropout_);
      x = g.add(g.add(residual, attended.output), fed_forward);
    } else {
      residual = g.add(residual, attended.output);
      fed_forward = feed_forward(g, (*mlp_norm_)(g, residual));
      fed_forward = g.dropout(fed_forward, dropout_);
      x = g.add(residual, fed_forward);
    }
    region.leave({&x});
    return x;
  }

 private:
  Var feed_forward(GraphBuilder& g, const Var& x) const {
    RegionScope region(g, RegionKind::mlp, name_ + ".mlp", {&x});
    Var output = mlp_(g, x);
    region.leave({&output});
    return output;
  }

  double dropout_;
  std::string name_;
  SelfAttention attention_;
  GatedMlp mlp_;
  LayerNorm input_norm_;
  std::optional<LayerNorm> mlp_norm_;  // absent where both parts see the same norm
};

}  // namespace

Result<Graph> build_stablelm(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(in, json, options, {.partial_rotary = 0.25, .kv_heads = 32});
  spec.qkv_bias = in.flag("use_qkv_bias", false);
  spec.norm = DecoderNorm::layer;
  spec.own_loss = kLossInModelType;
  spec.residual_dropout = in.dropout("hidden_dropout", 0, options);
  SelfAttentionShape attention = attention_shape(spec);
  attention.projects_first = true;
  attention.splits_rotary = true;
  attention.keeps_parts = true;
  if (in.flag("qk_layernorm", false)) attention.norm = HeadNorm::layers_by_head;
  const bool parallel = in.flag("use_parallel_residual", false);
  if (in.error()) return *in.error();
  return build_decoder_frame(
      spec, options, [&](GraphBuilder& g, int64_t, const std::string& name) -> LayerCall {
        auto layer = std::make_shared<Layer>(g, spec, attention, parallel, name);
        return [&g, &options, layer](const Var& x, const LayerInputs& inputs) {
          return (*layer)(g, options, x, inputs);
        };
      });
}

}  // namespace headroom::model
