#include "model/megatron_t5.h"

#include <algorithm>
#include <string>
#include <vector>

#include "model/megatron_ends.h"
#include "model/megatron_layer.h"

namespace headroom::model {

namespace {

// Layers of an encoder or a decoder, and the norm behind them.
class Stack {
 public:
  Stack(GraphBuilder& g, const MegatronSizes& sizes, const std::string& name, int64_t layers)
      : sizes_(sizes) {
    for (int64_t i = 0; i < layers; ++i) {
      layers_.emplace_back(g, sizes, name + ".layers." + std::to_string(i));
    }
    norm_ =
        MegatronNorm(g, name + ".final_layernorm.", sizes.stage.model, sizes.stage.model.hidden);
  }

  Var operator()(GraphBuilder& g, const Var& words, const Var& places,
                 const MegatronContext& context) const {
    Var x = megatron_embedding(g, sizes_, words, places);
    for (const MegatronLayer& layer : layers_) x = layer(g, std::move(x), context);
    return g.apply(OpKind::te_norm, {std::move(x), norm_.weight, norm_.bias});
  }

 private:
  const MegatronSizes& sizes_;
  std::vector<MegatronLayer> layers_;
  MegatronNorm norm_;
};

}  // namespace

Graph build_megatron_t5(const MegatronStage& stage) {
  const MegatronModel& m = stage.model;
  MegatronStage behind = stage;
  behind.sequence = stage.decoder_sequence;
  MegatronSizes encoding(stage);
  encoding.is_encoder = true;
  MegatronSizes decoding(behind);
  decoding.is_behind_encoder = true;
  GraphBuilder g;
  {
    const MegatronBuffers buffers(g, decoding, std::max(stage.sequence, stage.decoder_sequence));
    const int64_t rows = m.padded_vocabulary / stage.rank.tensor;
    const Var words =
        g.parameter("embedding.word_embeddings.weight", {rows, m.hidden}, ParameterRole::embedding);
    const Var places = m.positions > 0
                           ? g.parameter("embedding.position_embeddings.weight",
                                         {m.positions, m.hidden}, ParameterRole::embedding)
                           : Var();
    const Stack encoder(g, encoding, "encoder", m.layers);
    const Stack decoder(g, decoding, "decoder", m.decoder_layers);
    // The head has a bias where it shares the words' table, which has none.
    const Var head = m.tied ? words
                            : g.parameter("lm_head.output_layer.weight", {rows, m.hidden},
                                          ParameterRole::lm_head);
    const Var bias =
        m.tied ? g.parameter("lm_head.output_layer.bias", {rows}, ParameterRole::bias) : Var();
    MegatronContext context;
    context.gathered = buffers.gathered;
    context.encoded = encoder(g, words, places, context);
    context.encoded_sequence = encoding.local_sequence;
    const Var x = decoder(g, words, places, context);
    Var logits = megatron_logits(g, decoding, x, head, bias, buffers.gathered);
    const Var loss = megatron_loss(g, decoding, std::move(logits));
    g.set_outputs(loss, Var(), {});
  }
  return g.finish();
}

}  // namespace headroom::model
