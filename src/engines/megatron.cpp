#include "engines/megatron.h"

#include <algorithm>
#include <utility>

#include "engines/megatron_names.h"
#include "engines/pipeline_layout.h"
#include "engines/script_launch.h"
#include "engines/shell_arguments.h"
#include "operator/fp8.h"
#include "text/parse_number.h"

namespace headroom::engines {

namespace {

constexpr std::string_view kOfDecoders = "pretrain_gpt.py";
constexpr std::string_view kOfEncodersAndDecoders = "pretrain_t5.py";
constexpr double kMostCapacity = 1e4;  // even parts

// The program that a script starts, where it says one; without its path, where that needs a shell.
// What starts something else has other models, or does not train.
Result<std::string> program_of(const ShellArguments& in) {
  std::string other;
  for (const ShellWord& word : in.script().words()) {
    if (!word.text.ends_with(".py")) continue;
    const size_t equals = word.text.find('=');  // SCRIPT=pretrain_gpt.py
    const std::string path = word.text.substr(equals + 1);
    const std::string name = path.substr(path.rfind('/') + 1);
    if (name == kOfDecoders || name == kOfEncodersAndDecoders) return word.is_torn ? name : path;
    other = name;
  }
  if (other.empty()) return other;
  return Error{ErrorCode::bad_input,
               "starts " + other.substr(0, 60) + ", whose steps are not modelled", in.file(),
               "pretrain_gpt.py's and pretrain_t5.py's are"};
}

Result<void> check_modelled(ShellArguments& in) {
  for (const std::string_view name : megatron_not_modelled()) {
    if (!in.is_on(name)) continue;
    return Error{ErrorCode::bad_input, "--" + std::string(name) + " is not modelled", in.file(),
                 "leave it out to see the rest; docs/formats/setup_files.md lists what is"};
  }
  for (const OnlyValue& only : megatron_only_values()) {
    HEADROOM_ASSIGN(const auto value, in.words(only.name));
    if (!value || *value == only.value) continue;
    return Error{ErrorCode::bad_input,
                 "--" + std::string(only.name) + " " + value->substr(0, 60) + " is not modelled",
                 in.file(), std::string(only.value) + " is"};
  }
  return {};
}

// Of an encoder and a decoder the lengths that count are the encoder's, as in Megatron-LM.
Result<void> read_encoder_and_decoder(ShellArguments& in, MegatronArguments& a) {
  HEADROOM_TRY(in.take("encoder-num-layers", a.layers));
  HEADROOM_TRY(in.take("decoder-num-layers", a.decoder_layers));
  HEADROOM_TRY(in.take("encoder-seq-length", a.sequence));
  HEADROOM_TRY(in.take("decoder-seq-length", a.decoder_sequence));
  if (a.decoder_layers == 0 || a.decoder_sequence > 0) return {};
  return Error{ErrorCode::bad_input, "has no --decoder-seq-length", in.file(),
               "an encoder and a decoder have a length each"};
}

Result<void> read_sizes(ShellArguments& in, MegatronArguments& a) {
  HEADROOM_TRY(read_encoder_and_decoder(in, a));
  struct Needed {
    std::string_view name;
    int64_t* to;
  };
  for (const Needed& needed :
       {Needed{"num-layers", &a.layers}, Needed{"hidden-size", &a.hidden},
        Needed{"num-attention-heads", &a.heads}, Needed{"seq-length", &a.sequence}}) {
    HEADROOM_TRY(in.take(needed.name, *needed.to));
    if (*needed.to > 0) continue;
    return Error{ErrorCode::bad_input, "has no --" + std::string(needed.name), in.file(),
                 "name the file that holds Megatron-LM's arguments for the model"};
  }
  a.swiglu = in.is_on("swiglu");
  a.query_groups = a.heads;
  if (in.is_on("group-query-attention")) {
    a.query_groups = 1;
    HEADROOM_TRY(in.take("num-query-groups", a.query_groups));
  }
  if (a.hidden % a.heads != 0 && !in.script().written("kv-channels")) {
    return Error{ErrorCode::bad_input, "the heads do not divide the hidden size", in.file(), ""};
  }
  a.kv_channels = a.hidden / a.heads;
  HEADROOM_TRY(in.take("kv-channels", a.kv_channels));
  constexpr int64_t kGatedMultiple = 64;
  a.ffn = a.swiglu ? a.hidden * 8 / 3 / kGatedMultiple * kGatedMultiple : 4 * a.hidden;
  HEADROOM_TRY(in.take("ffn-hidden-size", a.ffn));
  if (a.ffn < 1) {
    return Error{ErrorCode::bad_input, "the hidden size is too small for an MLP with --swiglu",
                 in.file(), "--ffn-hidden-size says how wide it is"};
  }
  HEADROOM_TRY(in.take("max-position-embeddings", a.positions));
  HEADROOM_ASSIGN(a.vocabulary, in.number("vocab-size"));
  HEADROOM_TRY(in.take("make-vocab-size-divisible-by", a.vocabulary_multiple));
  HEADROOM_ASSIGN(const auto tokenizer, in.words("tokenizer-type"));
  HEADROOM_TRY(in.take("vocab-extra-ids", a.extra_tokens, 0));
  if (a.vocabulary) *a.vocabulary += a.extra_tokens;
  constexpr int64_t kGpt2Vocabulary = 50'257;
  if (!a.vocabulary && tokenizer == "GPT2BPETokenizer") a.vocabulary = kGpt2Vocabulary;
  return {};
}

Result<void> read_latent_attention(ShellArguments& in, MegatronArguments& a) {
  a.qk_layernorm = in.is_on("qk-layernorm");
  if (!in.is_on("multi-latent-attention")) return {};
  if (a.rotary_percent != 1) {
    return Error{ErrorCode::bad_input,
                 "--rotary-percent below 1 with --multi-latent-attention is not modelled",
                 in.file(), "1.0 is: --qk-pos-emb-head-dim says how much is turned"};
  }
  a.kv_lora_rank = 32;
  HEADROOM_TRY(in.take("q-lora-rank", a.q_lora_rank));
  HEADROOM_TRY(in.take("kv-lora-rank", a.kv_lora_rank));
  HEADROOM_TRY(in.take("qk-head-dim", a.qk_head_dim));
  HEADROOM_TRY(in.take("qk-pos-emb-head-dim", a.qk_pos_emb_head_dim));
  HEADROOM_TRY(in.take("v-head-dim", a.v_head_dim));
  a.fused_rotary = a.fused_rotary && a.rotary;  // validate_args
  return {};
}

// By Transformer Engine's kernel, or by plain operators.
Result<void> read_rotation(ShellArguments& in, MegatronArguments& a) {
  a.fused_rotary = !in.is_on("no-rope-fusion");
  if (!a.rotary) return {};
  if (!a.fused_rotary) a.interleaved_rotary = in.is_on("rotary-interleaved");
  HEADROOM_ASSIGN(const auto words, in.words("rotary-percent"));
  if (!words) return {};
  const auto share = text::parse_number<double>(*words);
  if (!share || !(*share > 0) || *share > 1) {
    return Error{ErrorCode::bad_input,
                 "--rotary-percent " + words->substr(0, 60) + " is no share of a head", in.file(),
                 "above 0, up to 1: 0.5 turns half of its columns"};
  }
  a.rotary_percent = *share;
  return {};
}

// Transformer Engine's modules, or Megatron-LM's own, whose softmax has a kernel where it can.
Result<void> read_modules(ShellArguments& in, MegatronArguments& a) {
  HEADROOM_ASSIGN(const auto modules, in.words("transformer-impl"));
  a.local = modules == "local";
  if (modules && !a.local && *modules != "transformer_engine") {
    return Error{ErrorCode::bad_input,
                 "--transformer-impl " + modules->substr(0, 60) + " is not modelled", in.file(),
                 "transformer_engine or local"};
  }
  if (a.local) {
    a.fused_softmax = !in.is_on("no-masked-softmax-fusion");
    a.scaled_softmax = in.is_on("apply-query-key-layer-scaling");
    a.softmax_in_float32 = in.is_on("attention-softmax-in-fp32");
  }
  a.fused_loss = in.is_on("cross-entropy-loss-fusion");
  return {};
}

// Which of the two formats it is, is of no matter to memory.
Result<void> read_fp8(ShellArguments& in, MegatronArguments& a) {
  HEADROOM_ASSIGN(const auto format, in.words("fp8-format"));
  HEADROOM_ASSIGN(const auto recipe, in.words("fp8-recipe"));
  HEADROOM_TRY(in.take("fp8-amax-history-len", a.fp8_history));
  if (!format) return {};
  a.fp8_format = *format;
  if (recipe) a.fp8_recipe = *recipe;
  // An older name of the first, which is still taken.
  const bool older = in.is_on("moe-router-padding-for-fp8");
  a.fp8_router_pads = in.is_on("moe-router-padding-for-quantization") || older;
  const auto refused = [&](const std::string& what, const char* modelled) {
    return Error{ErrorCode::bad_input, what + " is not modelled", in.file(), modelled};
  };
  if (*format != "e4m3" && *format != "hybrid") {
    return refused("--fp8-format " + format->substr(0, 60), "e4m3 or hybrid");
  }
  if (op::fp8_recipe_of(a.fp8_recipe) == op::Fp8Recipe::none) {
    return refused("--fp8-recipe " + a.fp8_recipe.substr(0, 60),
                   "delayed, tensorwise, blockwise or mxfp8");
  }
  for (const std::string_view name : megatron_not_modelled_in_fp8()) {
    if (in.is_on(name)) {
      return refused("--" + std::string(name) + " with --fp8-format",
                     "leave it out to see the rest; docs/formats/setup_files.md lists what is");
    }
  }
  if (a.local) return refused("--fp8-format with --transformer-impl local", "transformer_engine");
  return {};
}

Result<void> read_model(ShellArguments& in, MegatronArguments& a) {
  HEADROOM_TRY(read_sizes(in, a));
  HEADROOM_ASSIGN(const auto norm, in.words("normalization"));
  a.rms_norm = norm == "RMSNorm";
  a.linear_bias = !in.is_on("disable-bias-linear");
  a.qkv_bias = in.is_on("add-qkv-bias");
  a.tied = !in.is_on("untie-embeddings-and-output-weights");
  HEADROOM_ASSIGN(const auto position, in.words("position-embedding-type"));
  a.rotary = position == "rope" || in.is_on("use-rotary-position-embeddings");
  if (position && !a.rotary && *position != "learned_absolute" && *position != "none") {
    return Error{ErrorCode::bad_input,
                 "--position-embedding-type " + *position + " is not modelled", in.file(),
                 "learned_absolute, rope or none"};
  }
  if (!a.rotary && position != "none" && a.positions == 0) {
    return Error{ErrorCode::bad_input, "has no --max-position-embeddings", in.file(),
                 "learned positions need them"};
  }
  if (a.rotary || position == "none") a.longest = std::exchange(a.positions, 0);
  HEADROOM_TRY(read_rotation(in, a));
  HEADROOM_TRY(read_latent_attention(in, a));
  HEADROOM_TRY(read_modules(in, a));
  HEADROOM_TRY(read_fp8(in, a));
  HEADROOM_TRY(in.take("hidden-dropout", a.hidden_dropout));
  HEADROOM_TRY(in.take("attention-dropout", a.attention_dropout));
  HEADROOM_ASSIGN(const auto backend, in.words("attention-backend"));
  if (backend) a.attention_backend = *backend;
  if (!backend && in.is_on("use-flash-attn")) a.attention_backend = "flash";
  a.deterministic = in.is_on("deterministic-mode");
  a.type = in.is_on("bf16") ? "bf16" : in.is_on("fp16") ? "fp16" : "fp32";
  return {};
}

// core_transformer_config_from_args: of the activation that there is, the other's is no matter.
Result<void> read_activation(ShellArguments& in, MegatronArguments& a) {
  const bool no_gelu = in.is_on("no-bias-gelu-fusion");
  const bool no_swiglu = in.is_on("no-bias-swiglu-fusion");
  a.fused_activation = !(a.swiglu ? no_swiglu : no_gelu);
  a.fused_dropout_add = !in.is_on("no-bias-dropout-fusion");
  if (a.experts == 0 || !a.swiglu || !no_swiglu) return {};
  return Error{ErrorCode::bad_input, "--no-bias-swiglu-fusion with --num-experts is not modelled",
               in.file(), "leave it out to see the rest"};
}

Result<void> read_shared_expert(ShellArguments& in, MegatronArguments& a) {
  HEADROOM_TRY(in.take("moe-shared-expert-intermediate-size", a.shared_expert_ffn));
  if (a.shared_expert_ffn == 0) return {};
  a.shared_expert_gate = in.is_on("moe-shared-expert-gate");
  if (a.experts > 0) return {};
  // Dense layers have none, whatever is said.
  a.shared_expert_ffn = 0;
  a.shared_expert_gate = false;
  return {};
}

// TransformerConfig: below 0 there is none, and what is filled up has to have one. Which tokens are
// dropped is no matter of how many (--moe-token-drop-policy).
Result<void> read_capacity(ShellArguments& in, MegatronArguments& a) {
  a.fills_capacity = in.is_on("moe-pad-expert-input-to-capacity");
  HEADROOM_ASSIGN(const auto policy, in.words("moe-token-drop-policy"));
  if (policy && *policy != "probs" && *policy != "position") {
    return Error{ErrorCode::bad_input,
                 "--moe-token-drop-policy " + policy->substr(0, 60) + " is none", in.file(),
                 "probs or position"};
  }
  HEADROOM_ASSIGN(const auto words, in.words("moe-expert-capacity-factor"));
  const auto factor = words ? text::parse_number<double>(*words) : std::nullopt;
  if (words && (!factor || *factor == 0 || !(*factor <= kMostCapacity))) {
    return Error{ErrorCode::bad_input,
                 "--moe-expert-capacity-factor " + words->substr(0, 60) +
                     " is no multiple of an even part of the tokens",
                 in.file(), "1.0 is an even part; below 0 no token is dropped"};
  }
  if (factor && *factor > 0) a.expert_capacity = factor;
  if (!a.fills_capacity || a.expert_capacity) return {};
  return Error{ErrorCode::bad_input,
               "--moe-pad-expert-input-to-capacity without --moe-expert-capacity-factor", in.file(),
               "Megatron-LM ends with an error: say the factor, 1.0 for an even part"};
}

Result<void> read_experts(ShellArguments& in, MegatronArguments& a) {
  HEADROOM_TRY(in.take("num-experts", a.experts));
  HEADROOM_TRY(read_activation(in, a));
  HEADROOM_TRY(read_shared_expert(in, a));
  a.expert_ffn = a.ffn;
  a.expert_tensor_ranks = a.tensor_ranks;
  HEADROOM_TRY(in.take("moe-router-topk", a.experts_per_token));
  HEADROOM_TRY(in.take("moe-ffn-hidden-size", a.expert_ffn));
  HEADROOM_TRY(in.take("expert-model-parallel-size", a.expert_ranks));
  HEADROOM_TRY(in.take("expert-tensor-parallel-size", a.expert_tensor_ranks));
  a.grouped_experts = in.is_on("moe-grouped-gemm");
  HEADROOM_TRY(read_capacity(in, a));
  HEADROOM_ASSIGN(const auto dispatcher, in.words("moe-token-dispatcher-type"));
  a.sends_tokens = dispatcher && *dispatcher != "allgather";
  if (!dispatcher || *dispatcher == "allgather" || *dispatcher == "alltoall") return {};
  return Error{ErrorCode::bad_input,
               "--moe-token-dispatcher-type " + *dispatcher + " is not modelled", in.file(),
               "allgather or alltoall"};
}

Result<void> read_recomputation(ShellArguments& in, MegatronArguments& a) {
  HEADROOM_ASSIGN(const auto granularity, in.words("recompute-granularity"));
  HEADROOM_ASSIGN(const auto method, in.words("recompute-method"));
  int64_t layers = 1;
  HEADROOM_TRY(in.take("recompute-num-layers", layers));
  if (in.is_on("recompute-activations") || granularity == "selective") {
    HEADROOM_ASSIGN(const auto modules, in.list("recompute-modules"));
    a.recomputes_attention = !modules || *modules == "core_attn";
    if (a.recomputes_attention) return {};
    return Error{ErrorCode::bad_input,
                 "--recompute-modules " + modules->substr(0, 60) + " is not modelled", in.file(),
                 "core_attn alone is"};
  }
  if (!granularity) return {};
  a.recomputes_layers = *granularity == "full" && method == "uniform" && layers == 1;
  if (a.recomputes_layers) return {};
  return Error{ErrorCode::bad_input, "--recompute-granularity " + *granularity + " is not modelled",
               in.file(),
               "--recompute-granularity selective is, or full --recompute-method uniform "
               "--recompute-num-layers 1"};
}

// Which layers each stage holds.
Result<void> read_stages(ShellArguments& in, MegatronArguments& a) {
  HEADROOM_TRY(in.take("pipeline-model-parallel-size", a.stages));
  HEADROOM_ASSIGN(a.chunk_layers, in.number("num-layers-per-virtual-pipeline-stage"));
  HEADROOM_ASSIGN(a.chunks, in.number("num-virtual-stages-per-pipeline-rank"));
  HEADROOM_ASSIGN(a.first_layers, in.number("decoder-first-pipeline-num-layers", 0));
  HEADROOM_ASSIGN(a.last_layers, in.number("decoder-last-pipeline-num-layers", 0));
  if (a.chunk_layers && a.chunks) {
    return Error{ErrorCode::bad_input,
                 "has --num-layers-per-virtual-pipeline-stage and "
                 "--num-virtual-stages-per-pipeline-rank",
                 in.file(), "one of them says it"};
  }
  a.embedding_is_layer = in.is_on("account-for-embedding-in-pipeline-split");
  a.loss_is_layer = in.is_on("account-for-loss-in-pipeline-split");
  HEADROOM_ASSIGN(const auto layout, in.words("pipeline-model-parallel-layout"));
  if (!layout) return {};
  HEADROOM_ASSIGN(a.layout, read_pipeline_layout(*layout, in.file()));
  return {};
}

Result<void> read_division(ShellArguments& in, MegatronArguments& a) {
  HEADROOM_TRY(in.take("micro-batch-size", a.micro_batch));
  HEADROOM_ASSIGN(a.global_batch, in.number("global-batch-size"));
  HEADROOM_TRY(in.take("tensor-model-parallel-size", a.tensor_ranks));
  HEADROOM_TRY(read_stages(in, a));
  HEADROOM_TRY(in.take("context-parallel-size", a.context_ranks));
  // validate_args switches it off where there is nothing to share.
  a.sequence_parallel = in.is_on("sequence-parallel") && a.tensor_ranks > 1;
  HEADROOM_TRY(read_experts(in, a));
  a.distributed_optimizer = in.is_on("use-distributed-optimizer");
  HEADROOM_TRY(in.take("num-distributed-optimizer-instances", a.optimizer_instances));
  a.overlap_grad_reduce = in.is_on("overlap-grad-reduce");
  a.overlap_param_gather = in.is_on("overlap-param-gather");
  a.gradients_in_half = in.is_on("grad-reduce-in-bf16");
  a.fused_accumulation = !in.is_on("no-gradient-accumulation-fusion");
  a.mask_from_loader = !in.is_on("no-create-attention-mask-in-dataloader");
  a.gradients_in_float32 = in.is_on("accumulate-allreduce-grads-in-fp32");
  a.ranks_per_node = in.number_if_any("nproc-per-node");
  a.nodes = in.number_if_any("nnodes");
  return read_recomputation(in, a);
}

// What nobody asked for: of the launcher, or to be handed on.
void take_others(ShellArguments& in, std::string_view program, MegatronArguments& a) {
  const auto launchers = in.script().before(program);
  for (const std::string& name : in.script().arguments()) {
    const bool is_asked = in.was_asked(name);
    const bool is_launchers = is_of_torchrun(name) || launchers.contains(name);
    if (name == "tokenizer-type" || (!is_asked && !is_launchers)) {
      auto other = in.other(name);
      // Whether the program is a value here, or stands behind a switch, nobody knows.
      const auto is_program = [&](const std::string& word) { return word.ends_with(program); };
      if (other && std::ranges::any_of(other->words, is_program)) *other = {name, {}, false};
      if (other) a.others.push_back(std::move(*other));
    }
    if (is_asked) continue;
    const bool is_harmless = is_launchers || is_harmless_to_megatron(name);
    (is_harmless ? a.harmless : a.unknown).push_back("--" + name);
  }
}

}  // namespace

bool has_megatron_arguments(std::string_view content) {
  const auto has = [&](std::string_view name) {
    return content.find(name) != std::string_view::npos;
  };
  return (has("--num-layers") || has("--encoder-num-layers")) && has("--hidden-size");
}

Result<MegatronArguments> read_megatron_arguments(std::string_view content,
                                                  const std::string& file) {
  HEADROOM_ASSIGN(ShellWords script, ShellWords::read(content, file));
  ShellArguments in(std::move(script), file);
  MegatronArguments arguments;
  HEADROOM_ASSIGN(arguments.program, program_of(in));
  HEADROOM_TRY(check_modelled(in));
  HEADROOM_TRY(read_model(in, arguments));
  const std::string_view fits = arguments.decoder_layers > 0 ? kOfEncodersAndDecoders : kOfDecoders;
  const std::string program = arguments.program.substr(arguments.program.rfind('/') + 1);
  if (!program.empty() && program != fits) {
    return Error{ErrorCode::bad_input,
                 "starts " + program + " with " + (arguments.decoder_layers > 0 ? "" : "no ") +
                     "--decoder-num-layers",
                 file, "an encoder and a decoder are pretrain_t5.py's, with layers of each"};
  }
  HEADROOM_TRY(read_division(in, arguments));
  arguments.allocator = in.allocator();
  take_others(in, program.empty() ? fits : program, arguments);
  arguments.contradictions = in.script().contradictions();
  return arguments;
}

}  // namespace headroom::engines
