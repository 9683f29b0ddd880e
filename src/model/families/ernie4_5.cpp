// ERNIE 4.5, dense (transformers' Ernie4_5ForCausalLM): Llama whose heads turn by neighbours, in
// float32.
#include "model/families/ernie4_5.h"

#include "model/families/decoder_config.h"

namespace headroom::model {

Result<Graph> build_ernie4_5(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec =
      read_decoder(in, json, options, {.tied = true, .kv_heads = 2, .head_dim = 128});
  spec.attention_dropout = 0;  // the module's, whatever the config says
  spec.qkv_bias = in.flag("use_bias", false);
  spec.output_bias = spec.qkv_bias;
  spec.mlp_bias = spec.qkv_bias;
  spec.tables = RotaryTables::wide;
  spec.rotation = Rotation::pairs;
  spec.pair_rotation.widening = PairRotation::Widening::by_factor;
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
