#include "step/transform/liger.h"

#include <algorithm>
#include <array>
#include <string>

#include "step/fused_operations.h"
#include "step/transform/module_kernels.h"

namespace headroom::step {

using model::Graph;
using model::GraphBuilder;
using model::Var;
using op::OpKind;

namespace {

// One line of Liger's table of architectures.
struct Family {
  std::string_view model_type;
  bool rotary = true;
  bool norm_in_place = true;
  LigerLoss loss = LigerLoss::fused_linear;
};

constexpr auto kFamilies = std::to_array<Family>({
    {"gemma"},
    {"gemma2", true, false},
    {"gemma3_text", true, false},
    {"glm4", false, false},
    {"granite", true, true, LigerLoss::cross_entropy},
    {"llama"},
    {"mistral"},
    {"phi3"},
    {"qwen2"},
    {"qwen3"},
});

// Architectures whose experts it replaces by LigerExperts (transformers 5; liger_kernel 0.8.5,
// transformers/monkey_patch.py). That is one operator of its own (ops/fused_moe.py), with other
// saved tensors and temporaries than the grouped products which are modelled.
constexpr auto kFusedExperts =
    std::to_array<std::string_view>({"deepseek_v2", "deepseek_v3", "mixtral", "qwen3_5_moe",
                                     "qwen3_5_moe_text", "qwen3_moe", "qwen3_next"});

const Family* family_of(std::string_view model_type) {
  const auto found = std::ranges::find(kFamilies, model_type, &Family::model_type);
  return found == kFamilies.end() ? nullptr : &*found;
}

ModuleReplacements replacements_of(const Family& family) {
  ModuleReplacements replacements;
  replacements.norm = [in_place = family.norm_in_place](GraphBuilder& g, Var input, Var weight) {
    return g.apply(OpKind::liger_rms_norm, {std::move(input), std::move(weight)},
                   attributes_of(op::LigerNorm{.in_place = in_place}));
  };
  if (family.rotary) {
    replacements.rotary = [](GraphBuilder& g, Var query, Var key, Var cos, Var sin) {
      std::vector<Var> inputs{std::move(query), std::move(key), std::move(cos), std::move(sin)};
      auto turned = g.apply_many(OpKind::liger_rotary, std::move(inputs), 2);
      return std::pair(std::move(turned[0]), std::move(turned[1]));
    };
  }
  replacements.gated = [](GraphBuilder& g, Var gate, Var up) {
    return g.apply(OpKind::liger_gated, {std::move(gate), std::move(up)});
  };
  return replacements;
}

}  // namespace

LigerLoss liger_loss(std::string_view model_type) {
  const Family* family = family_of(model_type);
  return family ? family->loss : LigerLoss::fused_linear;
}

Result<Graph> apply_liger(const Graph& graph, std::string_view model_type) {
  const Family* family = family_of(model_type);
  const bool fuses_experts = std::ranges::find(kFusedExperts, model_type) != kFusedExperts.end();
  if (family == nullptr && fuses_experts) {
    return Error{ErrorCode::usage,
                 "Liger-Kernel's fused experts, which it gives \"" + std::string(model_type) +
                     "\", are not modelled",
                 "--kernels", "--loss fused-linear has its loss, which saves the most"};
  }
  if (family == nullptr) {
    std::string known;
    for (const Family& each : kFamilies) {
      known += (known.empty() ? "" : ", ") + std::string(each.model_type);
    }
    return Error{ErrorCode::usage,
                 "Liger-Kernel's patch of \"" + std::string(model_type) + "\" is not modelled",
                 "--kernels", "modelled: " + known};
  }
  return replace_modules(graph, replacements_of(*family));
}

}  // namespace headroom::step
