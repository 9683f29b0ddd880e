// Gemma 1, 2 and the text part of 3 (transformers' GemmaForCausalLM, Gemma2ForCausalLM,
// Gemma3ForCausalLM).
#include "model/families/gemma.h"

#include <algorithm>

#include "model/families/decoder_config.h"
#include "model/families/vision_tower.h"
#include "model/language_part.h"

namespace headroom::model {

namespace {

DecoderSpec read_gemma(ConfigReader& in, const text::JsonView& json, const BuildOptions& options,
                       const char* activation_key, int64_t kv_heads,
                       std::optional<int64_t> vocabulary = {}) {
  DecoderSpec spec = read_decoder(in, json, options,
                                  {.vocabulary = vocabulary,
                                   .heads = vocabulary ? std::optional<int64_t>(8) : std::nullopt,
                                   .tied = true,
                                   .activation = Activation::gelu_tanh,
                                   .activation_key = activation_key,
                                   .kv_heads = kv_heads,
                                   .head_dim = 256});
  spec.qkv_bias = in.flag("attention_bias", false);
  spec.output_bias = spec.qkv_bias;
  spec.norm = DecoderNorm::centered_rms;
  spec.embedding_scale_buffer = true;
  return spec;
}

// Gemma 2 and 3: norms around both parts, and windows in most layers.
void read_alternation(ConfigReader& in, const text::JsonView& json, DecoderSpec& spec,
                      int64_t period) {
  spec.norms = NormPlacement::gemma;
  spec.masks = {LayerMask::full, LayerMask::sliding};
  spec.sliding_window = in.size({"sliding_window"}, 4096);
  read_layer_masks(in, json, spec, [&](int64_t layer) { return (layer + 1) % period != 0; });
}

// A bound that a config may switch off by null.
bool has_softcap(ConfigReader& in, const text::JsonView& json, const char* key, bool otherwise) {
  in.number(key, 1, 0, 1e9);
  return json.json().find(key) == nullptr ? otherwise : json.has(key);
}

}  // namespace

Result<Graph> build_gemma(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  const DecoderSpec spec = read_gemma(in, json, options, "hidden_act", 16);
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

Result<Graph> build_gemma2(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_gemma(in, json, options, "hidden_activation", 4);
  read_alternation(in, json, spec, 2);
  spec.softcap_scores = has_softcap(in, json, "attn_logit_softcapping", true);
  spec.softcap_logits = has_softcap(in, json, "final_logit_softcapping", true);
  if (in.error()) return *in.error();
  // SDPA has no bound on scores: transformers runs the eager implementation.
  BuildOptions supported = options;
  if (options.attention == Attention::sdpa) supported.attention = Attention::eager;
  return build_causal_decoder(spec, supported);
}

namespace {

DecoderSpec read_gemma3(ConfigReader& in, const text::JsonView& json, const BuildOptions& options,
                        std::optional<int64_t> vocabulary = {}) {
  DecoderSpec spec = read_gemma(in, json, options, "hidden_activation", 4, vocabulary);
  read_alternation(in, json, spec, in.size({"sliding_window_pattern"}, 6));
  spec.head_norms = HeadNorms::after_transpose;
  spec.tables_by_mask = true;
  in.require(!in.flag("use_bidirectional_attention", false), "use_bidirectional_attention",
             "attention to what comes later is not modelled");
  // The scores' bound is read by no code of Gemma 3.
  spec.softcap_logits = has_softcap(in, json, "final_logit_softcapping", false);
  return spec;
}

}  // namespace

Result<Graph> build_gemma3(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  const DecoderSpec spec = read_gemma3(in, json, options);
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

Result<Graph> build_gemma3_with_images(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const text::JsonView text, language_part(json));
  ConfigReader whole(json);
  ConfigReader in(text);
  // Checkpoints say of the language model what differs from these alone.
  DecoderSpec spec = read_gemma3(in, text, options, 262208);
  spec.tied = whole.flag("tie_word_embeddings", true);
  spec.softcap_logits = false;  // its own forward function knows of no bound
  spec.model_name = "model.language_model";
  // Only of the kinds that there are.
  spec.masks_come_first = true;
  std::erase_if(spec.masks, [&](LayerMask mask) {
    return std::ranges::find(spec.mask_of_layer, mask) == spec.mask_of_layer.end();
  });
  if (in.error()) return *in.error();
  if (whole.error()) return *whole.error();
  HEADROOM_ASSIGN(spec.declare_before, siglip_tower(json, spec.hidden));
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
