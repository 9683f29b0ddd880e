#include "model/blocks/decoder.h"

#include <memory>
#include <optional>
#include <utility>

namespace headroom::model {

namespace {

class Layer {
 public:
  Layer(GraphBuilder& g, const DecoderShape& shape, const LayerMaker& make, int64_t index,
        const std::string& name)
      : name_(name),
        attention_name_(name + "." + make.attention_name(index)),
        feed_forward_name_(name + "." + make.feed_forward_name),
        scaled_(shape.scaled),
        keeps_attention_(shape.keeps_attention),
        attention_(make.attention(g, index, attention_name_)) {
    if (shape.norms_first) make_norms(g, shape);
    feed_forward_ = make.feed_forward(g, index, feed_forward_name_);
    if (!shape.norms_first) make_norms(g, shape);
  }

  LayerOutputs operator()(GraphBuilder& g, const Var& input, const LayerInputs& in) const {
    RegionScope region(g, RegionKind::layer, name_,
                       {&input, &in.cos, &in.sin, &in.mask, &in.positions, &in.carried});
    Var residual = input;
    Var x = (*input_norm_)(g, input);
    Var attention_output, unused, carried;
    {
      RegionScope inner(g, RegionKind::attention, attention_name_, {&x});
      const Attended attended = attention_(x, in);
      attention_output = attended.output;
      unused = attended.weights;
      carried = attended.carried;
      inner.leave({&attention_output});
    }
    if (!keeps_attention_) x = std::move(attention_output);
    x = joined(g, residual, keeps_attention_ ? attention_output : x);
    residual = x;
    x = (*post_attention_norm_)(g, x);
    {
      RegionScope inner(g, RegionKind::mlp, feed_forward_name_, {&x});
      const FeedForward result = feed_forward_(x);
      x = result.output;
      if (result.kept) unused = result.kept;
      inner.leave({&x});
    }
    x = joined(g, residual, x);
    region.leave({&x, &carried});
    return {x, carried};
  }

 private:
  void make_norms(GraphBuilder& g, const DecoderShape& shape) {
    input_norm_.emplace(g, shape.norm, name_ + ".input_layernorm", shape.hidden);
    post_attention_norm_.emplace(g, shape.norm, name_ + ".post_attention_layernorm", shape.hidden);
  }
  Var joined(GraphBuilder& g, const Var& residual, const Var& branch) const {
    return scaled_ ? g.add(residual, g.mul(branch, 1.0)) : g.add(residual, branch);
  }

  std::string name_, attention_name_, feed_forward_name_;
  bool scaled_, keeps_attention_;
  AttentionCall attention_;
  FeedForwardCall feed_forward_;
  std::optional<NormOfDecoder> input_norm_, post_attention_norm_;
};

}  // namespace

Graph build_decoder(const DecoderShape& shape, const BuildOptions& options,
                    const LayerMaker& make) {
  return build_decoder_frame(
      shape, options, [&](GraphBuilder& g, int64_t index, const std::string& name) -> LayerCall {
        auto layer = std::make_shared<Layer>(g, shape, make, index, name);
        return
            [&g, layer](const Var& x, const LayerInputs& inputs) { return (*layer)(g, x, inputs); };
      });
}

}  // namespace headroom::model
