// Qwen 2, 2.5 and 3, dense (transformers' Qwen2ForCausalLM, Qwen3ForCausalLM, and the language
// models of Qwen2-VL, 2.5-VL and 3-VL, trained on text alone): biases on query, key
// and value in the former, norms of query and key in the latter; a window from some layer on where
// the config switches it on.
#include "model/families/qwen2.h"

#include <algorithm>

#include "model/blocks/attention.h"
#include "model/families/decoder_config.h"
#include "model/families/vision_tower.h"
#include "model/language_part.h"

namespace headroom::model {

namespace {

constexpr int64_t kWindow = 4096;
constexpr int64_t kFullLayers = 28;
constexpr int64_t kFullLayersWithImages = 80;

void read_windows(ConfigReader& in, const text::JsonView& json, DecoderSpec& spec,
                  int64_t full_layers = kFullLayers) {
  spec.sliding_window = in.size({"sliding_window"}, kWindow, kWindowMax);
  // A config may say null: no window.
  const bool sliding =
      in.flag("use_sliding_window", false) &&
      (json.json().find("sliding_window") == nullptr || json.has("sliding_window"));
  // 0 means all layers.
  const int64_t first = static_cast<int64_t>(
      in.number("max_window_layers", static_cast<double>(full_layers), 0, 1e6));
  read_layer_masks(in, json, spec, [&](int64_t layer) { return sliding && layer >= first; });
  add_mask_of_windows(spec);
}

// A model of text and images, trained on text alone; `tied_otherwise`: where the config as a whole
// does not say.
Result<Graph> with_images(const text::JsonView& json, const BuildOptions& options,
                          const Result<VisionTower>& tower, DecoderSpec spec, bool tied_otherwise) {
  ConfigReader whole(json);
  spec.tied = whole.flag("tie_word_embeddings", tied_otherwise);
  spec.model_name = "model.language_model";
  if (whole.error()) return *whole.error();
  if (!tower) return tower.error();
  spec.declare_before = *tower;
  return build_causal_decoder(spec, options);
}

Result<DecoderSpec> read_qwen2_text(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const text::JsonView text, language_part(json));
  ConfigReader in(text);
  DecoderSpec spec = read_decoder(in, text, options, {.kv_heads = 8});
  spec.qkv_bias = true;
  spec.head_cut = HeadCut::last;
  spec.tables = RotaryTables::by_section;
  spec.text_has_positions = false;
  read_windows(in, text, spec, kFullLayersWithImages);
  if (in.error()) return *in.error();
  return spec;
}

}  // namespace

Result<Graph> build_qwen2_vl(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const DecoderSpec spec, read_qwen2_text(json, options));
  // Before transformers 5 the language model's part said it.
  return with_images(json, options, qwen2_tower(json), spec, spec.tied);
}

Result<Graph> build_qwen2_5_vl(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const DecoderSpec spec, read_qwen2_text(json, options));
  return with_images(json, options, qwen2_5_tower(json), spec, spec.tied);
}

Result<Graph> build_qwen3_vl(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const text::JsonView text, language_part(json));
  ConfigReader in(text);
  DecoderSpec spec = read_decoder(in, text, options, {.kv_heads = 32, .head_dim = 128});
  spec.qkv_bias = in.flag("attention_bias", false);
  spec.output_bias = spec.qkv_bias;
  spec.head_norms = HeadNorms::before_transpose;
  spec.tables = RotaryTables::by_axis;
  if (in.error()) return *in.error();
  return with_images(json, options, qwen3_tower(json), spec, false);
}

Result<Graph> build_qwen2(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(in, json, options, {.kv_heads = 32});
  spec.repeats_for_flash = options.transformers < kGroupedFlash;
  spec.qkv_bias = true;
  read_windows(in, json, spec);
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

Result<Graph> build_qwen3(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(in, json, options, {.kv_heads = 32, .head_dim = 128});
  spec.qkv_bias = in.flag("attention_bias", false);
  spec.output_bias = spec.qkv_bias;
  spec.head_norms = HeadNorms::before_transpose;
  read_windows(in, json, spec);
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
