#include <array>

#include "model/families/arcee.h"
#include "model/families/bert.h"
#include "model/families/biogpt.h"
#include "model/families/bloom.h"
#include "model/families/cohere.h"
#include "model/families/config.h"
#include "model/families/deberta_v2.h"
#include "model/families/distilbert.h"
#include "model/families/electra.h"
#include "model/families/ernie4_5.h"
#include "model/families/exaone4.h"
#include "model/families/falcon.h"
#include "model/families/family.h"
#include "model/families/gemma.h"
#include "model/families/gemma4.h"
#include "model/families/glm.h"
#include "model/families/gpt2.h"
#include "model/families/gpt_bigcode.h"
#include "model/families/gpt_neo.h"
#include "model/families/gpt_neox.h"
#include "model/families/gptj.h"
#include "model/families/granite.h"
#include "model/families/helium.h"
#include "model/families/hunyuan.h"
#include "model/families/llama.h"
#include "model/families/minimax.h"
#include "model/families/mistral.h"
#include "model/families/modernbert.h"
#include "model/families/moe.h"
#include "model/families/mpnet.h"
#include "model/families/olmo.h"
#include "model/families/opt.h"
#include "model/families/phi.h"
#include "model/families/phi3.h"
#include "model/families/qwen2.h"
#include "model/families/qwen3_next.h"
#include "model/families/roberta.h"
#include "model/families/seed_oss.h"
#include "model/families/smollm3.h"
#include "model/families/stablelm.h"
#include "model/families/starcoder2.h"
#include "model/families/t5.h"
#include "model/families/vit.h"

namespace headroom::model {

std::string_view task_name(Task task) {
  switch (task) {
    case Task::causal_lm:
      return "causal_lm";
    case Task::masked_lm:
      return "masked_lm";
    case Task::seq2seq_lm:
      return "seq2seq_lm";
    case Task::image_classification:
      return "image_classification";
    case Task::sequence_classification:
      return "sequence_classification";
  }
  return "";
}

std::string_view meaning_of_seq(Task task) {
  switch (task) {
    case Task::causal_lm:
      return "predicts the next of --seq tokens";
    case Task::masked_lm:
      return "fills in masked tokens: every one of --seq tokens is read and predicted";
    case Task::seq2seq_lm:
      return "an encoder reads --seq tokens, a decoder predicts --decoder-seq (as many unless "
             "said)";
    case Task::sequence_classification:
      return "finds a class for each sequence of --seq tokens";
    case Task::image_classification:
      return "classifies images: the config says how many tokens one is, and --seq is not read";
  }
  return "";
}

namespace {

constexpr std::string_view kDeltaRuleInTorch =
    "linear attention is taken to run in torch operators, as transformers does where "
    "flash-linear-attention and causal-conv1d are not installed; their kernels keep far less for "
    "backward, and are not modelled";
constexpr std::string_view kTextAlone =
    "trained on text alone: what reads images is in memory and is not run, and what images take is "
    "not modelled";
constexpr std::string_view kTextModel =
    "the language model alone, as AutoModelForCausalLM makes it: what reads images is not there";
constexpr std::string_view kSparsityIsAMask =
    "sparse attention is taken to be a mask over all keys, as transformers runs it with eager and "
    "SDPA attention; kernels that read chosen keys alone are not modelled";

}  // namespace

bool classifies_sequences(const Family& family) {
  // Those that have none (models/auto/modeling_auto.py, 5.23); T5's runs a decoder of its own.
  constexpr auto kHaveNone = std::to_array<std::string_view>({"codegen",
                                                              "cohere",
                                                              "cohere2",
                                                              "deepseek_v32",
                                                              "dots1",
                                                              "ernie4_5",
                                                              "ernie4_5_moe",
                                                              "gemma4",
                                                              "gemma4_text",
                                                              "glm4_moe",
                                                              "glm4_moe_lite",
                                                              "glm_moe_dsa",
                                                              "granite",
                                                              "granitemoe",
                                                              "kimi_k2",
                                                              "llama4",
                                                              "llama4_text",
                                                              "minimax_m2",
                                                              "mistral3",
                                                              "olmoe",
                                                              "qwen2_5_vl",
                                                              "qwen2_vl",
                                                              "qwen3_5_moe",
                                                              "qwen3_5_moe_text",
                                                              "qwen3_vl",
                                                              "t5",
                                                              "vit"});
  return std::ranges::find(kHaveNone, family.model_type) == kHaveNone.end();
}

Result<int64_t> label_count(const text::JsonView& config) {
  ConfigReader in(config);
  const int64_t count = read_classes(in, config);
  if (in.error()) return *in.error();
  return count;
}

std::span<const Family> families() {
  static constexpr auto kFamilies = std::to_array<Family>({
      {"arcee", build_arcee},
      {"bert", build_bert, Task::masked_lm},
      {"biogpt", build_biogpt},
      {"bloom", build_bloom},
      {"camembert", build_camembert, Task::masked_lm},
      {"codegen", build_codegen},
      {"cohere", build_cohere},
      {"cohere2", build_cohere2},
      {"deberta-v2", build_deberta_v2, Task::masked_lm},
      {"deepseek_v2", build_deepseek_v2},
      {"deepseek_v3", build_deepseek_v3},
      {"deepseek_v32", build_deepseek_v32, Task::causal_lm, kSparsityIsAMask},
      {"distilbert", build_distilbert, Task::masked_lm},
      {"dots1", build_dots1},
      {"electra", build_electra, Task::masked_lm},
      {"ernie4_5", build_ernie4_5},
      {"ernie4_5_moe", build_ernie4_5_moe},
      {"exaone4", build_exaone4},
      {"falcon", build_falcon},
      {"gemma", build_gemma},
      {"gemma2", build_gemma2},
      {"gemma3", build_gemma3_with_images, Task::causal_lm, kTextAlone, true},
      {"gemma3_text", build_gemma3},
      {"gemma4", build_gemma4, Task::causal_lm, kTextAlone, true},
      {"gemma4_text", build_gemma4_text},
      {"glm", build_glm},
      {"glm4", build_glm4},
      {"glm4_moe", build_glm4_moe},
      {"glm4_moe_lite", build_glm4_moe_lite},
      {"glm_moe_dsa", build_glm_moe_dsa, Task::causal_lm, kSparsityIsAMask},
      {"gpt2", build_gpt2},
      {"gpt_bigcode", build_gpt_bigcode},
      {"gpt_neo", build_gpt_neo},
      {"gpt_neox", build_gpt_neox},
      {"gpt_oss", build_gpt_oss},
      {"gptj", build_gptj},
      {"granite", build_granite},
      {"granitemoe", build_granitemoe},
      {"helium", build_helium},
      {"hunyuan_v1_dense", build_hunyuan_v1_dense},
      {"kimi_k2", build_deepseek_v3},  // the same architecture under its own name
      {"llama", build_llama},
      {"llama4", build_llama4, Task::causal_lm, kTextModel},
      {"llama4_text", build_llama4},
      {"minimax", build_minimax},
      {"minimax_m2", build_minimax_m2},
      {"ministral3", build_ministral3},
      {"mistral", build_mistral},
      {"mistral3", build_mistral3, Task::causal_lm, kTextAlone, true},
      {"mixtral", build_mixtral},
      {"modernbert", build_modernbert, Task::masked_lm},
      {"mpnet", build_mpnet, Task::masked_lm},
      {"olmo", build_olmo},
      {"olmo2", build_olmo2},
      {"olmo3", build_olmo3},
      {"olmoe", build_olmoe},
      {"opt", build_opt},
      {"phi", build_phi},
      {"phi3", build_phi3},
      {"phimoe", build_phimoe},
      {"qwen2", build_qwen2},
      {"qwen2_5_vl", build_qwen2_5_vl, Task::causal_lm, kTextAlone, true},
      {"qwen2_moe", build_qwen2_moe},
      {"qwen2_vl", build_qwen2_vl, Task::causal_lm, kTextAlone, true},
      {"qwen3", build_qwen3},
      {"qwen3_5", build_qwen3_5, Task::causal_lm, kDeltaRuleInTorch},
      {"qwen3_5_moe", build_qwen3_5_moe, Task::causal_lm, kDeltaRuleInTorch},
      {"qwen3_5_moe_text", build_qwen3_5_moe, Task::causal_lm, kDeltaRuleInTorch},
      {"qwen3_5_text", build_qwen3_5, Task::causal_lm, kDeltaRuleInTorch},
      {"qwen3_moe", build_qwen3_moe},
      {"qwen3_next", build_qwen3_next, Task::causal_lm, kDeltaRuleInTorch},
      {"qwen3_vl", build_qwen3_vl, Task::causal_lm, kTextAlone, true},
      {"roberta", build_roberta, Task::masked_lm},
      {"seed_oss", build_seed_oss},
      {"smollm3", build_smollm3},
      {"stablelm", build_stablelm},
      {"starcoder2", build_starcoder2},
      {"t5", build_t5, Task::seq2seq_lm},
      {"vit", build_vit, Task::image_classification},
      {"xlm-roberta", build_xlm_roberta, Task::masked_lm},
  });
  return kFamilies;
}

}  // namespace headroom::model
