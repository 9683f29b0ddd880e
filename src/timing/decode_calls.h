// The calls of a decode step, as a serving engine makes them or PyTorch's eager mode: a model's
// operators (decode_shapes.h) at the sizes of a step.
//
// For decode_step.cpp and its parts alone. Pure; thread-safe.
#pragma once

#include <vector>

#include "timing/decode_shapes.h"

namespace headroom::timing {

// All of a step, but for the cache's bytes.
[[nodiscard]] DecodeWork work_of(const DecodeOperators& shapes, const DecodeSizes& sizes,
                                 bool is_eager);

// What all layers do with so many rows, but attention; the head's product is of one.
[[nodiscard]] std::vector<CountedCall> row_calls(const DecodeOperators& shapes,
                                                 const DecodeSizes& sizes, int64_t rows,
                                                 bool is_eager);

// The attention of a prompt of so many tokens, alone.
[[nodiscard]] CountedCall prompt_attention_call(const DecodeOperators& shapes,
                                                const DecodeSizes& sizes, int64_t tokens);

}  // namespace headroom::timing
