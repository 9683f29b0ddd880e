// ERNIE 4.5 with experts: heads turn by neighbours in float32, and the router, in float32 too, adds
// a correction that is no buffer but a parameter without gradient.
#include "model/families/moe.h"
#include "model/families/moe_config.h"

namespace headroom::model {

namespace {

// Every moe_layer_interval-th layer of those from the first to the last index named.
Result<std::vector<bool>> layers_with_experts(const text::JsonView& json, int64_t layers) {
  HEADROOM_ASSIGN(const auto first, json.optional_int("moe_layer_start_index", 0, kLayersMax));
  HEADROOM_ASSIGN(const auto last, json.optional_int("moe_layer_end_index", -1, kLayersMax));
  HEADROOM_ASSIGN(const auto interval, json.optional_int("moe_layer_interval", 1, kLayersMax));
  const int64_t end = last.value_or(-1) == -1 ? layers - 1 : *last;
  std::vector<bool> sparse;
  for (int64_t i = 0; i < layers; ++i) {
    sparse.push_back((i + 1) % interval.value_or(1) == 0 && i >= first.value_or(1) && i <= end);
  }
  return sparse;
}

}  // namespace

Result<Graph> build_ernie4_5_moe(const text::JsonView& json, const BuildOptions& options) {
  ConfigReader reader(json);
  MoeConfig config;
  config.default_kv_heads = 4;
  config.read(reader, options, {"moe_num_experts", "num_experts"}, "moe_intermediate_size");
  reader.require(config.attention.head_dim % 2 == 0, "head_dim", "is odd");
  config.decoder.tied = reader.flag("tie_word_embeddings", true);
  config.decoder.tables = RotaryTables::wide;
  config.mlp_bias = reader.flag("use_bias", false);
  config.decoder.head_bias = config.mlp_bias;
  config.attention.qkv_bias = config.mlp_bias;
  config.attention.output_bias = config.mlp_bias;
  config.attention.dropout = 0;  // the module's, whatever the config says
  config.attention.turns_pairs = PairRotation{.widening = PairRotation::Widening::by_factor};
  config.router.routing = Routing::corrected_softmax;
  MoeLayout layout;
  layout.shared_first = true;
  HEADROOM_ASSIGN(const auto shared, json.optional_int("moe_num_shared_experts", 0, kExpertsMax));
  layout.shared_size = config.experts.intermediate * shared.value_or(2);
  reader.require(layout.shared_size <= kSizeMax, "moe_num_shared_experts",
                 "more than 2^24 columns in the shared experts");
  HEADROOM_ASSIGN(const auto sparse, layers_with_experts(json, config.decoder.layers));
  if (reader.error()) return *reader.error();
  return build_decoder(config.decoder, options, layer_maker(options, config, layout, sparse));
}

}  // namespace headroom::model
