// Mistral 7B, Nemo, Small and Ministral 3 (transformers' MistralForCausalLM,
// Ministral3ForCausalLM, and both within Mistral3ForConditionalGeneration): Llama with a window,
// where the config has one; the third scales queries by their position.
#include "model/families/mistral.h"

#include <string>

#include "model/blocks/attention.h"
#include "model/families/decoder_config.h"
#include "model/families/vision_tower.h"
#include "model/language_part.h"

namespace headroom::model {

namespace {

DecoderSpec read_mistral(ConfigReader& in, const text::JsonView& json,
                         const BuildOptions& options) {
  DecoderSpec spec = read_decoder(in, json, options, {.kv_heads = 8});
  read_sliding_window(in, json, spec, 4096);
  spec.own_loss.until = {4, 48};
  spec.repeats_for_flash = options.transformers < kGroupedFlash;
  return spec;
}

DecoderSpec read_ministral3(ConfigReader& in, const text::JsonView& json,
                            const BuildOptions& options) {
  DecoderSpec spec = read_decoder(in, json, options, {.kv_heads = 8, .head_dim = 128});
  read_sliding_window(in, json, spec, {});
  spec.scales_queries = true;
  return spec;
}

}  // namespace

Result<Graph> build_mistral(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  const DecoderSpec spec = read_mistral(in, json, options);
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

Result<Graph> build_ministral3(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  const DecoderSpec spec = read_ministral3(in, json, options);
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

Result<Graph> build_mistral3(const text::JsonView& json, const BuildOptions& options) {
  HEADROOM_ASSIGN(const text::JsonView text, language_part(json));
  HEADROOM_ASSIGN(const auto kind, text.optional_string("model_type"));
  ConfigReader whole(json);
  ConfigReader in(text);
  const std::string name = kind.value_or("mistral");
  whole.require(name == "mistral" || name == "ministral3", "text_config",
                "a language model of type '" + name + "': mistral and ministral3 are modelled");
  DecoderSpec spec =
      name == "ministral3" ? read_ministral3(in, text, options) : read_mistral(in, text, options);
  // transformers' default is that they are, and its checkpoints hold two: those stay apart.
  spec.tied = whole.flag("tie_word_embeddings", spec.tied);
  spec.model_name = "model.language_model";
  if (in.error()) return *in.error();
  if (whole.error()) return *whole.error();
  HEADROOM_ASSIGN(spec.declare_before, pixtral_tower(json, spec.hidden));
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
