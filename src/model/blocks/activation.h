// Activation functions by the names that configs use (transformers' ACT2FN).
#pragma once

#include <string>

#include "base/result.h"
#include "model/builder.h"
#include "text/json.h"

namespace headroom::model {

enum class Activation : uint8_t {
  gelu,
  gelu_new,
  gelu_fast,
  gelu_tanh,
  silu,
  relu,
  relu2,
  quick_gelu,
  tanh
};

// The member `key` of a config, or `otherwise` where it has none; an unknown name is an error.
Result<Activation> read_activation(const text::JsonView& config, const char* key,
                                   Activation otherwise);
Var activate(GraphBuilder& g, Activation activation, const Var& x);

}  // namespace headroom::model
