// Phi-3, Phi-3.5 and Phi-4 (transformers' Phi3ForCausalLM): one projection for query, key and
// value, one for gate and up.
#include "model/families/phi3.h"

#include "model/blocks/attention.h"
#include "model/families/decoder_config.h"

namespace headroom::model {

Result<Graph> build_phi3(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(in, json, options);
  spec.repeats_for_flash = options.transformers < kGroupedFlash;
  spec.fused_qkv = true;
  spec.feed_forward = FeedForwardKind::fused_gated;
  spec.rotation = Rotation::partial_halves;
  spec.residual_dropout = in.dropout("resid_pdrop", 0, options);
  read_sliding_window(in, json, spec, {});
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
