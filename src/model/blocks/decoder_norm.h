// The norms of Llama's descendants, and the one that a decoder asks for, as a member of a layer.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "model/blocks/norm.h"
#include "model/builder.h"

namespace headroom::model {

enum class DecoderNorm : uint8_t {
  rms,           // Llama's: widened to float32, cast back, then weighted
  wide_rms,      // gpt-oss: weighted before it is cast back
  centered_rms,  // Gemma's: weighted by 1 + w in float32, then cast back
  layer,         // torch.nn.LayerNorm
};

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
