// Mistral 7B, Nemo, Small (transformers' MistralForCausalLM): Llama with a window, where the config
// has one.
#include "model/families/mistral.h"

#include "model/blocks/attention.h"
#include "model/families/decoder_config.h"

namespace headroom::model {

Result<Graph> build_mistral(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(in, json, options, {.kv_heads = 8});
  read_sliding_window(in, json, spec, 4096);
  spec.own_loss.until = {4, 48};
  spec.repeats_for_flash = options.transformers < kGroupedFlash;
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
