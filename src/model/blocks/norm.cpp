#include "model/blocks/norm.h"

#include <utility>

namespace headroom::model {

Var RmsNorm::operator()(GraphBuilder& g, const Var& input) const {
  Var x = g.to(input, DType::f32);
  const Var variance = g.mean(g.pow(x, 2), {-1}, true);
  x = g.mul(x, g.rsqrt(g.add(variance, 1e-6)));
  switch (product) {
    case RmsProduct::narrow:
      break;
    case RmsProduct::wide:
      return g.to_like(g.mul(weight, x), input);
    case RmsProduct::widened: {
      Var widened = g.to(weight, DType::f32);
      return g.to_like(g.mul(std::move(widened), x), input);
    }
  }
  return g.mul(weight, g.to_like(x, input));
}

Var WideScaleNorm::operator()(GraphBuilder& g, const Var& input) const {
  const Var variance = g.mean(g.pow(g.to(input, DType::f32), 2), {-1}, true);
  Var x = g.mul(input, g.rsqrt(g.add(variance, 1e-6)));
  x = g.to_like(x, weight);
  return g.mul(weight, x);
}

}  // namespace headroom::model
