// How a model is to be built: the shape of the batch, and the choices that a user makes when
// loading it (attention implementation, library version), which change what its forward function
// does.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "operator/dtype.h"
#include "operator/eager.h"

namespace headroom::model {

// transformers' attn_implementation.
enum class Attention : uint8_t { eager, sdpa, flash_attention_2 };
[[nodiscard]] std::string_view name_of(Attention attention);

// transformers' experts_implementation (since 5.0): how a mixture of experts multiplies. It picks
// grouped_mm for itself where the model allows a choice.
enum class ExpertsImplementation : uint8_t { grouped_mm, batched_mm, eager };

// A stretch of a decoder's layers that runs by itself, as a stage of a pipeline; the first one has
// the embedding, the last one the final norm, the head and the loss. Hidden states come from the
// part before and go to the next; masks and rotary tables each part makes for itself. A head that
// is tied to an embedding in another part has a weight of its own.
struct ModelPart {
  int64_t first_layer = 0;
  int64_t layers = 0;
  bool is_first = true;
  bool is_last = true;
  bool operator==(const ModelPart&) const = default;
};

struct BuildOptions {
  int64_t batch = 1;
  int64_t sequence = 512;
  std::optional<int64_t> decoder_sequence;  // of a model with an encoder; else as long as it
  Attention attention = Attention::sdpa;
  ExpertsImplementation experts = ExpertsImplementation::grouped_mm;
  // Rows that the router sends to each expert, for code whose sizes depend on it (a loop over
  // experts). Empty: every expert gets its share, the first ones what is left over.
  std::vector<int64_t> tokens_per_expert;
  // That share the experts out (expert_exchange.h), and of what even routing would send to one of
  // them, what the one that is built for gets.
  int64_t expert_ranks = 1;
  double expert_share = 1;
  op::Version transformers{5, 23};
  bool training = true;               // dropouts are on
  bool labels = true;                 // the forward function computes a loss
  bool checkpointing = false;         // the model knows of it (T5 makes its biases differentiable)
  bool use_cache = false;             // a key-value cache is made and returned
  int64_t past = 0;                   // tokens already in it, beside `sequence` new ones
  bool attention_mask = false;        // a padding mask that is not all ones is passed in
  bool compiled = false;              // as a whole: no kernel is left to mask by itself
  std::optional<int64_t> vocabulary;  // instead of the config's
  std::optional<int64_t> classes;     // of whole sequences; none: the family's own task
  // One rank's, in order: each becomes a chunk of the graph. Empty: the whole model.
  std::vector<ModelPart> parts;
};

}  // namespace headroom::model
