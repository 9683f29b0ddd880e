// Phi-3.5-MoE: layer norms, frequencies brought to the device in every forward pass, and a router
// that draws its experts.
#include "model/families/moe.h"
#include "model/families/moe_config.h"

namespace headroom::model {

Result<Graph> build_phimoe(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  MoeConfig config;
  config.default_kv_heads = 8;
  config.read(reader, options, {"num_local_experts"}, "intermediate_size");
  reader.require(config.experts.experts >= 2, "num_local_experts", "fewer than the two drawn");
  config.experts.top_k = 2;
  config.attention.qkv_bias = reader.flag("attention_bias", false);
  config.attention.output_bias = config.attention.qkv_bias;
  config.decoder.norm = DecoderNorm::layer;
  config.decoder.head_bias = reader.flag("lm_head_bias", false);
  config.decoder.tables = RotaryTables::from_host;
  config.router.routing = Routing::sparse_mixer;
  HEADROOM_ASSIGN(const auto window, json.optional_int("sliding_window", 1, kSizeMax));
  if (window) {
    config.decoder.masks = {LayerMask::sliding};
    config.decoder.sliding_window = *window;
  }
  MoeLayout layout;
  layout.router_name = "router";
  layout.jitters_input = options.training && reader.number("input_jitter_noise", 0, 0, 1) > 0;
  if (reader.error()) return *reader.error();
  return build_decoder(config.decoder, options, layer_maker(options, config, layout));
}

}  // namespace headroom::model
