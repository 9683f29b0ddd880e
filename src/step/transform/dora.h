// DoRA (arXiv 2402.09353) as peft 0.21 computes it: what is added to a linear module's answer where
// its weight is split into direction and magnitude.
//
//   delta = (m / |W + s B A| - 1) * base(x) + m / |W + s B A| * B(A(x)) * s
//
// The norm is taken anew in each forward pass, over a copy of the weight in the adapter's type and
// a product of B and A with an identity matrix of the module's width: for a moment that is several
// times the weight, and the largest module decides.
//
// Source: peft/tuners/lora/dora.py (DoraLinearLayer), variants.py (DoraLinearVariant).
#pragma once

#include "model/builder.h"

namespace headroom::step {

struct DoraCall {
  model::Var x;            // in the adapter's type, behind the dropout
  model::Var base_result;  // what the module answers without an adapter
  model::Var weight;
  model::Var bias;  // empty: none
  model::Var a;
  model::Var b;
  model::Var magnitude;
  int64_t in_features = 0;
  bool conv1d = false;  // the weight lies as [in, out]
  double scaling = 1;
  bool drops = false;  // there is a dropout: base_result knows nothing of it
};

[[nodiscard]] model::Var dora_delta(model::GraphBuilder& g, DoraCall call);

}  // namespace headroom::step
