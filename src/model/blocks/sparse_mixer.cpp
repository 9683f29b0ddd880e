#include "model/blocks/sparse_mixer.h"

#include <array>
#include <utility>

namespace headroom::model {

namespace {

// Names that the second draw gives to other tensors, and not before it has made them.
struct Rebound {
  Var threshold, best, factor, best_gate;
};

// What the function holds of each draw until it returns.
struct Draw {
  Var gates, chosen, gate, midpoint, multiplier;
};

// Where a score is too far from the best of `candidates`; without gradients.
void find_far(GraphBuilder& g, const Var& scores, const Var& candidates, const std::string& name,
              Rebound& names) {
  RegionScope region(g, RegionKind::other, name, {&scores, &candidates});
  region.set_no_grad();
  {
    const auto largest = g.max(candidates, -1, true);
    names.threshold = largest[0];
    names.best = largest[1];
  }
  names.factor = g.clamp(g.neg(scores));  // abs() and a clamp from below
  Var distance = g.sub(names.threshold, scores);
  distance = g.div(std::move(distance), names.factor);
  names.threshold = g.compare(std::move(distance));
  region.leave({&names.threshold, &names.best});
}

// The largest of the gates less the logarithms of exponential draws.
Var sampled(GraphBuilder& g, const Var& gates, int64_t tokens, int64_t experts) {
  Var noised;
  {
    Var noise = g.log(g.empty_like({tokens, experts}, gates));
    noised = g.sub(gates, std::move(noise));
  }
  const Var index = g.max(std::move(noised), -1, false)[1];
  return g.unsqueeze(index, -1);
}

// 1 where the best was drawn, or by chance; else a third.
Var midpoint_weights(GraphBuilder& g, const Draw& draw, const Rebound& names, int64_t tokens) {
  Var weights;
  {
    Var same = g.compare(draw.chosen, names.best);
    Var chance = g.compare(g.full_like({tokens, 1}, names.best_gate));
    weights = g.compare(std::move(same), std::move(chance));
  }
  Var wide = g.to(weights, DType::f32);  // 0.3333 + 0.6667 * weights
  return g.to_like(std::move(wide), draw.gates);
}

Draw drawn(GraphBuilder& g, const BuildOptions& options, const Var& scores, const Var& candidates,
           int64_t experts, const std::string& name, Rebound& names) {
  const int64_t tokens = options.batch * options.sequence;
  find_far(g, scores, candidates, name, names);
  Draw draw;
  draw.gates = g.masked_fill(candidates, names.threshold);
  draw.chosen = options.training ? sampled(g, draw.gates, tokens, experts) : names.best;
  draw.gates = g.softmax(draw.gates, -1);
  draw.gate = g.gather(draw.gates, -1, draw.chosen);
  draw.multiplier = draw.gate;
  if (!options.training) return draw;
  {
    const auto largest = g.max(draw.gates, -1, true);
    names.best_gate = largest[0];
    names.best = largest[1];
  }
  draw.midpoint = midpoint_weights(g, draw, names, tokens);
  draw.multiplier = g.sparse_mixer(scores, draw.gate, draw.chosen, draw.gates, draw.midpoint);
  return draw;
}

}  // namespace

Routed sparse_mixer(GraphBuilder& g, const BuildOptions& options, const Var& logits,
                    int64_t experts, const std::string& name) {
  Rebound names;
  Draw first = drawn(g, options, logits, logits, experts, name, names);
  const Var others = g.scatter(logits, -1, first.chosen);
  const Draw second = drawn(g, options, logits, others, experts, name, names);
  const auto both = [&](const Var& a, const Var& b) {
    const std::array<Var, 2> parts{a, b};
    return g.cat(parts, -1);
  };
  first.multiplier = both(first.multiplier, second.multiplier);
  first.chosen = both(first.chosen, second.chosen);
  return {logits, first.multiplier, first.chosen};
}

}  // namespace headroom::model
