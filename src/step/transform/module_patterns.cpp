#include "step/transform/module_patterns.h"

#include <algorithm>
#include <optional>
#include <span>

#include "operator/kind.h"

namespace headroom::step {

using model::Graph;
using model::Operation;
using model::ValueId;
using op::OpKind;

namespace {

// transformers' RMSNorm forward functions: the weight is applied behind the cast (Llama), before it
// (gpt-oss), or as 1 + weight before it (Gemma).
constexpr OpKind kLlamaNorm[] = {OpKind::cast,  OpKind::pow, OpKind::mean,      OpKind::add,
                                 OpKind::rsqrt, OpKind::mul, OpKind::cast_like, OpKind::mul};
constexpr OpKind kWideNorm[] = {OpKind::cast,  OpKind::pow, OpKind::mean, OpKind::add,
                                OpKind::rsqrt, OpKind::mul, OpKind::mul,  OpKind::cast_like};
constexpr OpKind kGemmaNorm[] = {OpKind::cast,  OpKind::pow,      OpKind::mean, OpKind::add,
                                 OpKind::rsqrt, OpKind::mul,      OpKind::cast, OpKind::add,
                                 OpKind::mul,   OpKind::cast_like};

constexpr OpKind kTwoTables[] = {OpKind::unsqueeze, OpKind::unsqueeze};
// x * cos + cat(-second, first) * sin
constexpr OpKind kRotated[] = {OpKind::mul, OpKind::slice, OpKind::slice, OpKind::neg,
                               OpKind::cat, OpKind::mul,   OpKind::add};

bool runs_at(const Graph& graph, uint32_t at, std::span<const OpKind> kinds) {
  if (at > graph.operations.size() || kinds.size() > graph.operations.size() - at) return false;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (graph.operations[at + i].kind != kinds[i]) return false;
  }
  return true;
}

bool feeds(const Graph& graph, uint32_t from, uint32_t to) {
  return std::ranges::count(graph.operations[to].inputs, graph.operations[from].outputs[0]) > 0;
}

bool is_parameter(const Graph& graph, ValueId value) {
  return std::ranges::count(graph.parameters, value, &model::Parameter::value) > 0;
}

std::optional<NormSite> norm_at(const Graph& graph, uint32_t at) {
  const bool is_llama = runs_at(graph, at, kLlamaNorm);
  const bool is_wide = runs_at(graph, at, kWideNorm);
  const bool is_gemma = runs_at(graph, at, kGemmaNorm);
  if (!is_llama && !is_wide && !is_gemma) return {};
  // From the cast through the powers to their reciprocal root, and the product of both.
  for (uint32_t i = 0; i < 5; ++i) {
    if (!feeds(graph, at + i, at + i + 1)) return {};
  }
  if (!feeds(graph, at, at + 5)) return {};
  NormSite site;
  site.first = at;
  site.last =
      static_cast<uint32_t>(at + (is_gemma ? std::size(kGemmaNorm) : std::size(kLlamaNorm)) - 1);
  site.input = graph.operations[at].inputs[0];
  const uint32_t weighted = at + (is_llama ? 7 : 6);
  site.weight = graph.operations[weighted].inputs[0];
  return is_parameter(graph, site.weight) ? std::optional(site) : std::nullopt;
}

}  // namespace

std::vector<NormSite> rms_norm_sites(const Graph& graph) {
  std::vector<NormSite> sites;
  for (uint32_t i = 0; i < graph.operations.size(); ++i) {
    if (graph.operations[i].kind != OpKind::cast) continue;
    if (const auto site = norm_at(graph, i)) {
      sites.push_back(*site);
      i = site->last;
    }
  }
  return sites;
}

namespace {

// apply_rotary_pos_emb of Llama.
std::optional<RotarySite> whole_rotary_at(const Graph& graph, uint32_t at) {
  const uint32_t query = at + 2;
  const auto key = static_cast<uint32_t>(query + std::size(kRotated));
  if (!runs_at(graph, query, kRotated) || !runs_at(graph, key, kRotated)) return {};
  if (!feeds(graph, at, query) || !feeds(graph, at, key)) return {};
  RotarySite site;
  site.first = at;
  site.last_of_query = key - 1;
  site.last = static_cast<uint32_t>(key + std::size(kRotated) - 1);
  site.query = graph.operations[query].inputs[0];
  site.key = graph.operations[key].inputs[0];
  return site;
}

// That of Phi-3 and others: the first part of a head turns, the rest is appended. Whether rotations
// and concatenations alternate differs between families.
std::optional<RotarySite> partial_rotary_at(const Graph& graph, uint32_t at) {
  constexpr OpKind kFourParts[] = {OpKind::slice, OpKind::slice, OpKind::slice, OpKind::slice};
  const uint32_t parts = at + 2;
  if (!runs_at(graph, parts, kFourParts)) return {};
  const uint32_t rotations = parts + 4;
  const auto turn = static_cast<uint32_t>(std::size(kRotated));
  RotarySite site;
  site.first = at;
  const uint32_t last = rotations + 2 * turn + 1;
  if (!runs_at(graph, rotations, kRotated) || last >= graph.operations.size()) return {};
  const bool alternate = graph.operations[rotations + turn].kind == OpKind::cat;
  const uint32_t second = rotations + turn + (alternate ? 1 : 0);
  if (!runs_at(graph, second, kRotated) || graph.operations[last].kind != OpKind::cat) return {};
  site.last_of_query = alternate ? rotations + turn : last - 1;
  site.last = last;
  site.query = graph.operations[parts].inputs[0];
  site.key = graph.operations[parts + 2].inputs[0];
  return site;
}

}  // namespace

std::vector<RotarySite> rotary_sites(const Graph& graph) {
  std::vector<RotarySite> sites;
  for (uint32_t i = 0; i < graph.operations.size(); ++i) {
    if (!runs_at(graph, i, kTwoTables)) continue;
    auto site = whole_rotary_at(graph, i);
    if (!site) site = partial_rotary_at(graph, i);
    if (!site) continue;
    site->cos = graph.operations[i].inputs[0];
    site->sin = graph.operations[i + 1].inputs[0];
    sites.push_back(*site);
    i = site->last;
  }
  return sites;
}

std::vector<GatedSite> gated_sites(const Graph& graph) {
  constexpr uint32_t kFarthest = 2;  // between them stands the up projection, or nothing
  std::vector<GatedSite> sites;
  for (uint32_t i = 0; i < graph.operations.size(); ++i) {
    const OpKind kind = graph.operations[i].kind;
    if (kind != OpKind::silu && kind != OpKind::gelu_tanh && kind != OpKind::gelu) continue;
    for (uint32_t j = i + 1; j <= i + kFarthest && j < graph.operations.size(); ++j) {
      const Operation& product = graph.operations[j];
      if (product.kind != OpKind::mul || product.inputs.size() != 2 || !feeds(graph, i, j)) {
        continue;
      }
      const bool first = product.inputs[0] == graph.operations[i].outputs[0];
      sites.push_back({i, j, graph.operations[i].inputs[0], product.inputs[first ? 1 : 0]});
      break;
    }
  }
  return sites;
}

}  // namespace headroom::step
