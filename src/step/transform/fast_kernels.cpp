#include "step/transform/fast_kernels.h"

#include <algorithm>
#include <array>
#include <string>

#include "model/blocks/loss.h"
#include "step/transform/module_kernels.h"

namespace headroom::step {

using model::Graph;
using model::GraphBuilder;
using model::Var;
using op::OpKind;

namespace {

struct Family {
  std::string_view model_type;
  bool patches_modules = true;
  FusedLoss loss = FusedLoss::fast_causal;
  // The first transformers whose forward function calls the loss function that is replaced.
  op::Version loss_function = model::OwnLoss{}.until;
};

constexpr auto kFamilies = std::to_array<Family>({
    {"gpt_bigcode", false, FusedLoss::fast},
    {"granite", true, FusedLoss::fast_causal, {4, 48}},
    {"llama"},
    {"mistral", true, FusedLoss::fast_causal, {4, 48}},
    {"mixtral"},
});

const Family* family_of(std::string_view model_type) {
  const auto found = std::ranges::find(kFamilies, model_type, &Family::model_type);
  return found == kFamilies.end() ? nullptr : &*found;
}

// [batch, heads, sequence, head] is turned to the layout of its storage and back.
Var rotated(GraphBuilder& g, Var x, const Var& cos, const Var& sin) {
  Var rows = g.transpose(std::move(x), 1, 2);
  rows = g.apply(OpKind::fast_rotary, {std::move(rows), cos, sin});
  return g.transpose(std::move(rows), 1, 2);
}

}  // namespace

FusedLoss fast_loss(std::string_view model_type, op::Version transformers) {
  const Family* family = family_of(model_type);
  return family && transformers >= family->loss_function ? family->loss : FusedLoss::fast;
}

Result<Graph> apply_fast_kernels(const Graph& graph, std::string_view model_type) {
  const Family* family = family_of(model_type);
  if (family == nullptr) {
    std::string known;
    for (const Family& each : kFamilies) {
      known += (known.empty() ? "" : ", ") + std::string(each.model_type);
    }
    return Error{ErrorCode::usage,
                 "fms-acceleration has no fast kernels for \"" + std::string(model_type) + "\"",
                 "--kernels", "it patches: " + known};
  }
  if (!family->patches_modules) return graph;
  ModuleReplacements replacements;
  replacements.norm = [](GraphBuilder& g, Var input, Var weight) {
    return g.apply(OpKind::fast_rms_norm, {std::move(input), std::move(weight)});
  };
  replacements.rotary = [](GraphBuilder& g, Var query, Var key, Var cos, Var sin) {
    Var turned = rotated(g, std::move(query), cos, sin);
    return std::pair(std::move(turned), rotated(g, std::move(key), cos, sin));
  };
  return replace_modules(graph, replacements);
}

}  // namespace headroom::step
