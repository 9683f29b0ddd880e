// transformers' Gemma4VisionModel, Gemma4AudioModel and Gemma4MultimodalEmbedder, as Gemma4Model
// holds them (models/gemma4/modeling_gemma4.py, configuration_gemma4.py; 5.23).
//
// torch lists a module's own tensors before those of its parts, wherever the constructor makes
// them: so do the functions here.
#include "model/families/gemma4_towers.h"

#include <array>
#include <optional>
#include <string>

#include "model/blocks/linear.h"
#include "model/blocks/norm.h"
#include "model/families/config.h"

namespace headroom::model {

namespace {

constexpr int64_t kPatchMax = 256;                  // of a patch's side, in pixels
constexpr int64_t kKernelMax = 4096;                // of a convolution in time
constexpr int64_t kChannelsMax = int64_t{1} << 14;  // of the convolutions before the audio layers
constexpr size_t kListMax = 64;
constexpr int64_t kColors = 3;  // no key of the config changes it

struct Vision {
  int64_t layers = 0, hidden = 0, intermediate = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t patch = 0, positions = 0;  // positions: along each of a picture's two axes
  int64_t out = 0;                   // what embed_vision takes
  bool clips = false, standardizes = false;
};

struct Audio {
  int64_t layers = 0, hidden = 0, heads = 0;
  int64_t kernel = 0;
  std::array<int64_t, 2> channels{};
  int64_t out = 0;
  bool clips = false;
};

// --- reading ----------------------------------------------------------------------------------

// The frequencies have one shape, but transformers makes none of another kind. Configs from before
// the kind had its name say "default", which is read as "axial".
void require_axial(ConfigReader& in, const text::JsonView& vision) {
  const char* key = "rope_parameters";
  const auto rope = in.take(vision.optional_object(key), std::optional<text::JsonView>());
  if (!rope) return;
  const auto kind = in.take(rope->optional_string("rope_type"), std::optional<std::string>());
  in.require(!kind || *kind == "axial" || *kind == "default", key, "expected rope_type axial");
}

// Nothing where the config has no such part.
Result<std::optional<Vision>> read_vision(const text::JsonView& json) {
  HEADROOM_ASSIGN(const auto part, json.optional_object("vision_config"));
  if (!part) return std::optional<Vision>();
  ConfigReader in(*part);
  Vision v;
  v.layers = in.size({"num_hidden_layers"}, 16, kLayersMax);
  v.hidden = in.size({"hidden_size"}, 768, kSizeMax / 16);
  v.intermediate = in.size({"intermediate_size"}, 3072);
  v.heads = in.size({"num_attention_heads"}, 12, kHeadsMax);
  v.kv_heads = in.size({"num_key_value_heads"}, 12, kHeadsMax);
  v.head_dim = in.size({"head_dim"}, 64);
  // So that parameters of all layers can be counted.
  in.require(v.heads * v.head_dim <= kSizeMax && v.kv_heads * v.head_dim <= kSizeMax, "head_dim",
             "more than 2^24 columns in all heads");
  v.patch = in.size({"patch_size"}, 16, kPatchMax);
  v.positions = in.size({"position_embedding_size"}, 10 * 1024);
  // No key of a vision_config, but the embedder asks for it before it asks for the width.
  v.out = in.size({"output_proj_dims"}, v.hidden);
  v.clips = in.flag("use_clipped_linears", false);
  v.standardizes = in.flag("standardize", false);
  require_axial(in, *part);
  if (in.error()) return *in.error();
  return std::optional<Vision>(v);
}

// Of the two convolutions; what is listed behind them is read by nobody.
Result<std::array<int64_t, 2>> read_channels(const text::JsonView& audio) {
  const char* key = "subsampling_conv_channels";
  std::array<int64_t, 2> channels{128, 32};
  HEADROOM_ASSIGN(const auto listed, audio.optional_array(key, kListMax));
  if (!listed) return channels;
  if (listed->size() < channels.size()) return audio.error_at(key, "expected two sizes");
  for (size_t i = 0; i < channels.size(); ++i) {
    HEADROOM_ASSIGN(channels[i], (*listed)[i].to_int(1, kChannelsMax));
  }
  // The product behind them takes a fourth of the first: of less it would take nothing.
  if (channels[0] < 4) return audio.error_at(key, "the first is less than 4");
  return channels;
}

// Nothing where the config has no such part.
Result<std::optional<Audio>> read_audio(const text::JsonView& json) {
  HEADROOM_ASSIGN(const auto part, json.optional_object("audio_config"));
  if (!part) return std::optional<Audio>();
  ConfigReader in(*part);
  Audio a;
  a.layers = in.size({"num_hidden_layers"}, 12, kLayersMax);
  a.hidden = in.size({"hidden_size"}, 1024, kSizeMax / 16);
  a.heads = in.size({"num_attention_heads"}, 8, kHeadsMax);
  in.require(a.heads <= a.hidden, "num_attention_heads", "more than hidden_size");
  a.kernel = in.size({"conv_kernel_size"}, 5, kKernelMax);
  a.channels = in.take(read_channels(*part), a.channels);
  a.out = in.size({"output_proj_dims"}, 1536);
  a.clips = in.flag("use_clipped_linears", true);
  if (in.error()) return *in.error();
  return std::optional<Audio>(a);
}

// --- declaring --------------------------------------------------------------------------------

void linear(GraphBuilder& g, const std::string& name, int64_t in, int64_t out, bool bias = false) {
  Linear(g, name, in, out, bias);
}

// A linear layer and, where it clips, the bounds of what it takes and gives: one number each, which
// a checkpoint has, too.
void clippable(GraphBuilder& g, const std::string& name, int64_t in, int64_t out, bool clips) {
  linear(g, name + ".linear", in, out);
  if (!clips) return;
  for (const char* bound : {".input_min", ".input_max", ".output_min", ".output_max"}) {
    g.buffer(name + bound, {}, std::nullopt, true);
  }
}

void vision_attention(GraphBuilder& g, const std::string& name, const Vision& v) {
  const int64_t query = v.heads * v.head_dim;
  const int64_t key = v.kv_heads * v.head_dim;
  clippable(g, name + ".q_proj", v.hidden, query, v.clips);
  clippable(g, name + ".k_proj", v.hidden, key, v.clips);
  clippable(g, name + ".v_proj", v.hidden, key, v.clips);
  clippable(g, name + ".o_proj", query, v.hidden, v.clips);
  // The values' norm has no weight.
  RmsNorm(g, name + ".q_norm", v.head_dim);
  RmsNorm(g, name + ".k_norm", v.head_dim);
}

void vision_layer(GraphBuilder& g, const std::string& name, const Vision& v) {
  vision_attention(g, name + ".self_attn", v);
  clippable(g, name + ".mlp.gate_proj", v.hidden, v.intermediate, v.clips);
  clippable(g, name + ".mlp.up_proj", v.hidden, v.intermediate, v.clips);
  clippable(g, name + ".mlp.down_proj", v.intermediate, v.hidden, v.clips);
  for (const char* norm : {".input_layernorm", ".post_attention_layernorm",
                           ".pre_feedforward_layernorm", ".post_feedforward_layernorm"}) {
    RmsNorm(g, name + norm, v.hidden);
  }
}

void vision_tower(GraphBuilder& g, const std::string& name, const Vision& v) {
  if (v.standardizes) {
    g.buffer(name + ".std_bias", {v.hidden}, std::nullopt, true);
    g.buffer(name + ".std_scale", {v.hidden}, std::nullopt, true);
  }
  g.parameter(name + ".patch_embedder.position_embedding_table", {2, v.positions, v.hidden},
              ParameterRole::other);
  linear(g, name + ".patch_embedder.input_proj", kColors * v.patch * v.patch, v.hidden);
  // Of every second of half a head's dimensions; the other half turns by the other axis.
  const int64_t frequencies = (v.head_dim / 2 + 1) / 2;
  g.buffer(name + ".encoder.rotary_emb.inv_freq", {frequencies}, DType::f32, false);
  g.buffer(name + ".encoder.rotary_emb.original_inv_freq", {frequencies}, DType::f32, false);
  for (int64_t i = 0; i < v.layers; ++i) {
    vision_layer(g, name + ".encoder.layers." + std::to_string(i), v);
  }
}

void audio_feed_forward(GraphBuilder& g, const std::string& name, const Audio& a) {
  clippable(g, name + ".ffw_layer_1", a.hidden, 4 * a.hidden, a.clips);
  clippable(g, name + ".ffw_layer_2", 4 * a.hidden, a.hidden, a.clips);
  RmsNorm(g, name + ".pre_layer_norm", a.hidden);
  RmsNorm(g, name + ".post_layer_norm", a.hidden);
}

void audio_attention(GraphBuilder& g, const std::string& name, const Audio& a) {
  const int64_t head_dim = a.hidden / a.heads;
  const int64_t columns = a.heads * head_dim;  // fewer than `hidden` where there is a remainder
  g.parameter(name + ".per_dim_scale", {head_dim}, ParameterRole::other);
  g.buffer(name + ".softcap", {}, std::nullopt, false);
  for (const char* part : {".q_proj", ".k_proj", ".v_proj"}) {
    clippable(g, name + part, a.hidden, columns, a.clips);
  }
  clippable(g, name + ".post", a.hidden, a.hidden, a.clips);
  linear(g, name + ".relative_k_proj", a.hidden, columns);
}

void audio_convolution(GraphBuilder& g, const std::string& name, const Audio& a) {
  clippable(g, name + ".linear_start", a.hidden, 2 * a.hidden, a.clips);
  clippable(g, name + ".linear_end", a.hidden, a.hidden, a.clips);
  // [channels, 1, kernel]: each channel by itself.
  g.parameter(name + ".depthwise_conv1d.weight", {a.hidden, 1, a.kernel}, ParameterRole::other);
  RmsNorm(g, name + ".pre_layer_norm", a.hidden);
  RmsNorm(g, name + ".conv_norm", a.hidden);
}

void audio_layer(GraphBuilder& g, const std::string& name, const Audio& a) {
  audio_feed_forward(g, name + ".feed_forward1", a);
  audio_feed_forward(g, name + ".feed_forward2", a);
  audio_attention(g, name + ".self_attn", a);
  audio_convolution(g, name + ".lconv1d", a);
  for (const char* norm : {".norm_pre_attn", ".norm_post_attn", ".norm_out"}) {
    RmsNorm(g, name + norm, a.hidden);
  }
}

// Two convolutions over time and frequency, of a picture of one channel, and what joins their
// answer to the layers.
void audio_subsampling(GraphBuilder& g, const std::string& name, const Audio& a) {
  int64_t in = 1;
  for (size_t i = 0; i < a.channels.size(); ++i) {
    const std::string layer = name + ".layer" + std::to_string(i);
    g.parameter(layer + ".conv.weight", {a.channels[i], in, 3, 3}, ParameterRole::other);
    LayerNorm(g, layer + ".norm", a.channels[i], false);
    in = a.channels[i];
  }
  linear(g, name + ".input_proj_linear", a.channels[0] / 4 * a.channels[1], a.hidden);
}

void audio_tower(GraphBuilder& g, const std::string& name, const Audio& a) {
  audio_subsampling(g, name + ".subsample_conv_projection", a);
  // In the model's type: transformers makes it in the one that is torch's own meanwhile.
  g.buffer(name + ".rel_pos_enc.inv_timescales", {1, 1, a.hidden / 2}, std::nullopt, false);
  for (int64_t i = 0; i < a.layers; ++i) {
    audio_layer(g, name + ".layers." + std::to_string(i), a);
  }
  linear(g, name + ".output_proj", a.hidden, a.out, true);
}

// What joins a tower to the language model. Its norm has no weight.
void embedder(GraphBuilder& g, const std::string& name, int64_t in, int64_t out) {
  linear(g, name + ".embedding_projection", in, out);
}

}  // namespace

Result<Gemma4Towers> gemma4_towers(const text::JsonView& json, int64_t text_hidden) {
  HEADROOM_ASSIGN(const std::optional<Vision> vision, read_vision(json));
  HEADROOM_ASSIGN(const std::optional<Audio> audio, read_audio(json));
  Gemma4Towers towers;
  towers.before = [vision](GraphBuilder& g) {
    if (vision) vision_tower(g, "model.vision_tower", *vision);
  };
  towers.behind = [vision, audio, text_hidden](GraphBuilder& g) {
    if (audio) audio_tower(g, "model.audio_tower", *audio);
    if (vision) embedder(g, "model.embed_vision", vision->out, text_hidden);
    if (audio) embedder(g, "model.embed_audio", audio->out, text_hidden);
  };
  return towers;
}

}  // namespace headroom::model
