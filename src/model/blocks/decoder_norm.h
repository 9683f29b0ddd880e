// The norms of Llama's descendants, and the one that a decoder asks for, as a member of a layer.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "model/blocks/norm.h"
#include "model/builder.h"

namespace headroom::model {

enum class DecoderNorm : uint8_t {
  rms,             // Llama's: widened to float32, cast back, then weighted
  wide_rms,        // gpt-oss: weighted before it is cast back
  centered_rms,    // Gemma's: weighted by 1 + w in float32, then cast back
  early_cast_rms,  // Llama 4's: as rms, but nothing is held, and the weight comes second
  widened_rms,     // Helium: as wide_rms, the weight in float32, too
  layer,           // torch.nn.LayerNorm
  bare_layer,      // OLMo: a layer norm in float32 without parameters
  written_layer,   // Cohere: a layer norm without bias, written out in float32
  powered_rms,     // Gemma 4: by a power of -1/2, weighted in float32, then cast back
};

// Gemma's RMSNorm: what is multiplied is 1 + weight, in float32, before the result is cast back.
struct CenteredRmsNorm {
  Var weight;

  CenteredRmsNorm(GraphBuilder& g, const std::string& name, int64_t size)
      : weight(g.parameter(name + ".weight", {size}, ParameterRole::norm)) {}
  Var operator()(GraphBuilder& g, const Var& input) const;
};

// OLMo's: torch's kernel on a widened input, nothing learned.
struct BareLayerNorm {
  Var operator()(GraphBuilder& g, const Var& input) const {
    return g.to_like(g.layer_norm(g.to(input, DType::f32), {}, {}), input);
  }
};

// Cohere's.
struct WrittenLayerNorm {
  Var weight;

  WrittenLayerNorm(GraphBuilder& g, const std::string& name, const Dims& shape)
      : weight(g.parameter(name + ".weight", shape, ParameterRole::norm)) {}
  Var operator()(GraphBuilder& g, const Var& input) const;
};

// Llama 4's.
struct EarlyCastRmsNorm {
  Var weight;

  EarlyCastRmsNorm(GraphBuilder& g, const std::string& name, int64_t size)
      : weight(g.parameter(name + ".weight", {size}, ParameterRole::norm)) {}
  Var operator()(GraphBuilder& g, const Var& input) const;
};

// Gemma 4's, which some modules have without a weight.
struct PoweredRmsNorm {
  Var weight;

  PoweredRmsNorm() = default;
  PoweredRmsNorm(GraphBuilder& g, const std::string& name, int64_t size)
      : weight(g.parameter(name + ".weight", {size}, ParameterRole::norm)) {}
  Var operator()(GraphBuilder& g, const Var& input) const;
};

class NormOfDecoder {
 public:
  NormOfDecoder(GraphBuilder& g, DecoderNorm kind, const std::string& name, int64_t size);
  // With a weight of its own for each of several vectors (written_layer alone).
  NormOfDecoder(GraphBuilder& g, const std::string& name, const Dims& shape);
  Var operator()(GraphBuilder& g, const Var& input) const;

 private:
  std::variant<RmsNorm, CenteredRmsNorm, EarlyCastRmsNorm, LayerNorm, BareLayerNorm,
               WrittenLayerNorm, PoweredRmsNorm>
      norm_;
};

}  // namespace headroom::model
