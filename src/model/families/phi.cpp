// Phi 1, 1.5 and 2 (transformers' PhiForCausalLM): attention and perceptron side by side on one
// norm, part of a head rotated, biases everywhere, on the head too.
#include "model/families/phi.h"

#include <memory>
#include <string>

#include "model/blocks/mlp.h"
#include "model/blocks/norm.h"
#include "model/blocks/self_attention.h"
#include "model/families/decoder_config.h"

namespace headroom::model {

namespace {

class Layer {
 public:
  Layer(GraphBuilder& g, const DecoderSpec& spec, const SelfAttentionShape& attention,
        const std::string& name)
      : dropout_(spec.residual_dropout),
        name_(name),
        attention_(g, attention, name + ".self_attn"),
        mlp_{Linear(g, name + ".mlp.fc1", spec.hidden, spec.intermediate, true),
             Linear(g, name + ".mlp.fc2", spec.intermediate, spec.hidden, true), spec.activation,
             0},
        norm_(g, name + ".input_layernorm", spec.hidden) {}

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input,
                 const LayerInputs& in) const {
    RegionScope region(g, RegionKind::layer, name_,
                       {&input, &in.cos, &in.sin, &in.mask, &in.positions});
    Var x = norm_(g, input);
    Attended attended;
    {
      RegionScope inner(g, RegionKind::attention, name_ + ".self_attn", {&x});
      attended = attention_(g, options, x, in);
      inner.leave({&attended.output});
    }
    attended.output = g.dropout(attended.output, dropout_);
    Var fed_forward;
    {
      RegionScope inner(g, RegionKind::mlp, name_ + ".mlp", {&x});
      fed_forward = mlp_(g, options, x);
      inner.leave({&fed_forward});
    }
    fed_forward = g.dropout(fed_forward, dropout_);
    x = g.add(g.add(attended.output, fed_forward), input);
    region.leave({&x});
    return x;
  }

 private:
  double dropout_;
  std::string name_;
  SelfAttention attention_;
  Mlp<Linear> mlp_;
  LayerNorm norm_;
};

}  // namespace

Result<Graph> build_phi(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec =
      read_decoder(in, json, options, {.partial_rotary = 0.5, .activation = Activation::gelu_new});
  spec.qkv_bias = true;
  spec.output_bias = true;
  spec.head_bias = true;
  spec.norm = DecoderNorm::layer;
  spec.norm_name = "final_layernorm";
  spec.embedding_dropout = in.dropout("embd_pdrop", 0, options);
  spec.keeps_embedding = false;
  spec.residual_dropout = in.dropout("resid_pdrop", 0, options);
  SelfAttentionShape attention = attention_shape(spec);
  attention.output_name = "dense";
  attention.splits_rotary = true;
  attention.keeps_parts = true;
  if (in.flag("qk_layernorm", false)) attention.norm = HeadNorm::layer;
  if (in.error()) return *in.error();
  return build_decoder_frame(
      spec, options, [&](GraphBuilder& g, int64_t, const std::string& name) -> LayerCall {
        auto layer = std::make_shared<Layer>(g, spec, attention, name);
        return [&g, &options, layer](const Var& x, const LayerInputs& inputs) {
          return (*layer)(g, options, x, inputs);
        };
      });
}

}  // namespace headroom::model
