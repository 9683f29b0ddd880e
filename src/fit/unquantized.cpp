#include "fit/unquantized.h"

#include <algorithm>

#include "base/units.h"

namespace headroom::fit {

namespace {

// Source: replace_with_bnb_linear() in transformers/integrations/bitsandbytes.py of 5.23, which
// replaces modules that are nn.Linear or Conv1D, and prepare_model_for_kbit_training() in
// peft/utils/other.py of 0.21, which casts every 16-bit parameter that is not a Params4bit.
constexpr const char* kLeftAlone =
    "bitsandbytes quantizes linear modules alone, and the experts of this model are parameters of "
    "three dimensions: ";

}  // namespace

std::string note_on_unquantized_experts(const Scenario& scenario, const model::Graph& graph) {
  if (!has_bitsandbytes_base(scenario.question)) return {};
  int64_t bytes = 0;
  bool are_wide = false;
  for (const model::Parameter& parameter : graph.parameters) {
    if (parameter.role != model::ParameterRole::expert || parameter.shape.size() != 3) continue;
    const op::DType type = parameter.dtype.value_or(scenario.train.weights);
    bytes += op::product(parameter.shape) * op::element_size(type);
    are_wide |= type == op::DType::f32;
  }
  if (bytes == 0) return {};
  const std::string held = kLeftAlone + format_bytes(Bytes(bytes));
  if (!are_wide || scenario.question.dtype == Dtype::fp32)
    return held + " of them stay as they are";
  return held +
         " of them, since peft's prepare_model_for_kbit_training makes float32 of what is not "
         "quantized; --kbit-preparation none leaves them in 16 bits";
}

std::string note_on_adapted_experts(const Scenario& scenario, const model::Graph& graph) {
  const FitQuestion& q = scenario.question;
  const bool asks_for_all = std::ranges::find(q.lora_targets, "all-linear") != q.lora_targets.end();
  if (q.method == Method::full || !asks_for_all) return {};
  const bool has_such_experts = std::ranges::any_of(graph.parameters, [](const auto& parameter) {
    return parameter.role == model::ParameterRole::expert && parameter.shape.size() == 3;
  });
  if (!has_such_experts) return {};
  // Seen of Qwen3 MoE, Mixtral and DeepSeek, not of Qwen2 MoE and Granite MoE.
  return "peft 0.21 takes all-linear to mean the experts and the router of some such models, too; "
         "here linear modules and routers have adapters, experts have none, so that trainable "
         "parameters, gradients and states may be more";
}

}  // namespace headroom::fit
