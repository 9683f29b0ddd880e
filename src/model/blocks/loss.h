// The causal language-model loss of transformers, by version.
#pragma once

#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

// logits [batch, sequence, vocabulary], labels [batch, sequence]; a scalar.
Var causal_lm_loss(GraphBuilder& g, const BuildOptions& options, const Var& logits,
                   const Var& labels, int64_t vocabulary);

}  // namespace headroom::model
