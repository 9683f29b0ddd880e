// IA3 (arXiv 2205.05638) as the peft library (0.21) adds it: one trainable vector beside a frozen
// linear module, by which its answer is multiplied, or, for a feed-forward module, what it is
// called with.
//
// Source: peft/tuners/ia3/layer.py (Linear.forward), model.py; utils/constants.py (targets and
// feed-forward modules by architecture).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/graph.h"

namespace headroom::step {

struct Ia3Options {
  // Module names or their ends, as for LoRA; empty: what peft chooses for `model_type`.
  std::vector<std::string> targets;
  // Those of them whose input is scaled; empty: what peft chooses for `model_type`.
  std::vector<std::string> feedforward;
  std::string model_type;
  // peft's autocast_adapter_dtype: float32, whatever the base is in. Empty: the base's type.
  std::optional<model::DType> adapter_dtype = model::DType::f32;
  bool require_input_gradients = false;  // as in LoraOptions
  bool trains_head = false;              // the same
};

// Errors: no targets known for the architecture, no module of these names.
[[nodiscard]] Result<model::Graph> apply_ia3(const model::Graph& graph, const Ia3Options& options);

}  // namespace headroom::step
