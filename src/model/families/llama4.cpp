// Llama 4 on text: every few layers one that does not turn and looks at everything, the others look
// within chunks; layers with experts may alternate with dense ones.
#include <algorithm>
#include <memory>

#include "model/blocks/llama4_attention.h"
#include "model/blocks/llama4_moe.h"
#include "model/families/decoder_config.h"
#include "model/families/moe.h"
#include "model/families/moe_config.h"
#include "model/language_part.h"

namespace headroom::model {

namespace {

struct Llama4Config {
  MoeConfig moe;
  Llama4AttentionShape attention;
  bool normalizes = true;
  bool tunes = true;
  std::vector<bool> rotates;
  std::vector<bool> has_experts;
};

Result<std::vector<bool>> expert_layers(const text::JsonView& json, int64_t layers) {
  HEADROOM_ASSIGN(const auto given, json.optional_array("moe_layers", kLayersMax));
  HEADROOM_ASSIGN(const auto step, json.optional_int("interleave_moe_layer_step", 1, kLayersMax));
  std::vector<bool> sparse(static_cast<size_t>(layers), false);
  if (!given) {
    for (int64_t i = step.value_or(1) - 1; i < layers; i += step.value_or(1)) {
      sparse[static_cast<size_t>(i)] = true;
    }
    return sparse;
  }
  for (const text::JsonView& item : *given) {
    HEADROOM_ASSIGN(const int64_t layer, item.to_int(0, kLayersMax));
    if (layer < layers) sparse[static_cast<size_t>(layer)] = true;
  }
  return sparse;
}

// Unless they are named, those that turn look within chunks.
Result<std::vector<LayerMask>> masks_by_rotation(const text::JsonView& json,
                                                 const std::vector<bool>& rotates, int64_t layers) {
  HEADROOM_ASSIGN(auto masks, named_masks(json, layers, LayerMask::chunked));
  if (!masks.empty()) return masks;
  for (const bool turns : rotates) masks.push_back(turns ? LayerMask::chunked : LayerMask::full);
  return masks;
}

Result<Llama4Config> read_config(const text::JsonView& json, const BuildOptions& options,
                                 ConfigReader& reader) {
  Llama4Config c;
  MoeConfig& moe = c.moe;
  moe.default_kv_heads = 8;
  if (json.json().find("head_dim") == nullptr) moe.default_head_dim = 128;
  moe.read(reader, options, {"num_local_experts"}, "intermediate_size");
  moe.intermediate = reader.size({"intermediate_size_mlp"}, 16384);
  moe.decoder.norm = DecoderNorm::early_cast_rms;
  moe.decoder.tables = RotaryTables::complex;
  moe.decoder.keeps_attention = true;
  moe.decoder.masks = {LayerMask::full, LayerMask::chunked};
  moe.decoder.sliding_window = reader.size({"attention_chunk_size"}, 8192);
  reader.require(moe.attention.head_dim % 2 == 0, "head_dim", "is odd");
  reader.require(options.attention != Attention::flash_attention_2, "model_type",
                 "transformers has no FlashAttention-2 implementation of this model");
  c.attention.hidden = moe.decoder.hidden;
  c.attention.heads = moe.attention.heads;
  c.attention.kv_heads = moe.attention.kv_heads;
  c.attention.head_dim = moe.attention.head_dim;
  c.attention.bias = reader.flag("attention_bias", false);
  c.attention.dropout = moe.attention.dropout;
  c.normalizes = reader.flag("use_qk_norm", true);
  c.tunes = reader.flag("attn_temperature_tuning", true);
  const int64_t layers = moe.decoder.layers;
  HEADROOM_ASSIGN(c.rotates, rotated_layers(json, layers));
  HEADROOM_ASSIGN(c.has_experts, expert_layers(json, layers));
  HEADROOM_ASSIGN(moe.decoder.mask_of_layer, masks_by_rotation(json, c.rotates, layers));
  return c;
}

Graph build(const Llama4Config& c, const BuildOptions& options) {
  LayerMaker make;
  make.attention = [&](GraphBuilder& g, int64_t index, const std::string& name) -> AttentionCall {
    Llama4AttentionShape shape = c.attention;
    shape.rotates = c.rotates[static_cast<size_t>(index)];
    shape.normalizes = c.normalizes && shape.rotates;
    shape.scales_queries = c.tunes && !shape.rotates;
    auto block = std::make_shared<Llama4Attention>(g, shape, name);
    return [&g, &options, block](const Var& x, const LayerInputs& inputs) {
      return (*block)(g, options, x, inputs);
    };
  };
  make.feed_forward_name = "feed_forward";
  make.feed_forward = [&](GraphBuilder& g, int64_t index,
                          const std::string& name) -> FeedForwardCall {
    if (!c.has_experts[static_cast<size_t>(index)]) return dense_call(g, c.moe, name);
    auto block = std::make_shared<Llama4Moe>(g, c.moe.experts, name);
    return [&g, &options, block](const Var& x) { return (*block)(g, options, x); };
  };
  return build_decoder(c.moe.decoder, options, make);
}

}  // namespace

Result<Graph> build_llama4(const text::JsonView& given, const BuildOptions& options) {
  HEADROOM_ASSIGN(const text::JsonView json, language_part(given));
  ConfigReader reader(json);
  HEADROOM_ASSIGN(const Llama4Config c, read_config(json, options, reader));
  if (reader.error()) return *reader.error();
  return build(c, options);
}

}  // namespace headroom::model
