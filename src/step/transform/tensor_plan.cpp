#include "step/transform/tensor_plan.h"

#include <algorithm>
#include <array>

namespace headroom::step {

namespace {

using enum TensorStyle;

constexpr std::array kLlama = std::to_array<TensorRule>({
    {"self_attn.q_proj", colwise},
    {"self_attn.k_proj", colwise},
    {"self_attn.v_proj", colwise},
    {"self_attn.o_proj", rowwise},
    {"mlp.gate_proj", colwise},
    {"mlp.up_proj", colwise},
    {"mlp.down_proj", rowwise},
});
// With norms of each head's query and key.
constexpr std::array kNormedHeads = std::to_array<TensorRule>({
    {"self_attn.q_proj", colwise},
    {"self_attn.k_proj", colwise},
    {"self_attn.v_proj", colwise},
    {"self_attn.q_norm", replicated_with_grad_allreduce},
    {"self_attn.k_norm", replicated_with_grad_allreduce},
    {"self_attn.o_proj", rowwise},
    {"mlp.gate_proj", colwise},
    {"mlp.up_proj", colwise},
    {"mlp.down_proj", rowwise},
});
// With norms of all queries and all keys, which every rank sees whole.
constexpr std::array kGatheredHeads = std::to_array<TensorRule>({
    {"self_attn.q_proj", colwise_gather_output},
    {"self_attn.k_proj", colwise_gather_output},
    {"self_attn.v_proj", colwise_gather_output},
    {"self_attn.o_proj", rowwise_split_input},
    {"mlp.gate_proj", colwise},
    {"mlp.up_proj", colwise},
    {"mlp.down_proj", rowwise},
});
constexpr std::array kUngated = std::to_array<TensorRule>({
    {"self_attn.q_proj", colwise},
    {"self_attn.k_proj", colwise},
    {"self_attn.v_proj", colwise},
    {"self_attn.o_proj", rowwise},
    {"mlp.up_proj", colwise},
    {"mlp.down_proj", rowwise},
});
constexpr std::array kPhi = std::to_array<TensorRule>({
    {"self_attn.q_proj", colwise},
    {"self_attn.k_proj", colwise},
    {"self_attn.v_proj", colwise},
    {"self_attn.dense", rowwise},
    {"mlp.fc1", colwise},
    {"mlp.fc2", rowwise},
});
constexpr std::array kPhi3 = std::to_array<TensorRule>({
    {"self_attn.qkv_proj", colwise_gather_output},
    {"self_attn.o_proj", rowwise_split_input},
    {"mlp.gate_up_proj", colwise_gather_output},
    {"mlp.down_proj", rowwise_split_input},
});
constexpr std::array kGlm = std::to_array<TensorRule>({
    {"self_attn.q_proj", colwise},
    {"self_attn.k_proj", colwise},
    {"self_attn.v_proj", colwise},
    {"self_attn.o_proj", rowwise},
    {"mlp.gate_up_proj", colwise_gather_output},
    {"mlp.down_proj", rowwise_split_input},
});
constexpr std::array kStarcoder2 = std::to_array<TensorRule>({
    {"self_attn.q_proj", colwise},
    {"self_attn.k_proj", colwise},
    {"self_attn.v_proj", colwise},
    {"self_attn.o_proj", rowwise},
    {"mlp.c_fc", colwise},
    {"mlp.c_proj", rowwise},
});
constexpr std::array kGptNeox = std::to_array<TensorRule>({
    {"attention.query_key_value", colwise},
    {"attention.dense", rowwise},
    {"mlp.dense_h_to_4h", colwise},
    {"mlp.dense_4h_to_h", rowwise},
});

// Ours.
constexpr std::array kGpt2 = std::to_array<TensorRule>({
    {"attn.c_attn", packed_colwise, 3},
    {"attn.c_proj", rowwise},
    {"mlp.c_fc", colwise},
    {"mlp.c_proj", rowwise},
});
constexpr std::array kOpt = std::to_array<TensorRule>({
    {"self_attn.q_proj", colwise},
    {"self_attn.k_proj", colwise},
    {"self_attn.v_proj", colwise},
    {"self_attn.out_proj", rowwise},
    {"fc1", colwise},
    {"fc2", rowwise},
});
constexpr std::array kBloom = std::to_array<TensorRule>({
    {"self_attention.query_key_value", colwise},
    {"self_attention.dense", rowwise},
    {"mlp.dense_h_to_4h", colwise},
    {"mlp.dense_4h_to_h", rowwise},
});
constexpr std::array kGptNeo = std::to_array<TensorRule>({
    {"attention.q_proj", colwise},
    {"attention.k_proj", colwise},
    {"attention.v_proj", colwise},
    {"attention.out_proj", rowwise},
    {"mlp.c_fc", colwise},
    {"mlp.c_proj", rowwise},
});
constexpr std::array kGptJ = std::to_array<TensorRule>({
    {"attn.q_proj", colwise},
    {"attn.k_proj", colwise},
    {"attn.v_proj", colwise},
    {"attn.out_proj", rowwise},
    {"mlp.fc_in", colwise},
    {"mlp.fc_out", rowwise},
});
// Its attention lies in four parts, each with its own queries, values and keys.
constexpr std::array kCodegen = std::to_array<TensorRule>({
    {"attn.qkv_proj", colwise},
    {"attn.out_proj", rowwise},
    {"mlp.fc_in", colwise},
    {"mlp.fc_out", rowwise},
});
// All heads share one key and one value, so that attention stays whole.
constexpr std::array kGptBigcode = std::to_array<TensorRule>({
    {"mlp.c_fc", colwise},
    {"mlp.c_proj", rowwise},
});

struct Entry {
  std::string_view model_type;
  TensorPlan plan;
};
constexpr std::array kEntries = std::to_array<Entry>({
    {"llama", {kLlama, true, true}},
    {"mistral", {kLlama, true, true}},
    {"gemma", {kLlama}},
    {"gemma2", {kLlama}},
    {"gemma3_text", {kNormedHeads}},
    {"qwen2", {kLlama, true, true}},
    {"qwen3", {kNormedHeads, true, true}},
    {"granite", {kLlama}},
    {"arcee", {kUngated}},
    {"cohere", {kLlama}},
    {"cohere2", {kLlama}},
    {"ernie4_5", {kLlama}},
    {"exaone4", {kNormedHeads}},
    {"helium", {kLlama}},
    {"olmo", {kLlama}},
    {"olmo2", {kGatheredHeads}},
    {"olmo3", {kGatheredHeads}},
    {"seed_oss", {kLlama}},
    {"smollm3", {kLlama}},
    {"phi", {kPhi}},
    {"phi3", {kPhi3}},
    {"glm", {kGlm}},
    {"glm4", {kGlm}},
    {"starcoder2", {kStarcoder2}},
    {"gpt_neox", {kGptNeox}},
    {"gpt2", {kGpt2, false}},
    {"opt", {kOpt, false}},
    {"biogpt", {kOpt, false}},
    {"bloom", {kBloom, false}},
    {"gpt_neo", {kGptNeo, false}},
    {"gptj", {kGptJ, false}},
    {"codegen", {kCodegen, false}},
    {"gpt_bigcode", {kGptBigcode, false}},
    {"stablelm", {kLlama, false}},
});
constexpr auto kArchitectures = [] {
  std::array<std::string_view, kEntries.size()> names{};
  for (size_t i = 0; i < kEntries.size(); ++i) names[i] = kEntries[i].model_type;
  return names;
}();

}  // namespace

std::string_view name_of(TensorStyle style) {
  switch (style) {
    case colwise:
      return "colwise";
    case rowwise:
      return "rowwise";
    case colwise_gather_output:
      return "colwise_gather_output";
    case rowwise_split_input:
      return "rowwise_split_input";
    case replicated_with_grad_allreduce:
      return "replicated_with_grad_allreduce";
    case packed_colwise:
      return "packed_colwise";
  }
  return "";
}

std::optional<TensorPlan> tensor_plan(std::string_view model_type) {
  const auto found = std::ranges::find(kEntries, model_type, &Entry::model_type);
  if (found == kEntries.end()) return {};
  return found->plan;
}

std::span<const std::string_view> planned_architectures() { return kArchitectures; }

}  // namespace headroom::step
