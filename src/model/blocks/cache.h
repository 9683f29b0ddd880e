// The cache of generation, as transformers' DynamicCache keeps it: a tensor a layer for keys and
// one for values, made anew with every update by concatenation; for linear attention, states of a
// fixed size that decoding writes into.
#pragma once

#include <optional>
#include <string>
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

// "past_key_values.0" for the first layer that asks.
std::string next_cache_name(GraphBuilder& g);

// The tensor `name` of a cache, longer by `fresh` along `dim`. `past`: what is in it already, which
// is there where options.past is not 0.
Var append_to_cache(GraphBuilder& g, const BuildOptions& options, const std::string& name,
                    const Var& fresh, const Dims& past, int dim);

// A state of fixed size when decoding: it comes in, is written to, and stays.
Var cached_state(GraphBuilder& g, const std::string& name, const Dims& sizes,
                 std::optional<DType> dtype);
// The same at its beginning: a tensor like `fresh`, of the given sizes, which are those of `fresh`
// where nothing is said; then it is filled.
void begin_cached_state(GraphBuilder& g, const Var& fresh, std::optional<Dims> sizes = {});

}  // namespace headroom::model
