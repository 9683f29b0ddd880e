// The graphs that a decode step is counted on, and the memory of weights and cache by them.
//
// For decode_step.cpp and its parts; weight_bytes for any graph. Pure; thread-safe.
#pragma once

#include "base/result.h"
#include "base/units.h"
#include "model/graph.h"
#include "text/json.h"
#include "timing/decode_shapes.h"

namespace headroom::timing {

// One token behind options.context - 1 others, with a cache. An Error for a model that does not
// write token by token.
Result<model::Graph> decode_graph(const text::JsonView& config, const DecodeOptions& options,
                                  int64_t batch);

// One token behind none. Of latent attention it has the products of an engine's step: behind others
// transformers makes keys and values of all their latents anew.
Result<model::Graph> graph_without_past(const text::JsonView& config, int64_t batch);

// Each weight once, in its own type, or in `weights`.
[[nodiscard]] Bytes weight_bytes(const model::Graph& graph, op::DType weights);
// Over which the weights lie.
[[nodiscard]] int64_t devices_of(const DecodeOptions& options);
// What quantized weights are smaller by, on all devices together. REQUIRES: they are quantized.
[[nodiscard]] int64_t saved_weight_bytes(const DecodeOperators& shapes, const DecodeSizes& sizes);
// Of all sequences of the graph, on one device.
[[nodiscard]] Bytes cache_bytes(const model::Graph& graph, const DecodeOptions& options,
                                const DecodeOperators& shapes, const DecodeSizes& sizes);
// Sequences whose cache fits beside the weights.
[[nodiscard]] int64_t largest_batch_of(const device::Device& device, Bytes weights,
                                       int64_t kv_of_one);

// Of a sequence longer than the model has positions for, as its configuration says and scales them:
// no engine takes one.
Result<void> refuse_beyond_positions(const text::JsonView& config, const DecodeOptions& options);
// At the length that is asked for: to be said last, since its hint is to lead somewhere.
Result<void> refuse_beyond_window(const text::JsonView& config, const DecodeOptions& options);

}  // namespace headroom::timing
