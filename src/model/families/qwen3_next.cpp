// Qwen3-Next and Qwen3.5, dense and with experts (transformers' Qwen3NextForCausalLM,
// Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM): three layers of linear attention (the gated delta
// rule) for each of full attention.
#include "model/families/qwen3_next.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "model/blocks/gated_attention.h"
#include "model/blocks/gated_delta_net.h"
#include "model/families/decoder_config.h"
#include "model/families/moe_config.h"
#include "model/language_part.h"

namespace headroom::model {

namespace {

// The state is carried from chunk to chunk by operators of their own, in every linear layer.
constexpr int64_t kChunksMax = int64_t{1} << 16;

// Every fourth layer attends to everything, unless the config says otherwise.
constexpr int64_t kInterval = 4;

struct Hybrid {
  DecoderSpec spec;  // the keys of any decoder
  DecoderShape decoder;
  GatedAttentionShape attention;
  DeltaNetShape linear;
  std::vector<bool> is_linear;  // by layer
};

std::vector<bool> linear_layers(ConfigReader& in, const text::JsonView& json, int64_t layers) {
  const auto types = json.optional_array("layer_types", static_cast<size_t>(kLayersMax));
  in.require(types.has_value(), "layer_types", "expected an array with an entry a layer");
  const int64_t interval = in.size({"full_attention_interval"}, kInterval, kLayersMax);
  std::vector<bool> linear;
  if (!types || !*types) {
    for (int64_t i = 0; i < layers; ++i) linear.push_back((i + 1) % interval != 0);
    return linear;
  }
  for (const text::JsonView& type : **types) {
    const auto name = type.to_string();
    linear.push_back(name && *name == "linear_attention");
    in.require(linear.back() || (name && *name == "full_attention"), "layer_types",
               "expected full_attention or linear_attention");
  }
  in.require(static_cast<int64_t>(linear.size()) == layers, "layer_types",
             "expected an entry a layer");
  linear.resize(static_cast<size_t>(layers));
  return linear;
}

DeltaNetShape read_delta_net(ConfigReader& in, int64_t hidden) {
  DeltaNetShape s;
  s.hidden = hidden;
  s.key_heads = in.size({"linear_num_key_heads"}, 16, kHeadsMax);
  s.value_heads = in.size({"linear_num_value_heads"}, 32, kHeadsMax);
  s.key_dim = in.size({"linear_key_head_dim"}, 128);
  s.value_dim = in.size({"linear_value_head_dim"}, 128);
  s.kernel = in.size({"linear_conv_kernel_dim"}, 4, 64);
  in.require(s.value_heads % s.key_heads == 0, "linear_num_value_heads",
             "is not a multiple of linear_num_key_heads");
  in.require(s.key_heads * s.key_dim <= kSizeMax / 4 && s.value_heads * s.value_dim <= kSizeMax / 4,
             "linear_key_head_dim", "more than 2^22 columns in all heads");
  return s;
}

constexpr int64_t kNoDenseLayer = 1;  // nothing is made of that size

// `intermediate`: of a dense layer, where the config need not say it.
Hybrid read_hybrid(ConfigReader& in, const text::JsonView& json, const BuildOptions& options,
                   int64_t kv_heads, std::optional<int64_t> intermediate = {}) {
  Hybrid h;
  h.spec = read_decoder(in, json, options,
                        {.partial_rotary = 0.25,
                         .kv_heads = kv_heads,
                         .head_dim = 256,
                         .intermediate = intermediate});
  static_cast<DecoderFrame&>(h.decoder) = h.spec;
  h.decoder.norm = DecoderNorm::centered_rms;
  h.decoder.masks = {LayerMask::full, LayerMask::none};
  h.attention = {h.spec.hidden,           h.spec.heads,       h.spec.kv_heads,
                 h.spec.head_dim,         h.spec.rotary_dims, in.flag("attention_bias", false),
                 h.spec.attention_dropout};
  in.require(h.spec.heads * h.spec.head_dim <= kSizeMax / 2, "head_dim",
             "more than 2^23 columns in all heads");
  h.linear = read_delta_net(in, h.spec.hidden);
  h.is_linear = linear_layers(in, json, h.spec.layers);
  const int64_t chunks = (options.sequence + kDeltaRuleChunk - 1) / kDeltaRuleChunk;
  in.require(chunks <= kChunksMax / std::max<int64_t>(1, std::ranges::count(h.is_linear, true)),
             "model_type",
             "a sequence of " + std::to_string(options.sequence) + " tokens is cut into " +
                 std::to_string(chunks) +
                 " chunks in each layer of linear attention, and no more "
                 "than 65536 in all layers are modelled");
  for (const bool linear : h.is_linear) {
    h.decoder.mask_of_layer.push_back(linear ? LayerMask::none : LayerMask::full);
  }
  return h;
}

// Layers of either attention and the given feed-forward part. What is passed must outlive it.
template <typename FeedForwardMaker>
Graph build(const Hybrid& h, const BuildOptions& options, const FeedForwardMaker& feed_forward) {
  LayerMaker make;
  make.attention_name = [&](int64_t index) {
    return h.is_linear[static_cast<size_t>(index)] ? "linear_attn" : "self_attn";
  };
  make.attention = [&](GraphBuilder& g, int64_t index, const std::string& name) -> AttentionCall {
    if (h.is_linear[static_cast<size_t>(index)]) {
      auto block = std::make_shared<GatedDeltaNet>(g, h.linear, name);
      return [&g, &options, block](const Var& x, const LayerInputs&) {
        return Attended{(*block)(g, options, x), {}};
      };
    }
    auto block = std::make_shared<GatedAttention>(g, h.attention, name);
    return [&g, &options, block](const Var& x, const LayerInputs& inputs) {
      return (*block)(g, options, x, inputs);
    };
  };
  make.feed_forward = feed_forward;
  return build_decoder(h.decoder, options, make);
}

void read_experts(ConfigReader& in, const BuildOptions& options, MoeConfig& moe,
                  MoeLayout& layout) {
  moe.read(in, options, {"num_experts"}, "moe_intermediate_size");
  moe.router.cast_weights = true;
  layout.shared_size = in.size({"shared_expert_intermediate_size"}, 512);
  layout.shared_name = "shared_expert";
  layout.shared_gate = true;
}

}  // namespace

Result<Graph> build_qwen3_next(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  Hybrid h = read_hybrid(in, json, options, 2);
  h.linear.grouped_projections = true;
  MoeConfig moe;
  MoeLayout layout;
  read_experts(in, options, moe, layout);
  moe.router.normalized = in.flag("norm_topk_prob", true);
  HEADROOM_ASSIGN(const auto sparse, sparse_layers(json, h.spec.layers));
  if (in.error()) return *in.error();
  return build(h, options, [&](GraphBuilder& g, int64_t index, const std::string& name) {
    return sparse[static_cast<size_t>(index)] ? moe_call(g, options, moe, layout, name)
                                              : dense_call(g, moe, name);
  });
}

Result<Graph> build_qwen3_5(const text::JsonView& given, const BuildOptions& options) {
  HEADROOM_ASSIGN(const text::JsonView json, language_part(given));
  ConfigReader in(json);
  Hybrid h = read_hybrid(in, json, options, 4);
  h.decoder.tables = RotaryTables::by_axis;
  if (in.error()) return *in.error();
  return build(h, options,
               [&](GraphBuilder& g, int64_t, const std::string& name) -> FeedForwardCall {
                 auto block = std::make_shared<GatedMlp>(g, name, h.spec.hidden,
                                                         h.spec.intermediate, h.spec.activation);
                 return [&g, block](const Var& x) { return FeedForward{(*block)(g, x), {}}; };
               });
}

Result<Graph> build_qwen3_5_moe(const text::JsonView& given, const BuildOptions& options) {
  HEADROOM_ASSIGN(const text::JsonView json, language_part(given));
  ConfigReader in(json);
  Hybrid h = read_hybrid(in, json, options, 2, kNoDenseLayer);
  h.decoder.tables = RotaryTables::by_axis;
  MoeConfig moe;
  MoeLayout layout;
  read_experts(in, options, moe, layout);
  if (in.error()) return *in.error();
  return build(h, options, [&](GraphBuilder& g, int64_t, const std::string& name) {
    return moe_call(g, options, moe, layout, name);
  });
}

}  // namespace headroom::model
