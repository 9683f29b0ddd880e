#include "model/blocks/decoder_norm.h"

#include <utility>

namespace headroom::model {

namespace {

using AnyNorm = std::variant<RmsNorm, CenteredRmsNorm, EarlyCastRmsNorm, LayerNorm, BareLayerNorm,
                             WrittenLayerNorm, PoweredRmsNorm>;

AnyNorm make(GraphBuilder& g, DecoderNorm kind, const std::string& name, int64_t size) {
  switch (kind) {
    case DecoderNorm::centered_rms:
      return CenteredRmsNorm(g, name, size);
    case DecoderNorm::early_cast_rms:
      return EarlyCastRmsNorm(g, name, size);
    case DecoderNorm::layer:
      return LayerNorm(g, name, size);
    case DecoderNorm::bare_layer:
      return BareLayerNorm();
    case DecoderNorm::written_layer:
      return WrittenLayerNorm(g, name, Dims{size});
    case DecoderNorm::powered_rms:
      return PoweredRmsNorm(g, name, size);
    case DecoderNorm::wide_rms:
      return RmsNorm(g, name, size, RmsProduct::wide);
    case DecoderNorm::widened_rms:
      return RmsNorm(g, name, size, RmsProduct::widened);
    case DecoderNorm::rms:
      break;
  }
  return RmsNorm(g, name, size);
}

}  // namespace

Var EarlyCastRmsNorm::operator()(GraphBuilder& g, const Var& input) const {
  Var output;
  {
    const Var x = g.to(input, DType::f32);
    output = g.mul(x, g.rsqrt(g.add(g.mean(g.pow(x, 2), {-1}, true), 1e-6)));
  }
  output = g.to_like(std::move(output), input);
  return g.mul(output, weight);
}

Var CenteredRmsNorm::operator()(GraphBuilder& g, const Var& input) const {
  Var output;
  {
    const Var x = g.to(input, DType::f32);
    output = g.mul(x, g.rsqrt(g.add(g.mean(g.pow(x, 2), {-1}, true), 1e-6)));
  }
  output = g.mul(output, g.add(g.to(weight, DType::f32), 1.0));
  return g.to_like(output, input);
}

Var PoweredRmsNorm::operator()(GraphBuilder& g, const Var& input) const {
  Var output;
  {
    const Var x = g.to(input, DType::f32);
    const Var mean_squared = g.add(g.mean(g.pow(x, 2), {-1}, true), 1e-6);
    output = g.mul(x, g.pow(mean_squared, -0.5));
  }
  if (weight) output = g.mul(output, g.to(weight, DType::f32));
  return g.to_like(output, input);
}

Var WrittenLayerNorm::operator()(GraphBuilder& g, const Var& input) const {
  Var x = g.to(input, DType::f32);
  const Var mean = g.mean(x, {-1}, true);
  const Var variance = g.mean(g.pow(g.sub(x, mean), 2), {-1}, true);
  Var centered = g.sub(x, mean);
  x = g.mul(std::move(centered), g.rsqrt(g.add(variance, 1e-6)));
  Var wide = g.to(weight, DType::f32);
  x = g.mul(std::move(wide), x);
  return g.to_like(x, input);
}

NormOfDecoder::NormOfDecoder(GraphBuilder& g, const std::string& name, const Dims& shape)
    : norm_(WrittenLayerNorm(g, name, shape)) {}

NormOfDecoder::NormOfDecoder(GraphBuilder& g, DecoderNorm kind, const std::string& name,
                             int64_t size)
    : norm_(make(g, kind, name, size)) {}

Var NormOfDecoder::operator()(GraphBuilder& g, const Var& input) const {
  return std::visit([&](const auto& norm) { return norm(g, input); }, norm_);
}

}  // namespace headroom::model
