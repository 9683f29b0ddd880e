// Phi-3.5-MoE's routing (SparseMixer-v2): in training, two experts are drawn one after the other
// from the scores that are near the best, and an autograd function of its own estimates their
// gradient.
//
// Much of it runs on scores alone, whose gradient takes another way: the nodes in between stay
// until backward, keep what they saved, and are given nothing.
//
// Source: sparsemixer() and PhimoeMultiplier in models/phimoe/modeling_phimoe.py
// (transformers 5.23).
#pragma once

#include <string>

#include "model/blocks/moe.h"
#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

// logits [tokens, experts]; two experts a token, whatever the config says. `name`: of the router.
Routed sparse_mixer(GraphBuilder& g, const BuildOptions& options, const Var& logits,
                    int64_t experts, const std::string& name);

}  // namespace headroom::model
