// Causal masks as transformers makes them (masking_utils.py), by attention implementation.
#pragma once

#include "model/builder.h"
#include "model/options.h"

namespace headroom::model {

// arange(sequence) + 0, unsqueezed: the [1, sequence] position ids that a model makes for itself.
Var default_position_ids(GraphBuilder& g, const BuildOptions& options);

// Reads position ids, where they are passed, for sequences packed into one row, and finds none.
void look_for_packed_sequences(GraphBuilder& g, const BuildOptions& options,
                               const Var& position_ids);

// Reads the first and the last token of each sequence, where the config names one for padding and
// no mask is passed (warn_if_padding_and_no_attention_mask).
void look_for_padding(GraphBuilder& g, const BuildOptions& options, const Var& ids);

// The mask of a decoder, [batch, 1, sequence, sequence] in the type of `like`, or nothing where the
// kernel masks by itself, which a compiled model never leaves to it: whether a mask is all ones is
// data, and its graph must not depend on that (masking_utils.py). Looks at the position ids for
// packed sequences first, as transformers does since 4.53, and finds none.
Var causal_mask(GraphBuilder& g, const BuildOptions& options, const Var& like,
                const Var& position_ids);

// The same where the model wants it as a tensor in any case: SDPA gets booleans.
Var materialized_causal_mask(GraphBuilder& g, const BuildOptions& options, const Var& like);

// Zeros where booleans allow, the lowest number elsewhere, in the type of `like`.
Var additive_mask(GraphBuilder& g, const Var& allowed, const Var& like);

// The causal mask where a position sees `window` positions back. SDPA gets booleans, and gets them
// even where nothing is beyond the window but the sequence is as long.
Var sliding_mask(GraphBuilder& g, const BuildOptions& options, const Var& like,
                 const Var& position_ids, int64_t window);

// Where a position sees those before it in its own chunk of the sequence (Llama 4): nothing where
// the kernel masks by itself and there is one chunk.
Var chunked_mask(GraphBuilder& g, const BuildOptions& options, const Var& like,
                 const Var& position_ids, int64_t chunk);

// Where a position sees `window` positions before and after it, and none is passed for padding:
// nothing where all are within it.
Var two_sided_sliding_mask(GraphBuilder& g, const BuildOptions& options, const Var& like,
                           int64_t window);

// The causal mask where the model passes a padding mask, [batch, sequence] of numbers, that is all
// ones: it is read, and joined with the causal mask where one is made.
Var causal_mask_with_padding(GraphBuilder& g, const BuildOptions& options, const Var& like,
                             const Var& padding);

}  // namespace headroom::model
