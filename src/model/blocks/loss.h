// The losses of transformers: of causal language models, by version, and of all others.
//
// In the beginning each causal model had its own: most widened their logits to float32 and returned
// those, the older ones kept the model's type; all compared a shifted copy of the logits with the
// labels. Then they came to call one loss function, which widens them and, since 4.49, shifts
// labels only. Sources: loss/loss_utils.py, and each model's forward function, in transformers 4.29
// to 5.23.
#pragma once

#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

// What a model did for itself before it called the loss function.
struct OwnLoss {
  op::Version until{4, 46};  // the first version that calls the function
  bool float32 = true;       // logits are widened, and returned so
};

// GPT-2, OPT, BLOOM, BioGPT, GPTBigCode, GPT-NeoX, Falcon, StableLM (read in 4.48.1 and 4.49.0).
inline constexpr OwnLoss kLossInModelType{.until = {4, 49}, .float32 = false};
// GPT-Neo, GPT-J, CodeGen.
inline constexpr OwnLoss kLateFloat32Loss{.until = {4, 49}, .float32 = true};

// logits [batch, sequence, vocabulary], labels [batch, sequence]; a scalar. `logits` becomes what
// the model returns.
Var causal_lm_loss(GraphBuilder& g, const BuildOptions& options, Var& logits, const Var& labels,
                   int64_t vocabulary, const OwnLoss& own = {});

// Cross entropy of each row as it is, in the type that the logits have (BertForMaskedLM,
// T5ForConditionalGeneration, ViTForImageClassification): logits [..., classes], labels [...].
Var token_loss(GraphBuilder& g, const BuildOptions& options, const Var& logits, const Var& labels,
               int64_t classes);

// The same of logits that are widened to float32 first (ForMaskedLMLoss).
Var wide_token_loss(GraphBuilder& g, const BuildOptions& options, const Var& logits,
                    const Var& labels, int64_t classes);

}  // namespace headroom::model
