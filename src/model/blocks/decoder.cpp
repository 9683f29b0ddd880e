#include "model/blocks/decoder.h"

#include <optional>
#include <utility>

#include "model/blocks/loss.h"
#include "model/blocks/mask.h"
#include "model/blocks/norm.h"
#include "model/blocks/rotary.h"

namespace headroom::model {

namespace {

class Layer {
 public:
  Layer(GraphBuilder& g, const DecoderShape& shape, const LayerMaker& make, int64_t index,
        const std::string& name)
      : name_(name),
        attention_name_(name + "." + make.attention_name),
        feed_forward_name_(name + "." + make.feed_forward_name),
        scaled_(shape.scaled),
        attention_(make.attention(g, index, attention_name_)) {
    if (shape.norms_first) make_norms(g, shape);
    feed_forward_ = make.feed_forward(g, index, feed_forward_name_);
    if (!shape.norms_first) make_norms(g, shape);
  }

  Var operator()(GraphBuilder& g, const Var& input, const LayerInputs& in) const {
    RegionScope region(g, RegionKind::layer, name_,
                       {&input, &in.cos, &in.sin, &in.mask, &in.positions});
    Var residual = input;
    Var x = (*input_norm_)(g, input);
    Var unused;
    {
      RegionScope inner(g, RegionKind::attention, attention_name_, {&x});
      const Attended attended = attention_(x, in);
      x = attended.output;
      unused = attended.weights;
      inner.leave({&x});
    }
    x = joined(g, residual, x);
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
    region.leave({&x});
    return x;
  }

 private:
  void make_norms(GraphBuilder& g, const DecoderShape& shape) {
    input_norm_.emplace(g, name_ + ".input_layernorm", shape.hidden, shape.wide_norm);
    post_attention_norm_.emplace(g, name_ + ".post_attention_layernorm", shape.hidden,
                                 shape.wide_norm);
  }
  Var joined(GraphBuilder& g, const Var& residual, const Var& branch) const {
    return scaled_ ? g.add(residual, g.mul(branch, 1.0)) : g.add(residual, branch);
  }

  std::string name_, attention_name_, feed_forward_name_;
  bool scaled_;
  AttentionCall attention_;
  FeedForwardCall feed_forward_;
  std::optional<RmsNorm> input_norm_, post_attention_norm_;
};

std::pair<Var, Var> make_tables(GraphBuilder& g, const DecoderShape& shape,
                                const Var& frequencies, const Var& positions, const Var& like,
                                const BuildOptions& options) {
  switch (shape.tables) {
    case RotaryTables::doubled:
      return rotary_tables(g, frequencies, positions, like, options.sequence, shape.rotary_dims);
    case RotaryTables::half:
      return half_rotary_tables(g, frequencies, positions, like);
    case RotaryTables::complex:
      return {complex_rotary_table(g, frequencies, positions, options.sequence,
                                   shape.rotary_dims), {}};
  }
  return {};
}

Var run_model(GraphBuilder& g, const DecoderShape& shape, const BuildOptions& options,
              const std::vector<Layer>& layers, const RmsNorm& norm, const Var& embed,
              const Var& frequencies, const Var& ids) {
  Var embedded = g.embedding(embed, ids);
  const Var positions = default_position_ids(g, options);
  std::vector<Var> masks;
  for (const MaskKind kind : shape.masks) {
    const Var for_mask = shape.masks_see_positions ? positions : Var();
    masks.push_back(kind == MaskKind::full
                        ? causal_mask(g, options, embedded, for_mask)
                        : sliding_mask(g, options, embedded, for_mask, shape.sliding_window));
  }
  if (shape.scaled) embedded = g.mul(embedded, 1.0);
  Var x = embedded;
  const auto [cos, sin] = make_tables(g, shape, frequencies, positions, x, options);
  for (size_t i = 0; i < layers.size(); ++i) {
    size_t mask = 0;
    while (!shape.mask_of_layer.empty() && shape.masks[mask] != shape.mask_of_layer[i]) ++mask;
    x = layers[i](g, x, {cos, sin, masks[mask], positions});
  }
  return norm(g, x);
}

}  // namespace

Graph build_decoder(const DecoderShape& shape, const BuildOptions& options,
                    const LayerMaker& make) {
  GraphBuilder g;
  {
    const Var embed = g.parameter("model.embed_tokens.weight", {shape.vocabulary, shape.hidden},
                                  ParameterRole::embedding);
    std::vector<Layer> layers;
    for (int64_t i = 0; i < shape.layers; ++i) {
      layers.emplace_back(g, shape, make, i, "model.layers." + std::to_string(i));
    }
    const RmsNorm norm(g, "model.norm", shape.hidden, shape.wide_norm);
    const Var frequencies =
        g.buffer("model.rotary_emb.inv_freq", {shape.rotary_dims / 2}, DType::f32, false);
    g.buffer("model.rotary_emb.original_inv_freq", {shape.rotary_dims / 2}, DType::f32, false);
    const Var head = shape.tied ? g.tied("lm_head.weight", embed, ParameterRole::lm_head)
                                : g.parameter("lm_head.weight", {shape.vocabulary, shape.hidden},
                                              ParameterRole::lm_head);
    const Var ids = g.input("input_ids", {options.batch, options.sequence}, DType::i64);
    const Var labels = g.input("labels", {options.batch, options.sequence}, DType::i64);
    const Var x = run_model(g, shape, options, layers, norm, embed, frequencies, ids);
    Var logits;
    {
      RegionScope region(g, RegionKind::lm_head, "lm_head", {&x});
      logits = g.linear(x, head);
      if (shape.scaled) logits = g.div(logits, 1.0);
      region.leave({&logits});
    }
    const Var loss = causal_lm_loss(g, options, logits, labels, shape.vocabulary);
    g.set_outputs(loss, logits, {});
  }
  return g.finish();
}

}  // namespace headroom::model
