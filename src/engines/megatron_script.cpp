#include "engines/megatron_script.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "engines/pipeline_layout.h"
#include "engines/script_launch.h"
#include "engines/shell_words.h"

namespace headroom::engines {

namespace {

// An array of a shell's, an argument a line.
class Array {
 public:
  explicit Array(const std::string& name) : text_(name + "=(\n") {}

  void add(const std::string& name, const std::string& value) {
    text_ += "  --" + name + (value.empty() ? "" : " " + value) + "\n";
  }
  void add(const std::string& name, int64_t value) { add(name, std::to_string(value)); }
  void add(const std::string& name, double value) {
    std::array<char, 32> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    add(name, std::string(digits.data(), end));
  }
  template <typename Number>
  void add(const std::string& name, const std::optional<Number>& value) {
    if (value) add(name, *value);
  }
  // Beside what a default is.
  void add_unless(int64_t standard, const std::string& name, int64_t value) {
    if (value != standard) add(name, value);
  }
  void flag(const std::string& name, bool is_on) {
    if (is_on) add(name, std::string());
  }
  [[nodiscard]] std::string text() const { return text_ + ")\n"; }

 private:
  std::string text_;
};

void add_layers(const MegatronArguments& a, Array& to) {
  if (a.decoder_layers > 0) {
    to.add("encoder-num-layers", a.layers);
    to.add("decoder-num-layers", a.decoder_layers);
    to.add("encoder-seq-length", a.sequence);
    to.add("decoder-seq-length", a.decoder_sequence);
  } else {
    to.add("num-layers", a.layers);
    to.add("seq-length", a.sequence);
  }
  to.add("hidden-size", a.hidden);
  to.add("ffn-hidden-size", a.ffn);
  to.add("num-attention-heads", a.heads);
  if (a.query_groups != a.heads) {
    to.flag("group-query-attention", true);
    to.add("num-query-groups", a.query_groups);
  }
  to.add("kv-channels", a.kv_channels);
}

void add_positions(const MegatronArguments& a, Array& to) {
  const bool is_learned = !a.rotary && a.positions > 0;
  if (!is_learned) to.add("position-embedding-type", std::string(a.rotary ? "rope" : "none"));
  // Asked for in any case. A checkpoint is held against it, so that it stays as it was said.
  const int64_t needed = std::max(a.sequence, a.decoder_sequence);
  to.add("max-position-embeddings", is_learned ? a.positions : a.longest > 0 ? a.longest : needed);
  to.flag("no-rope-fusion", !a.fused_rotary);
  to.flag("rotary-interleaved", a.interleaved_rotary);
  if (a.rotary_percent != 1) to.add("rotary-percent", a.rotary_percent);
}

void add_latent_attention(const MegatronArguments& a, Array& to) {
  if (a.kv_lora_rank == 0) return;
  to.flag("multi-latent-attention", true);
  if (a.q_lora_rank > 0) to.add("q-lora-rank", a.q_lora_rank);
  to.add("kv-lora-rank", a.kv_lora_rank);
  to.add("qk-head-dim", a.qk_head_dim);
  to.add("qk-pos-emb-head-dim", a.qk_pos_emb_head_dim);
  to.add("v-head-dim", a.v_head_dim);
}

std::string model_arguments(const MegatronArguments& a) {
  Array to("MODEL_ARGS");
  add_layers(a, to);
  add_positions(a, to);
  if (a.vocabulary > a.extra_tokens) to.add("vocab-size", *a.vocabulary - a.extra_tokens);
  to.add_unless(0, "vocab-extra-ids", a.extra_tokens);
  to.add_unless(MegatronArguments().vocabulary_multiple, "make-vocab-size-divisible-by",
                a.vocabulary_multiple);
  to.flag("swiglu", a.swiglu);
  if (a.rms_norm) to.add("normalization", std::string("RMSNorm"));
  to.flag("disable-bias-linear", !a.linear_bias);
  to.flag("add-qkv-bias", a.qkv_bias);
  to.flag("untie-embeddings-and-output-weights", !a.tied);
  add_latent_attention(a, to);
  to.flag("qk-layernorm", a.qk_layernorm);
  if (a.experts > 0) {
    to.add("num-experts", a.experts);
    to.add("moe-router-topk", a.experts_per_token);
    to.add("moe-ffn-hidden-size", a.expert_ffn);
    if (a.shared_expert_ffn > 0) {
      to.add("moe-shared-expert-intermediate-size", a.shared_expert_ffn);
    }
    to.flag("moe-shared-expert-gate", a.shared_expert_gate);
    to.flag("moe-grouped-gemm", a.grouped_experts);
    to.add("moe-token-dispatcher-type", std::string(a.sends_tokens ? "alltoall" : "allgather"));
    if (a.expert_capacity) to.add("moe-expert-capacity-factor", *a.expert_capacity);
    to.flag("moe-pad-expert-input-to-capacity", a.fills_capacity);
  }
  to.add("hidden-dropout", a.hidden_dropout);
  to.add("attention-dropout", a.attention_dropout);
  return to.text();
}

void add_stages(const MegatronArguments& a, Array& to) {
  to.add("pipeline-model-parallel-size", a.stages);
  to.add("num-layers-per-virtual-pipeline-stage", a.chunk_layers);
  to.add("num-virtual-stages-per-pipeline-rank", a.chunks);
  to.add("decoder-first-pipeline-num-layers", a.first_layers);
  to.add("decoder-last-pipeline-num-layers", a.last_layers);
  to.flag("account-for-embedding-in-pipeline-split", a.embedding_is_layer);
  to.flag("account-for-loss-in-pipeline-split", a.loss_is_layer);
  if (a.layout.empty()) return;
  to.add("pipeline-model-parallel-layout", shell_word(pipeline_layout_words(a.layout)));
}

std::string division_arguments(const MegatronArguments& a) {
  Array to("DIVISION_ARGS");
  to.add("tensor-model-parallel-size", a.tensor_ranks);
  to.flag("sequence-parallel", a.sequence_parallel);
  add_stages(a, to);
  to.add_unless(1, "context-parallel-size", a.context_ranks);
  if (a.experts > 0) {
    to.add("expert-model-parallel-size", a.expert_ranks);
    to.add("expert-tensor-parallel-size", a.expert_tensor_ranks);
  }
  to.flag("use-distributed-optimizer", a.distributed_optimizer);
  to.add_unless(1, "num-distributed-optimizer-instances", a.optimizer_instances);
  to.flag("overlap-grad-reduce", a.overlap_grad_reduce);
  to.flag("overlap-param-gather", a.overlap_param_gather);
  return to.text();
}

void add_modules(const MegatronArguments& a, Array& to) {
  to.add("transformer-impl", std::string(a.local ? "local" : "transformer_engine"));
  to.flag("no-masked-softmax-fusion", !a.fused_softmax);
  to.flag("apply-query-key-layer-scaling", a.scaled_softmax);
  to.flag("attention-softmax-in-fp32", a.softmax_in_float32);
  to.flag(a.swiglu ? "no-bias-swiglu-fusion" : "no-bias-gelu-fusion", !a.fused_activation);
  to.flag("no-bias-dropout-fusion", !a.fused_dropout_add);
  to.flag("cross-entropy-loss-fusion", a.fused_loss);
}

void add_fp8(const MegatronArguments& a, Array& to) {
  if (a.fp8_format.empty()) return;
  to.add("fp8-format", a.fp8_format);
  to.add("fp8-recipe", a.fp8_recipe);
  to.flag("moe-router-padding-for-quantization", a.fp8_router_pads);
}

std::string step_arguments(const MegatronArguments& a) {
  Array to("STEP_ARGS");
  add_modules(a, to);
  if (a.attention_backend != "auto") to.add("attention-backend", shell_word(a.attention_backend));
  to.flag("deterministic-mode", a.deterministic);
  if (a.type != "fp32") to.flag(a.type, true);
  add_fp8(a, to);
  to.add_unless(1, "fp8-amax-history-len", a.fp8_history);
  to.add("micro-batch-size", a.micro_batch);
  to.add("global-batch-size", a.global_batch);
  to.flag("grad-reduce-in-bf16", a.gradients_in_half);
  to.flag("accumulate-allreduce-grads-in-fp32", a.gradients_in_float32);
  to.flag("no-gradient-accumulation-fusion", !a.fused_accumulation);
  to.flag("no-create-attention-mask-in-dataloader", !a.mask_from_loader);
  if (a.recomputes_layers) {
    to.add("recompute-granularity", std::string("full"));
    to.add("recompute-method", std::string("uniform"));
    to.add("recompute-num-layers", int64_t{1});
  } else if (a.recomputes_attention) {
    to.add("recompute-granularity", std::string("selective"));
    to.add("recompute-modules", std::string("core_attn"));
  }
  return to.text();
}

// A name is asked of the environment, and the script ends where it has none.
std::string handed_on(const std::string& word) {
  return word.starts_with('$') ? "\"${" + word.substr(1) + ":?}\"" : shell_word(word);
}

std::string other_arguments(const MegatronArguments& a) {
  Array to("OTHER_ARGS");
  for (const OtherArgument& other : a.others) {
    if (!other.is_given) continue;
    std::string words;
    for (const std::string& word : other.words) {
      words += (words.empty() ? "" : " ") + handed_on(word);
    }
    to.add(shell_word(other.name), words);
  }
  return to.text();
}

std::string environment(const MegatronArguments& a) {
  std::string text;
  // validate_args wants it before Blackwell.
  if (a.tensor_ranks > 1 || a.context_ranks > 1) text += "export CUDA_DEVICE_MAX_CONNECTIONS=1\n";
  text += allocator_line(a.allocator);
  return text + machine_names(a.nodes.value_or(1));
}

std::string program_of(const MegatronArguments& a) {
  const bool is_plain = a.program.find_first_of("$`~") == std::string::npos;
  if (!a.program.empty() && is_plain) return shell_word(a.program);
  return a.decoder_layers > 0 ? "pretrain_t5.py" : "pretrain_gpt.py";
}

std::string launch(const MegatronArguments& a) {
  const std::string line = torchrun_line(a.nodes.value_or(1), a.ranks_per_node.value_or(1));
  return line + " \\\n  " + program_of(a) +
         " \"${MODEL_ARGS[@]}\" \"${DIVISION_ARGS[@]}\" \\\n"
         "  \"${STEP_ARGS[@]}\" \"${OTHER_ARGS[@]}\" \"$@\"\n";
}

}  // namespace

std::string megatron_script(const MegatronArguments& arguments) {
  return "#!/bin/bash\n"
         "# Arguments of Megatron-LM 0.20 (d98e8a64, August 2026), written by headroom fit "
         "--emit.\n"
         "set -eu\n" +
         environment(arguments) + model_arguments(arguments) + division_arguments(arguments) +
         step_arguments(arguments) + other_arguments(arguments) + launch(arguments);
}

std::string megatron_line(const MegatronArguments& arguments, const std::string& file) {
  return script_line(arguments.nodes.value_or(1), file);
}

}  // namespace headroom::engines
