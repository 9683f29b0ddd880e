#include "model/families/vision_tower.h"

#include <algorithm>
#include <string>

#include "model/blocks/linear.h"
#include "model/blocks/norm.h"
#include "model/families/config.h"

namespace headroom::model {

namespace {

constexpr int64_t kSideMax = int64_t{1} << 14;  // of an image, in pixels or patches
constexpr int64_t kPatchMax = 256;

// What the towers have in common. Their tables of positions are parameters like any other: the
// role `embedding` is the language model's.
struct Tower {
  int64_t layers = 0, hidden = 0, intermediate = 0;
  int64_t heads = 1;  // of those whose tables of rotation are by head
  int64_t channels = 3, patch = 14, frames = 2, merged = 2;  // merged: patches a side that are one
  int64_t out = 0;                                           // the language model's width
};

Result<text::JsonView> vision_part(const text::JsonView& config) {
  HEADROOM_ASSIGN(const auto vision, config.optional_object("vision_config"));
  if (vision) return *vision;
  return config.error_at("vision_config", "is missing");
}

void linear(GraphBuilder& g, const std::string& name, int64_t in, int64_t out, bool bias = true) {
  Linear(g, name, in, out, bias);
}

void plain_mlp(GraphBuilder& g, const std::string& name, const Tower& t, const char* in,
               const char* out) {
  linear(g, name + in, t.hidden, t.intermediate);
  linear(g, name + out, t.intermediate, t.hidden);
}

void frequencies(GraphBuilder& g, const std::string& name, int64_t count) {
  g.buffer(name + ".inv_freq", {count}, DType::f32, false);
  g.buffer(name + ".original_inv_freq", {count}, DType::f32, false);
}

void siglip_layer(GraphBuilder& g, const std::string& name, const Tower& t) {
  LayerNorm(g, name + ".layer_norm1", t.hidden);
  for (const char* part : {".k_proj", ".v_proj", ".q_proj", ".out_proj"}) {
    linear(g, name + ".self_attn" + part, t.hidden, t.hidden);
  }
  LayerNorm(g, name + ".layer_norm2", t.hidden);
  plain_mlp(g, name + ".mlp", t, ".fc1", ".fc2");
}

// Attention with a learned query, which makes one vector of all patches.
void siglip_head(GraphBuilder& g, const std::string& name, const Tower& t) {
  g.parameter(name + ".probe", {1, 1, t.hidden}, ParameterRole::other);
  g.parameter(name + ".attention.in_proj_weight", {3 * t.hidden, t.hidden}, ParameterRole::linear);
  g.parameter(name + ".attention.in_proj_bias", {3 * t.hidden}, ParameterRole::bias);
  linear(g, name + ".attention.out_proj", t.hidden, t.hidden);
  LayerNorm(g, name + ".layernorm", t.hidden);
  plain_mlp(g, name + ".mlp", t, ".fc1", ".fc2");
}

void pixtral_layer(GraphBuilder& g, const std::string& name, const Tower& t) {
  RmsNorm(g, name + ".attention_norm", t.hidden);
  linear(g, name + ".feed_forward.gate_proj", t.hidden, t.intermediate, false);
  linear(g, name + ".feed_forward.up_proj", t.hidden, t.intermediate, false);
  linear(g, name + ".feed_forward.down_proj", t.intermediate, t.hidden, false);
  for (const char* part : {".k_proj", ".v_proj", ".q_proj", ".o_proj"}) {
    linear(g, name + ".attention" + part, t.hidden, t.hidden, false);
  }
  RmsNorm(g, name + ".ffn_norm", t.hidden);
}

void qwen_attention(GraphBuilder& g, const std::string& name, const Tower& t) {
  linear(g, name + ".qkv", t.hidden, 3 * t.hidden);
  linear(g, name + ".proj", t.hidden, t.hidden);
}

void qwen2_5_layer(GraphBuilder& g, const std::string& name, const Tower& t) {
  RmsNorm(g, name + ".norm1", t.hidden);
  RmsNorm(g, name + ".norm2", t.hidden);
  qwen_attention(g, name + ".attn", t);
  linear(g, name + ".mlp.gate_proj", t.hidden, t.intermediate);
  linear(g, name + ".mlp.up_proj", t.hidden, t.intermediate);
  linear(g, name + ".mlp.down_proj", t.intermediate, t.hidden);
}

void qwen_plain_layer(GraphBuilder& g, const std::string& name, const Tower& t, const char* in,
                      const char* out) {
  LayerNorm(g, name + ".norm1", t.hidden);
  LayerNorm(g, name + ".norm2", t.hidden);
  qwen_attention(g, name + ".attn", t);
  plain_mlp(g, name + ".mlp", t, in, out);
}

// Patches that are joined to one, by two products.
void merger(GraphBuilder& g, const std::string& name, const Tower& t, const char* in,
            const char* out) {
  const int64_t joined = t.hidden * t.merged * t.merged;
  linear(g, name + in, joined, joined);
  linear(g, name + out, joined, t.out);
}

// Of Qwen's towers: `width` is the key of a layer's.
Tower read_qwen_tower(ConfigReader& in, const char* width, int64_t otherwise) {
  Tower t;
  t.layers = in.size({"depth"}, 32, kLayersMax);
  t.hidden = in.size({width}, otherwise, kSizeMax / 16);
  t.heads = in.size({"num_heads"}, 16, kHeadsMax);
  t.channels = in.size({"in_channels"}, 3, kPatchMax);
  t.patch = in.size({"patch_size"}, 14, kPatchMax);
  t.frames = in.size({"temporal_patch_size"}, 2, kPatchMax);
  t.merged = in.size({"spatial_merge_size"}, 2, 16);
  return t;
}

Var patches(GraphBuilder& g, const std::string& name, const Tower& t) {
  return g.parameter(name + ".weight", {t.hidden, t.channels, t.frames, t.patch, t.patch},
                     ParameterRole::other);
}

std::string numbered(const std::string& name, int64_t index) {
  return name + "." + std::to_string(index);
}

}  // namespace

Result<VisionTower> siglip_tower(const text::JsonView& config, int64_t hidden) {
  HEADROOM_ASSIGN(const text::JsonView vision, vision_part(config));
  ConfigReader in(vision);
  Tower t;
  t.layers = in.size({"num_hidden_layers"}, 12, kLayersMax);
  t.hidden = in.size({"hidden_size"}, 768, kSizeMax / 16);
  t.intermediate = in.size({"intermediate_size"}, 3072, kSizeMax);
  t.channels = in.size({"num_channels"}, 3, kPatchMax);
  t.patch = in.size({"patch_size"}, 16, kPatchMax);
  t.out = hidden;
  const int64_t side = in.size({"image_size"}, 224, kSideMax) / t.patch;
  in.require(side > 0, "image_size", "less than patch_size");
  const bool has_head = in.flag("vision_use_head", true);
  if (in.error()) return *in.error();
  return VisionTower([t, side, has_head](GraphBuilder& g) {
    const std::string name = "model.vision_tower";
    g.parameter(name + ".embeddings.patch_embedding.weight",
                {t.hidden, t.channels, t.patch, t.patch}, ParameterRole::other);
    g.parameter(name + ".embeddings.patch_embedding.bias", {t.hidden}, ParameterRole::bias);
    g.parameter(name + ".embeddings.position_embedding.weight", {side * side, t.hidden},
                ParameterRole::other);
    g.buffer(name + ".embeddings.position_ids", {1, side * side}, DType::i64, false);
    for (int64_t i = 0; i < t.layers; ++i)
      siglip_layer(g, numbered(name + ".encoder.layers", i), t);
    LayerNorm(g, name + ".post_layernorm", t.hidden);
    if (has_head) siglip_head(g, name + ".head", t);
    g.parameter("model.multi_modal_projector.mm_input_projection_weight", {t.hidden, t.out},
                ParameterRole::linear);
    RmsNorm(g, "model.multi_modal_projector.mm_soft_emb_norm", t.hidden);
  });
}

Result<VisionTower> pixtral_tower(const text::JsonView& config, int64_t hidden) {
  HEADROOM_ASSIGN(const text::JsonView vision, vision_part(config));
  ConfigReader whole(config);
  ConfigReader in(vision);
  Tower t;
  t.layers = in.size({"num_hidden_layers"}, 24, kLayersMax);
  t.hidden = in.size({"hidden_size"}, 1024, kSizeMax / 16);
  t.intermediate = in.size({"intermediate_size"}, 4096, kSizeMax);
  t.heads = in.size({"num_attention_heads"}, 16, kHeadsMax);
  t.channels = in.size({"num_channels"}, 3, kPatchMax);
  t.patch = in.size({"patch_size"}, 16, kPatchMax);
  t.out = hidden;
  t.merged = whole.size({"spatial_merge_size"}, 2, 16);
  const int64_t head_dim = in.size({"head_dim"}, std::max<int64_t>(1, t.hidden / t.heads));
  const bool bias = whole.flag("multimodal_projector_bias", false);
  const auto several = config.optional_array("vision_feature_layer", 64);
  whole.require(!several || !*several, "vision_feature_layer",
                "the answers of several layers together are not modelled");
  if (in.error()) return *in.error();
  if (whole.error()) return *whole.error();
  return VisionTower([t, head_dim, bias](GraphBuilder& g) {
    const std::string name = "model.vision_tower";
    g.parameter(name + ".patch_conv.weight", {t.hidden, t.channels, t.patch, t.patch},
                ParameterRole::other);
    RmsNorm(g, name + ".ln_pre", t.hidden);
    for (int64_t i = 0; i < t.layers; ++i) {
      pixtral_layer(g, numbered(name + ".transformer.layers", i), t);
    }
    frequencies(g, name + ".patch_positional_embedding", head_dim / 2);
    const std::string projector = "model.multi_modal_projector";
    RmsNorm(g, projector + ".norm", t.hidden);
    linear(g, projector + ".patch_merger.merging_layer", t.hidden * t.merged * t.merged, t.hidden,
           false);
    linear(g, projector + ".linear_1", t.hidden, t.out, bias);
    linear(g, projector + ".linear_2", t.out, t.out, bias);
  });
}

Result<VisionTower> qwen2_tower(const text::JsonView& config) {
  HEADROOM_ASSIGN(const text::JsonView vision, vision_part(config));
  ConfigReader in(vision);
  Tower t = read_qwen_tower(in, "embed_dim", 1280);
  t.out = in.size({"hidden_size"}, 3584);
  t.intermediate = t.hidden * in.size({"mlp_ratio"}, 4, 16);
  if (in.error()) return *in.error();
  return VisionTower([t](GraphBuilder& g) {
    const std::string name = "model.visual";
    patches(g, name + ".patch_embed.proj", t);
    frequencies(g, name + ".rotary_pos_emb", t.hidden / t.heads / 4);
    for (int64_t i = 0; i < t.layers; ++i) {
      qwen_plain_layer(g, numbered(name + ".blocks", i), t, ".fc1", ".fc2");
    }
    LayerNorm(g, name + ".merger.ln_q", t.hidden);
    merger(g, name + ".merger", t, ".mlp.0", ".mlp.2");
  });
}

Result<VisionTower> qwen2_5_tower(const text::JsonView& config) {
  HEADROOM_ASSIGN(const text::JsonView vision, vision_part(config));
  ConfigReader in(vision);
  Tower t = read_qwen_tower(in, "hidden_size", 3584);
  t.out = in.size({"out_hidden_size"}, 3584);
  t.intermediate = in.size({"intermediate_size"}, 3420);
  if (in.error()) return *in.error();
  return VisionTower([t](GraphBuilder& g) {
    const std::string name = "model.visual";
    patches(g, name + ".patch_embed.proj", t);
    frequencies(g, name + ".rotary_pos_emb", t.hidden / t.heads / 4);
    for (int64_t i = 0; i < t.layers; ++i) qwen2_5_layer(g, numbered(name + ".blocks", i), t);
    RmsNorm(g, name + ".merger.ln_q", t.hidden);
    merger(g, name + ".merger", t, ".mlp.0", ".mlp.2");
  });
}

Result<VisionTower> qwen3_tower(const text::JsonView& config) {
  HEADROOM_ASSIGN(const text::JsonView vision, vision_part(config));
  ConfigReader in(vision);
  Tower t = read_qwen_tower(in, "hidden_size", 1152);
  t.layers = in.size({"depth"}, 27, kLayersMax);
  t.patch = in.size({"patch_size"}, 16, kPatchMax);
  t.out = in.size({"out_hidden_size"}, 3584);
  t.intermediate = in.size({"intermediate_size"}, 4304);
  const int64_t positions = in.size({"num_position_embeddings"}, 2304);
  HEADROOM_ASSIGN(const auto indexes, vision.optional_array("deepstack_visual_indexes",
                                                            static_cast<size_t>(kLayersMax)));
  const int64_t deep = indexes ? static_cast<int64_t>(indexes->size()) : 3;
  if (in.error()) return *in.error();
  return VisionTower([t, positions, deep](GraphBuilder& g) {
    const std::string name = "model.visual";
    patches(g, name + ".patch_embed.proj", t);
    g.parameter(name + ".patch_embed.proj.bias", {t.hidden}, ParameterRole::bias);
    g.parameter(name + ".pos_embed.weight", {positions, t.hidden}, ParameterRole::other);
    frequencies(g, name + ".rotary_pos_emb", t.hidden / t.heads / 4);
    for (int64_t i = 0; i < t.layers; ++i) {
      qwen_plain_layer(g, numbered(name + ".blocks", i), t, ".linear_fc1", ".linear_fc2");
    }
    LayerNorm(g, name + ".merger.norm", t.hidden);
    merger(g, name + ".merger", t, ".linear_fc1", ".linear_fc2");
    for (int64_t i = 0; i < deep; ++i) {
      const std::string each = numbered(name + ".deepstack_merger_list", i);
      LayerNorm(g, each + ".norm", t.hidden * t.merged * t.merged);
      merger(g, each, t, ".linear_fc1", ".linear_fc2");
    }
  });
}

}  // namespace headroom::model
