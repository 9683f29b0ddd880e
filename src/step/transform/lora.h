// LoRA: low-rank adapters beside frozen linear modules, as the peft library (0.13 to 0.21) adds
// them.
//
// Every parameter of the model is frozen; each target module gets two trainable matrices A [rank,
// in] and B [out, rank], and answers with base(x) + B(A(dropout(x.to(A's type)))) * scaling, cast
// back to the base's type. Parameters are named as peft names them.
//
// Source: peft/tuners/lora/layer.py (Linear.forward), tuners_utils.py (target modules, adapter
// type) and utils/constants.py (targets by architecture); tuners/lora/bnb.py (beside a quantized
// weight).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/graph.h"

namespace headroom::step {

struct LoraOptions {
  int64_t rank = 8;
  // Module names or their ends; "all-linear" alone: every linear module but the head. Empty: what
  // peft chooses for `model_type`.
  std::vector<std::string> targets;
  std::string model_type;
  double alpha = 8;
  double dropout = 0;
  bool dora = false;  // DoRA's magnitude beside the two matrices; not beside quantized weights
  // peft's autocast_adapter_dtype: float32, whatever the base is in. Empty: the base's type.
  std::optional<model::DType> adapter_dtype = model::DType::f32;
  // What peft casts an adapter's input to where its weight is not in the type that it computes in
  // when peft asks: FSDP1's mixed precision has shards in float32, and gathers behind that
  // question.
  std::optional<model::DType> input_dtype;
  // Forward runs under torch.autocast: beside a bitsandbytes weight, peft leaves the casts to it.
  bool autocast = false;
  // enable_input_require_grads: reentrant checkpoints need an input that wants a gradient.
  bool require_input_gradients = false;
  bool trains_head = false;  // sequences are classified
};

// peft's choice for an architecture; empty where it has none.
[[nodiscard]] std::vector<std::string> default_lora_targets(std::string_view model_type);

// Errors: a rank out of range, no targets known for the architecture, no module of these names.
[[nodiscard]] Result<model::Graph> apply_lora(const model::Graph& graph,
                                              const LoraOptions& options);

}  // namespace headroom::step
