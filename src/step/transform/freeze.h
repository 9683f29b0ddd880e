// Frozen parts: parameters that keep their values (requires_grad_(False)), so that they need
// neither gradient nor state, and what lies before them in the forward pass nothing saved.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "model/graph.h"

namespace headroom::step {

// Whether a parameter's name has these parts next to each other: "layers.0-3" is in
// "model.layers.2.mlp.up_proj.weight". A part of two numbers with a dash is a range, ends included.
[[nodiscard]] bool names_part(const std::string& part, const std::string& parameter);

// Freezes what any of `parts` names. Errors: usage, where one names nothing or nothing is left.
[[nodiscard]] Result<model::Graph> apply_freeze(model::Graph graph,
                                                const std::vector<std::string>& parts);

}  // namespace headroom::step
