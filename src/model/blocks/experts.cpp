#include "model/blocks/experts.h"

#include <utility>

#include "model/blocks/expert_exchange.h"

namespace headroom::model {

namespace {

int64_t tokens_of(const BuildOptions& options) { return options.batch * options.sequence; }

// Top-k rows of each token, added up in float32 where the weights are, then cast.
Var summed(GraphBuilder& g, const RowsShape& shape, const Var& weighted, const Var& like) {
  const Var total = g.sum(g.view(weighted, {shape.tokens, shape.top_k, shape.hidden}), {1}, false);
  return g.to_like(total, like);
}

}  // namespace

std::vector<int64_t> rows_of_experts(const BuildOptions& options, const ExpertsShape& shape) {
  if (options.tokens_per_expert.size() == static_cast<size_t>(shape.experts)) {
    return options.tokens_per_expert;
  }
  const int64_t chosen = tokens_of(options) * shape.top_k;
  std::vector<int64_t> rows;
  for (int64_t expert = 0; expert < shape.experts; ++expert) {
    rows.push_back(chosen / shape.experts + (expert < chosen % shape.experts ? 1 : 0));
  }
  return rows;
}

Experts::Experts(GraphBuilder& g, const BuildOptions& options, const ExpertsShape& shape,
                 const std::string& name)
    : shape_(shape), name_(name), local_(shape.experts / options.expert_ranks) {
  const int64_t e = local_;
  const int64_t both = 2 * shape.intermediate;
  const Dims gate_up = shape.clamped ? Dims{e, shape.hidden, both} : Dims{e, both, shape.hidden};
  const Dims down = shape.clamped ? Dims{e, shape.intermediate, shape.hidden}
                                  : Dims{e, shape.hidden, shape.intermediate};
  gate_up_ = g.parameter(name + ".gate_up_proj", gate_up, ParameterRole::expert);
  if (shape.clamped) {
    gate_up_bias_ = g.parameter(name + ".gate_up_proj_bias", {e, both}, ParameterRole::bias);
  }
  down_ = g.parameter(name + ".down_proj", down, ParameterRole::expert);
  if (shape.clamped) {
    down_bias_ = g.parameter(name + ".down_proj_bias", {e, shape.hidden}, ParameterRole::bias);
  }
}

Var Experts::operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                        const Var& chosen, const Var& weights) const {
  if (options.expert_ranks > 1) return shared_out(g, options, x, chosen, weights);
  switch (options.experts) {
    case ExpertsImplementation::grouped_mm:
      return grouped(g, {tokens_of(options), shape_.top_k, shape_.hidden, false}, x, chosen,
                     weights);
    case ExpertsImplementation::batched_mm:
      return batched(g, options, x, chosen, weights);
    case ExpertsImplementation::eager:
      return looped(g, options, x, chosen, weights);
  }
  return {};
}

// Gate and up from one product: halves of it, or every other column, clamped.
Var Experts::gated(GraphBuilder& g, const Var& both) const {
  const int64_t size = shape_.intermediate;
  if (!shape_.clamped) {
    const auto halves = g.split(both, {size, size}, -1);
    return g.mul(activate(g, shape_.activation, halves[0]), halves[1]);
  }
  Var gate = g.slice(both, -1, 0, 2 * size, 2);
  Var up = g.slice(both, -1, 1, 2 * size, 2);
  gate = g.clamp(gate, 1);
  up = g.clamp(up, 2);
  const Var swish = g.mul(gate, g.sigmoid(g.mul(gate, 1.702)));
  return g.mul(g.add(up, 1.0), swish);
}

// This rank's experts, and the ways there and back (EpDispatchExpertsParallel). A rank's experts
// mask rows that belong to another's, though none of them are sent here.
Var Experts::shared_out(GraphBuilder& g, const BuildOptions& options, const Var& x,
                        const Var& chosen, const Var& weights) const {
  RegionScope region(g, RegionKind::experts, name_, {&x, &weights});
  Var output;
  {
    const ArrivedRows arrived = send_to_experts(g, options, shape_, x, chosen);
    const RowsShape rows{arrived_rows(options, shape_), 1, shape_.hidden, true};
    const Var answered = grouped(g, rows, arrived.rows, arrived.experts, arrived.weights);
    output = take_from_experts(g, options, shape_, answered, weights, arrived.order);
  }
  output = g.to_like(std::move(output), x);
  region.leave({&output});
  return output;
}

Var Experts::grouped(GraphBuilder& g, const RowsShape& shape, const Var& x, const Var& chosen,
                     const Var& weights) const {
  const auto product = [&](const Var& rows, const Var& matrices, const Var& offsets,
                           const Var& bias) {
    Var out = shape_.clamped ? g.grouped_mm(rows, matrices, offsets)
                             : g.grouped_mm(rows, g.transpose(matrices, -2, -1), offsets);
    return bias ? g.add_assign(std::move(out), bias) : out;
  };
  const Var flat_weights = g.reshape(weights, {-1});
  const Var expert_of_row = g.reshape(chosen, {-1});
  const auto sorted = g.sort(expert_of_row);
  const Var& order = sorted[1];
  Var rows = g.index(x, g.floor_divide(order, static_cast<double>(shape.top_k)));
  const Var sorted_weights = g.index(flat_weights, order);
  const Var experts = g.to(sorted[0], DType::i32);
  const Var counts = g.histogram(experts, local_);
  const Var offsets = g.cumsum(counts, 0, DType::i32);
  const Var mask = shape.is_masked ? g.unsqueeze(g.compare(sorted[0]), -1) : Var();
  Var biases = shape_.clamped ? g.index(gate_up_bias_, sorted[0]) : Var();
  if (mask) rows = g.masked_fill_assign(std::move(rows), mask);
  Var out = product(rows, gate_up_, offsets, biases);
  if (mask) out = g.masked_fill(std::move(out), mask);
  out = gated(g, out);
  if (shape_.clamped) biases = g.index(down_bias_, sorted[0]);
  out = product(out, down_, offsets, biases);
  if (mask) out = g.masked_fill(std::move(out), mask);
  Var weighted = g.mul(out, g.unsqueeze(sorted_weights, -1));
  const int64_t row_count = shape.tokens * shape.top_k;
  Var inverse = g.empty({row_count}, DType::i64);
  inverse = g.index_put(inverse, order, g.arange(row_count));
  weighted = g.index(weighted, inverse);
  return summed(g, shape, weighted, x);
}

Var Experts::batched(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& chosen,
                     const Var& weights) const {
  // One matrix-vector product a row, with a copy of the matrix for each.
  const auto product = [&](const Var& rows, const Var& matrices, const Var& bias) {
    Var out = shape_.clamped ? g.squeeze(g.bmm(g.unsqueeze(rows, 1), matrices), 1)
                             : g.squeeze(g.bmm(matrices, g.unsqueeze(rows, -1)), -1);
    return bias ? g.add_assign(std::move(out), bias) : out;
  };
  const int64_t tokens = tokens_of(options);
  const Var rows = g.view(g.contiguous(g.expand(g.unsqueeze(x, 1), {-1, shape_.top_k, -1})),
                          {tokens * shape_.top_k, shape_.hidden});
  const Var flat_weights = g.reshape(weights, {-1});
  const Var expert_of_row = g.reshape(chosen, {-1});
  Var matrices = g.index(gate_up_, expert_of_row);
  Var biases = shape_.clamped ? g.index(gate_up_bias_, expert_of_row) : Var();
  Var out = product(rows, matrices, biases);
  out = gated(g, out);
  matrices = g.index(down_, expert_of_row);
  if (shape_.clamped) biases = g.index(down_bias_, expert_of_row);
  out = product(out, matrices, biases);
  const Var weighted = g.mul(out, g.unsqueeze(flat_weights, -1));
  return summed(g, {tokens, shape_.top_k, shape_.hidden, false}, weighted, x);
}

// One turn of the loop. The variables outlive it, as a Python function's do, and hold what they
// name until the next turn gives them something else.
void Experts::turn(GraphBuilder& g, LoopVariables& v, const Var& weights, int64_t expert) const {
  if (shape_.clamped) {
    {
      const Var product = g.matmul(v.current, g.select(gate_up_, 0, expert));
      v.both = g.add(product, g.select(gate_up_bias_, 0, expert));
    }
    v.gated = gated(g, v.both);
    {
      const Var product = g.matmul(v.gated, g.select(down_, 0, expert));
      v.output = g.add(product, g.select(down_bias_, 0, expert));
    }
    v.weighted = g.mul(v.output, g.index_pairs(g.unsqueeze(weights, 2), v.token, v.top_k_position));
    return;
  }
  {
    const auto halves = g.split(g.linear(v.current, g.select(gate_up_, 0, expert)),
                                {shape_.intermediate, shape_.intermediate}, -1);
    v.gate = halves[0];
    v.up = halves[1];
  }
  v.weighted = g.mul(activate(g, shape_.activation, v.gate), v.up);
  v.weighted = g.linear(v.weighted, g.select(down_, 0, expert));
  v.weighted = g.mul(v.weighted, g.index_pairs(g.unsqueeze(weights, 2), v.token, v.top_k_position));
}

Var Experts::looped(GraphBuilder& g, const BuildOptions& options, const Var& x, const Var& chosen,
                    const Var& weights) const {
  const auto rows = rows_of_experts(options, shape_);
  int64_t hit_count = 0;
  for (const int64_t count : rows) hit_count += count > 0 ? 1 : 0;
  Var total = g.full_like({tokens_of(options), shape_.hidden}, x);
  // One class more than there are experts, for rows that belong to another device's.
  const Var mask =
      g.permute(g.one_hot(chosen, shape_.experts + (shape_.clamped ? 0 : 1)), {2, 1, 0});
  const Var hit = g.nonzero(g.compare(g.sum(mask, {-1, -2}, false)), hit_count);
  LoopVariables v;
  int64_t turns = 0;
  for (int64_t expert = 0; expert < shape_.experts; ++expert) {
    const int64_t count = rows[static_cast<size_t>(expert)];
    if (count == 0) continue;
    g.compare(g.select(g.select(hit, 0, turns++), 0, 0));
    {
      const Var found = g.nonzero(g.select(mask, 0, expert), count);
      v.top_k_position = g.select(found, 1, 0);
      v.token = g.select(found, 1, 1);
    }
    v.current = g.index(x, v.token);
    turn(g, v, weights, expert);
    total = g.index_add_assign(total, 0, v.token, g.to_like(v.weighted, total));
  }
  return total;
}

ExpertModules::ExpertModules(GraphBuilder& g, const ExpertsShape& shape, const std::string& name)
    : shape_(shape) {
  for (int64_t expert = 0; expert < shape.experts; ++expert) {
    const std::string path = name + "." + std::to_string(expert);
    Linear gate(g, path + ".w1", shape.hidden, shape.intermediate, false);
    Linear down(g, path + ".w2", shape.intermediate, shape.hidden, false);
    Linear up(g, path + ".w3", shape.hidden, shape.intermediate, false);
    experts_.push_back({gate, down, up});
  }
}

Var ExpertModules::operator()(GraphBuilder& g, const BuildOptions& options, const Var& x,
                              const Var& chosen, const Var& weights) const {
  const auto rows = rows_of_experts(options, shape_);
  Var total = g.full_like({tokens_of(options), shape_.hidden}, x);
  const Var mask = g.permute(g.one_hot(chosen, shape_.experts), {2, 1, 0});
  Var top_k_position, token, current, output;
  for (int64_t expert = 0; expert < shape_.experts; ++expert) {
    const auto at = static_cast<size_t>(expert);
    {
      const Var found = g.nonzero(g.select(mask, 0, expert), rows[at]);
      top_k_position = g.select(found, 1, 0);
      token = g.select(found, 1, 1);
    }
    current = g.view(g.index(g.unsqueeze(x, 0), token, 1), {-1, shape_.hidden});
    {
      Var hidden = activate(g, shape_.activation, experts_[at].gate(g, current));
      hidden = g.mul(std::move(hidden), experts_[at].up(g, current));
      hidden = experts_[at].down(g, hidden);
      output =
          g.mul(std::move(hidden), g.index_pairs(g.unsqueeze(weights, 2), token, top_k_position));
    }
    total = g.index_add_assign(total, 0, token, g.to_like(output, total));
  }
  return total;
}

}  // namespace headroom::model
