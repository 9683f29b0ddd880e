#include "model/blocks/decoder_norm.h"

#include <utility>

namespace headroom::model {

namespace {

std::variant<RmsNorm, CenteredRmsNorm, LayerNorm> make(GraphBuilder& g, DecoderNorm kind,
                                                       const std::string& name, int64_t size) {
  switch (kind) {
    case DecoderNorm::centered_rms:
      return CenteredRmsNorm(g, name, size);
    case DecoderNorm::layer:
      return LayerNorm(g, name, size);
    case DecoderNorm::rms:
    case DecoderNorm::wide_rms:
      break;
  }
  return RmsNorm(g, name, size, kind == DecoderNorm::wide_rms);
}

}  // namespace

Var CenteredRmsNorm::operator()(GraphBuilder& g, const Var& input) const {
  Var output;
  {
    const Var x = g.to(input, DType::f32);
    output = g.mul(x, g.rsqrt(g.add(g.mean(g.pow(x, 2), {-1}, true), 1e-6)));
  }
  output = g.mul(output, g.add(g.to(weight, DType::f32), 1.0));
  return g.to_like(output, input);
}

NormOfDecoder::NormOfDecoder(GraphBuilder& g, DecoderNorm kind, const std::string& name,
                             int64_t size)
    : norm_(make(g, kind, name, size)) {}

Var NormOfDecoder::operator()(GraphBuilder& g, const Var& input) const {
  return std::visit([&](const auto& norm) { return norm(g, input); }, norm_);
}

}  // namespace headroom::model
