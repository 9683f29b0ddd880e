// What BERT has beyond a GPT's ends on one rank: token types, a head with a layer of its own, and a
// second loss of the first token. Internal to model.
//
// Source: megatron/core/models/bert/{bert_model,bert_lm_head,pooler}.py, pretrain_bert.py, at
// d98e8a64 (August 2026).
#pragma once

#include "model/megatron_parts.h"

namespace headroom::model {

// Of the first stage: embeddings of the two token types, added to x [s, b, h].
class BertTokenTypes {
 public:
  BertTokenTypes(GraphBuilder& g, const MegatronSizes& sizes);
  Var operator()(GraphBuilder& g, Var x) const;

 private:
  const MegatronSizes& sizes_;
  Var table_;
};

// Of the last stage: from hidden states to what the vocabulary's matrix is applied to, and the loss
// of whether a sentence follows the other. Every tensor parallel rank has these matrices whole.
class BertHead {
 public:
  BertHead(GraphBuilder& g, const MegatronSizes& sizes);
  Var operator()(GraphBuilder& g, Var x) const;
  [[nodiscard]] Var sentence_loss(GraphBuilder& g, const Var& x) const;
  [[nodiscard]] const Var& vocabulary_bias() const { return vocabulary_bias_; }

 private:
  const MegatronSizes& sizes_;
  Var dense_weight_, dense_bias_;
  MegatronNorm norm_;
  Var vocabulary_bias_;
  Var binary_weight_, binary_bias_, pooler_weight_, pooler_bias_;
};

}  // namespace headroom::model
