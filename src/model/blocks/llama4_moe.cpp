#include "model/blocks/llama4_moe.h"

#include <utility>

namespace headroom::model {

Llama4Moe::Llama4Moe(GraphBuilder& g, const ExpertsShape& s, const std::string& name)
    : shape_(s),
      gate_up_(g.parameter(name + ".experts.gate_up_proj",
                           {s.experts, s.hidden, 2 * s.intermediate}, ParameterRole::expert)),
      down_(g.parameter(name + ".experts.down_proj", {s.experts, s.intermediate, s.hidden},
                        ParameterRole::expert)),
      router_(g, name + ".router", s.hidden, s.experts, false),
      shared_(g, name + ".shared_expert", s.hidden, s.intermediate, s.activation) {}

// Sigmoids of the chosen logits among zeros.
Llama4Moe::Scored Llama4Moe::routed(GraphBuilder& g, const Var& rows) const {
  const Var logits = router_(g, rows);
  const auto top = g.topk(logits, shape_.top_k);
  Var scores = g.scatter_assign(g.zeros_like(logits), 1, top[1], top[0]);  // of minus infinity
  {
    Var wide = g.sigmoid(g.to(scores, DType::f32));
    scores = g.to_like(std::move(wide), scores);
  }
  return {scores, logits};
}

Var Llama4Moe::through_experts(GraphBuilder& g, const BuildOptions& options,
                               const Var& rows) const {
  const int64_t tokens = options.batch * options.sequence;
  const Var x = g.view(rows, {shape_.experts, tokens, shape_.hidden});
  const Var both = g.bmm(x, gate_up_);
  const auto halves = g.split(both, {shape_.intermediate, shape_.intermediate}, -1);
  Var product = g.mul(halves[1], activate(g, shape_.activation, halves[0]));
  const Var out = g.bmm(std::move(product), down_);
  return g.view(out, {-1, shape_.hidden});
}

FeedForward Llama4Moe::operator()(GraphBuilder& g, const BuildOptions& options,
                                  const Var& x) const {
  const Var rows = g.reshape(x, {-1, shape_.hidden});
  const auto [scores, logits] = routed(g, rows);
  Var routed_in = g.repeat(rows, {shape_.experts, 1});
  {
    Var column = g.reshape(g.transpose(scores, 0, 1), {-1, 1});
    routed_in = g.mul(routed_in, std::move(column));
  }
  const Var routed_out = through_experts(g, options, routed_in);
  Var out = shared_(g, rows);
  {
    const std::vector<int64_t> by_expert{shape_.experts, -1, shape_.hidden};
    Var together = g.sum(g.reshape(routed_out, by_expert), {0}, false);
    out = g.add_assign(std::move(out), std::move(together));
  }
  return {g.view(out, {options.batch, options.sequence, shape_.hidden}), logits};
}

}  // namespace headroom::model
