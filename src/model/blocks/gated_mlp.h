// The gated feed-forward layer of Llama and its descendants: down(act(gate(x)) * up(x)).
#pragma once

#include <string>
#include <utility>

#include "model/blocks/activation.h"
#include "model/blocks/linear.h"
#include "model/builder.h"

namespace headroom::model {

struct GatedMlp {
  Activation activation;
  Linear gate, up, down;

  GatedMlp(GraphBuilder& g, const std::string& name, int64_t hidden, int64_t intermediate,
           Activation act = Activation::silu, bool bias = false)
      : activation(act),
        gate(g, name + ".gate_proj", hidden, intermediate, bias),
        up(g, name + ".up_proj", hidden, intermediate, bias),
        down(g, name + ".down_proj", intermediate, hidden, bias) {}

  Var operator()(GraphBuilder& g, const Var& x) const {
    Var product;
    {
      Var gated = gate(g, x);
      gated = activate(g, activation, gated);
      product = g.mul(std::move(gated), up(g, x));
    }
    return down(g, product);
  }
};

}  // namespace headroom::model
