#include "model/megatron_moe.h"

#include <algorithm>
#include <cmath>

#include "model/megatron_fp8.h"
#include "model/megatron_linear.h"
#include "model/megatron_parts.h"

namespace headroom::model {

MegatronSharedExpert::MegatronSharedExpert(GraphBuilder& g, const MegatronStage& stage,
                                           const std::string& name)
    : stage_(stage) {
  const MegatronModel& m = stage.model;
  const int64_t width = m.shared_inner / stage.rank.tensor;
  const std::string path = name + ".shared_experts.";
  fc1_weight_ = g.parameter(path + "linear_fc1.weight", {width * (m.gated ? 2 : 1), m.hidden},
                            ParameterRole::linear);
  fc2_weight_ = g.parameter(path + "linear_fc2.weight", {m.hidden, width}, ParameterRole::linear);
  keep_in_fp8(g, m, path + "linear_fc1", {width * (m.gated ? 2 : 1), m.hidden});
  keep_in_fp8(g, m, path + "linear_fc2", {m.hidden, width});
  if (m.shared_gate) {
    gate_weight_ = g.parameter(path + "gate_weight", {1, m.hidden}, ParameterRole::linear);
  }
}

Var MegatronSharedExpert::operator()(GraphBuilder& g, const Var& x, const Var& gathered) const {
  Var inner = plain_columns(g, stage_, x, fc1_weight_, Var(), gathered, true);
  inner = stage_.model.gated ? g.apply(OpKind::bias_swiglu, {std::move(inner), Var()})
                             : g.gelu(std::move(inner), false);
  Var out = summed_rows(g, stage_, std::move(inner), fc2_weight_);
  if (!gate_weight_) return out;
  const Var score = g.sigmoid(g.linear(x, gate_weight_));
  return g.mul(std::move(out), score);
}

MegatronExperts::MegatronExperts(GraphBuilder& g, const MegatronStage& stage,
                                 const std::string& name)
    : stage_(stage) {
  const MegatronModel& m = stage.model;
  const int64_t width = m.expert_inner / stage.rank.expert_tensor;
  const int64_t columns = width * (m.gated ? 2 : 1);
  router_ = g.parameter(name + ".router.weight", {m.experts, m.hidden}, ParameterRole::linear);
  for (int64_t i = 0; i < m.experts / stage.rank.expert; ++i) {
    const std::string path = name + ".experts.local_experts." + std::to_string(i);
    Expert& expert = experts_.emplace_back();
    expert.fc1_weight =
        g.parameter(path + ".linear_fc1.weight", {columns, m.hidden}, ParameterRole::expert);
    expert.fc2_weight =
        g.parameter(path + ".linear_fc2.weight", {m.hidden, width}, ParameterRole::expert);
  }
  const auto count = static_cast<int64_t>(experts_.size());
  keep_in_fp8(g, m, name + ".experts.linear_fc1", {columns, m.hidden}, count);
  keep_in_fp8(g, m, name + ".experts.linear_fc2", {m.hidden, width}, count);
}

int64_t MegatronExperts::group() const { return stage_.rank.expert * stage_.rank.expert_tensor; }

int64_t MegatronExperts::tokens() const {
  const int64_t shared = stage_.rank.sequence_parallel ? stage_.rank.tensor : 1;
  return stage_.sequence / stage_.rank.context / shared * stage_.micro_batch;
}

// get_capacity, and apply_router_token_dropping, which drops nothing where all tokens find room.
int64_t MegatronExperts::capacity() const {
  const MegatronModel& m = stage_.model;
  if (m.expert_capacity == 0) return tokens();
  const auto choices = static_cast<double>(tokens() * m.experts_per_token);
  const double room = std::ceil(choices / static_cast<double>(m.experts) * m.expert_capacity);
  return std::clamp<int64_t>(static_cast<int64_t>(room), 1, tokens());
}

int64_t MegatronExperts::local_tokens() const {
  const MegatronModel& m = stage_.model;
  const int64_t here = m.experts / stage_.rank.expert;
  const int64_t room = here * capacity() * group();
  if (m.fills_capacity) return room;
  const int64_t all = tokens() * group();
  const int64_t even = all * m.experts_per_token / stage_.rank.expert;
  int64_t taken = even;
  if (m.expert_share != 1) {
    taken = std::llround(static_cast<double>(even) * m.expert_share);
  }
  // A token goes to an expert once.
  const int64_t most = std::min(room, all * std::min(here, m.experts_per_token));
  return std::clamp<int64_t>(taken, 1, std::max<int64_t>(most, 1));
}

int64_t MegatronExperts::gathered_elements(const MegatronStage& stage) {
  if (stage.model.experts == 0) return 0;
  const int64_t shared = stage.rank.sequence_parallel ? stage.rank.tensor : 1;
  const int64_t group = stage.rank.expert * stage.rank.expert_tensor;
  if (group <= 1) return 0;
  return op::product(
      {stage.sequence / stage.rank.context / shared, stage.micro_batch, group, stage.model.hidden});
}

Var MegatronExperts::product(GraphBuilder& g, Var rows, Var Expert::*weight) const {
  std::vector<Var> inputs{std::move(rows)};
  for (const Expert& expert : experts_) inputs.push_back(expert.*weight);
  Attributes attributes;
  attributes.ints = {1, 0, stage_.rank.fused_accumulation ? 1 : 0};
  return g.apply(OpKind::te_grouped_linear, std::move(inputs), in_fp8(attributes, stage_.model));
}

// What fills each expert's tokens up to whole tiles (get_align_size_for_quantization): counts that
// a router makes end anywhere in a tile, half a tile from its end on the average.
int64_t MegatronExperts::filling() const {
  const int64_t tile = stage_.model.fp8.recipe == op::Fp8Recipe::mxfp8 ? 32 : 16;
  const int64_t tokens = local_tokens();
  const auto experts = static_cast<int64_t>(experts_.size());
  if (stage_.model.fills_capacity) {
    const int64_t each = tokens / experts;
    return experts * ((each + tile - 1) / tile * tile - each);
  }
  const int64_t half_tiles = experts * (tile / 2);
  return (tokens + half_tiles + tile - 1) / tile * tile - tokens;
}

// Fp8Padding and Fp8Unpadding, which copy all of the tokens.
Var MegatronExperts::run_filled(GraphBuilder& g, Var rows, const Var& weights) const {
  if (!stage_.model.fp8.is_on() || stage_.model.fp8.router_pads) {
    return run_experts(g, std::move(rows), weights);
  }
  const int64_t tokens = local_tokens();
  rows = g.pad(std::move(rows), {0, 0, 0, filling()});
  const Var filled = g.pad(weights, {0, filling()});
  const Var out = run_experts(g, std::move(rows), filled);
  return g.clone(g.slice(out, 0, 0, tokens));
}

// Activations are weighted by the router before the second product.
Var MegatronExperts::run_experts(GraphBuilder& g, Var rows, const Var& weights) const {
  Var x = product(g, std::move(rows), &Expert::fc1_weight);
  if (stage_.model.gated) {
    x = g.apply(OpKind::weighted_swiglu, {std::move(x), weights});
  } else {
    x = g.mul(g.gelu(std::move(x), false), g.unsqueeze(weights, 1));
  }
  return product(g, std::move(x), &Expert::fc2_weight);
}

Var MegatronExperts::operator()(GraphBuilder& g, const Var& x, const Var& gathered) const {
  const int64_t h = stage_.model.hidden;
  Var rows = g.view(x, {-1, h});
  Attributes choices;
  choices.ints = {stage_.model.experts_per_token};
  choices.flag = stage_.model.expert_capacity > 0;
  Var probabilities = g.apply(OpKind::expert_router, {rows, router_}, std::move(choices));
  Attributes attributes;
  attributes.ints = {group()};
  if (group() > 1) {
    probabilities = g.apply(OpKind::sequence_gather, {probabilities, Var()}, attributes);
    rows = g.apply(OpKind::sequence_gather, {std::move(rows), gathered}, attributes);
  }
  const Var order = g.arange(local_tokens());
  Var permuted = g.index_select(std::move(rows), 0, order);
  const Var chosen = g.index_select(g.reshape(probabilities, {-1}), 0, order);
  permuted = run_filled(g, std::move(permuted), chosen);
  Attributes places;
  places.ints = {op::product({tokens(), group()})};
  places.flag = stage_.model.deterministic;
  Var combined = g.apply(OpKind::expert_combine, {std::move(permuted), order}, std::move(places));
  if (group() > 1) {
    combined = g.apply(OpKind::sequence_scatter, {std::move(combined)}, attributes);
  }
  const int64_t b = stage_.micro_batch;
  return g.view(std::move(combined), {tokens() / b, b, h});
}

}  // namespace headroom::model
