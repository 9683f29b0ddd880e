// MiniMax 1 (transformers' MiniMaxForCausalLM): lightning attention in most layers, full attention
// in the others, experts in all. The residual stream is what a norm gives, not what it takes, and
// both of its parts are multiplied by factors.
#include "model/families/minimax.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "model/blocks/lightning_attention.h"
#include "model/families/moe_config.h"

namespace headroom::model {

namespace {

// Each is a number of operators of its own.
constexpr int64_t kBlocksMax = int64_t{1} << 16;

struct MiniMaxConfig {
  MoeConfig moe;
  LightningShape lightning;
  std::vector<bool> is_linear;  // by layer
};

class Layer {
 public:
  Layer(GraphBuilder& g, const BuildOptions& options, const MiniMaxConfig& config, bool is_linear,
        const std::string& name)
      : name_(name) {
    if (is_linear) {
      lightning_.emplace(g, config.lightning, name + ".self_attn");
    } else {
      attention_.emplace(g, config.moe.attention, name + ".self_attn");
    }
    const int64_t hidden = config.moe.decoder.hidden;
    input_norm_.emplace(g, name + ".input_layernorm", hidden);
    post_attention_norm_.emplace(g, name + ".post_attention_layernorm", hidden);
    experts_ = moe_call(g, options, config.moe, {}, name + ".mlp");
  }

  Var operator()(GraphBuilder& g, const BuildOptions& options, const Var& input,
                 const LayerInputs& in) const {
    RegionScope region(g, RegionKind::layer, name_,
                       {&input, &in.cos, &in.sin, &in.mask, &in.positions});
    Var x = (*input_norm_)(g, input);
    Var residual = x;
    Var unused;
    {
      RegionScope inner(g, RegionKind::attention, name_ + ".self_attn", {&x});
      Attended attended =
          lightning_ ? (*lightning_)(g, options, x) : (*attention_)(g, options, x, in);
      x = std::move(attended.output);
      unused = std::move(attended.weights);
      inner.leave({&x});
    }
    x = joined(g, residual, x);
    x = (*post_attention_norm_)(g, x);
    residual = x;
    {
      RegionScope inner(g, RegionKind::mlp, name_ + ".mlp", {&x});
      x = experts_(x).output;
      inner.leave({&x});
    }
    x = joined(g, residual, x);
    region.leave({&x});
    return x;
  }

 private:
  static Var joined(GraphBuilder& g, const Var& residual, const Var& branch) {
    Var scaled = g.mul(residual, 1.0);
    return g.add(std::move(scaled), g.mul(branch, 1.0));
  }

  std::string name_;
  std::optional<LightningAttention> lightning_;
  std::optional<SelfAttention> attention_;
  std::optional<RmsNorm> input_norm_, post_attention_norm_;
  FeedForwardCall experts_;
};

// "layer_types", or every other layer.
Result<std::vector<bool>> linear_layers(const text::JsonView& json, int64_t layers) {
  HEADROOM_ASSIGN(const auto types, json.optional_array("layer_types", kLayersMax));
  std::vector<bool> linear;
  if (!types) {
    for (int64_t i = 0; i < layers; ++i) linear.push_back(i % 2 != 0);
    return linear;
  }
  for (const text::JsonView& item : *types) {
    HEADROOM_ASSIGN(const std::string type, item.to_string());
    if (type != "full_attention" && type != "linear_attention") {
      return item.error("unknown layer type '" + type + "'");
    }
    linear.push_back(type == "linear_attention");
  }
  if (static_cast<int64_t>(linear.size()) != layers) {
    return json.error_at("layer_types", "not one for each layer");
  }
  return linear;
}

}  // namespace

Result<Graph> build_minimax(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  MiniMaxConfig c;
  c.moe.read(in, options, {"num_local_experts", "num_experts"}, "intermediate_size");
  const SelfAttentionShape& a = c.moe.attention;
  c.lightning = {a.hidden, a.heads, a.head_dim, in.size({"block_size"}, 256, 1 << 14),
                 c.moe.activation};
  in.require(a.heads * a.head_dim <= kSizeMax / 4, "head_dim",
             "more than 2^22 columns in all heads");
  in.require((options.sequence / c.lightning.block + 1) <= kBlocksMax / c.moe.decoder.layers,
             "block_size",
             "a sequence of " + std::to_string(options.sequence) +
                 " tokens has more than 65536 blocks in all layers");
  HEADROOM_ASSIGN(c.is_linear, linear_layers(json, c.moe.decoder.layers));
  HEADROOM_ASSIGN(const auto window, json.optional_int("sliding_window", 1, kSizeMax));
  const LayerMask full = window ? LayerMask::sliding : LayerMask::full;
  c.moe.decoder.sliding_window = window.value_or(0);
  c.moe.decoder.masks = {full, LayerMask::none};
  for (const bool linear : c.is_linear) {
    c.moe.decoder.mask_of_layer.push_back(linear ? LayerMask::none : full);
  }
  if (in.error()) return *in.error();
  return build_decoder_frame(
      c.moe.decoder, options, [&](GraphBuilder& g, int64_t index, const std::string& name) {
        const bool linear = c.is_linear[static_cast<size_t>(index)];
        auto layer = std::make_shared<Layer>(g, options, c, linear, name);
        return LayerCall([&g, &options, layer](const Var& x, const LayerInputs& inputs) {
          return (*layer)(g, options, x, inputs);
        });
      });
}

}  // namespace headroom::model
