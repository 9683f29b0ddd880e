// The norms of Llama's descendants, and the one that a DecoderSpec asks for, as a member of a
// layer.
#pragma once

#include <string>
#include <variant>

#include "model/blocks/causal_decoder.h"
#include "model/blocks/norm.h"
#include "model/builder.h"

namespace headroom::model {

// Gemma's RMSNorm: what is multiplied is 1 + weight, in float32, before the result is cast back.
struct CenteredRmsNorm {
  Var weight;

  CenteredRmsNorm(GraphBuilder& g, const std::string& name, int64_t size)
      : weight(g.parameter(name + ".weight", {size}, ParameterRole::norm)) {}
  Var operator()(GraphBuilder& g, const Var& input) const;
};

class NormOfDecoder {
 public:
  NormOfDecoder(GraphBuilder& g, DecoderNorm kind, const std::string& name, int64_t size);
  Var operator()(GraphBuilder& g, const Var& input) const;

 private:
  std::variant<RmsNorm, CenteredRmsNorm, LayerNorm> norm_;
};

}  // namespace headroom::model
