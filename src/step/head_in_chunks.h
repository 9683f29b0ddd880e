// The head and its loss chunk by chunk of the sequence, each with its backward pass, while the
// forward pass of the rest waits: torchtitan's ChunkedLossWrapper (0.3.0).
//
// What a chunk makes is gone before the next one has its logits; the gradient of the hidden states
// comes together in float32, that of the head's weight adds up. What is left for backward are those
// two. Where fully_shard has the weight, its gradient adds up whole in the type that it is reduced
// in, and is reduced behind the last chunk; here that reduction's own place is backward's
// beginning. Source: torchtitan/components/loss.py.
#pragma once

#include <cstdint>
#include <optional>

#include "model/graph.h"
#include "operator/eager.h"

namespace headroom::step {

struct HeadInChunks {
  int64_t chunks = 8;
  // Of the weight's gradient, under fully_shard; nothing: it adds up as it is.
  std::optional<op::DType> whole_gradient = {};
  bool is_of_parts = false;  // the weight is a tensor parallel rank's part of the classes

  [[nodiscard]] model::Attributes attributes() const;
  [[nodiscard]] static HeadInChunks from(const model::Attributes& attributes);
};

// hidden [batch, sequence, width], weight [classes, width], target [batch, sequence]; a scalar.
// REQUIRES: the chunks divide the sequence.
[[nodiscard]] op::Tensor head_in_chunks(op::Eager& e, const op::Tensor& hidden,
                                        const op::Tensor& weight, const op::Tensor& target,
                                        const HeadInChunks& options);

}  // namespace headroom::step
