// The key-value cache of generation, as transformers' DynamicCache keeps it: a tensor a layer for
// keys and one for values, made anew with every update by concatenation.
#pragma once

#include <utility>

#include "model/blocks/attention.h"
#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

// Takes new keys and values [batch, kv_heads, sequence, head] into this layer's cache and returns
// what attention sees: [batch, kv_heads, past + sequence, head]. Without a cache, what came in.
std::pair<Var, Var> update_cache(GraphBuilder& g, const BuildOptions& options,
                                 const AttentionShape& shape, Var key, Var value);

// The same as Python writes it, key, value = cache.update(key, value): what came in goes. attend()
// then does without.
void rebind_to_cache(GraphBuilder& g, const BuildOptions& options, AttentionShape& shape, Var& key,
                     Var& value);

}  // namespace headroom::model
