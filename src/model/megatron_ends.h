// The ends of a model of Megatron-LM's on one rank: embeddings, the head with its loss, and blocks
// that are made once for all. Internal to model.
//
// Source: megatron/core/models/common/embeddings/language_model_embedding.py,
// tensor_parallel/{layers,cross_entropy}.py, pretrain_gpt.py, at d98e8a64 (August 2026).
#pragma once

#include "model/megatron_bert.h"

namespace headroom::model {

// What is made once for all chunks.
struct MegatronBuffers {
  Var gathered;  // sequences put together; none where nothing is
  Var workspace;
  // `longest` of the sequences that attention is over.
  MegatronBuffers(GraphBuilder& g, const MegatronSizes& sizes, int64_t longest);
};

// VocabParallelEmbedding and learned positions, then [s, b, h], scattered and dropped out.
// `places` may be empty, and `types` null.
Var megatron_embedding(GraphBuilder& g, const MegatronSizes& sizes, const Var& words,
                       const Var& places, const BertTokenTypes* types = nullptr);

// LanguageModel.output_layer over the whole sequence, which is gathered into a lasting buffer;
// `bias` may be empty.
Var megatron_logits(GraphBuilder& g, const MegatronSizes& sizes, const Var& hidden,
                    const Var& weight, const Var& bias, const Var& gathered);

// pretrain_gpt.py's loss_func over what the vocabulary's parts give.
Var megatron_loss(GraphBuilder& g, const MegatronSizes& sizes, Var logits);

}  // namespace headroom::model
