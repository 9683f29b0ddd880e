// Hunyuan, dense (transformers' HunYuanDenseV1ForCausalLM): Llama with norms of queries and keys
// that are rotated already.
#include "model/families/hunyuan.h"

#include "model/families/decoder_config.h"

namespace headroom::model {

Result<Graph> build_hunyuan_v1_dense(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader in(json);
  DecoderSpec spec = read_decoder(in, json, options);
  spec.qkv_bias = in.flag("attention_bias", false);
  spec.output_bias = spec.qkv_bias;
  spec.head_norms = HeadNorms::after_rotation;
  if (in.error()) return *in.error();
  return build_causal_decoder(spec, options);
}

}  // namespace headroom::model
