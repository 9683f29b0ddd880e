#include "fit/megatron/question.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/units.h"
#include "fit/megatron/layers.h"
#include "fit/megatron/scenario.h"
#include "fit/prediction.h"
#include "fit/scenario/scenario.h"
#include "fit/search/methods.h"
#include "fit/words.h"

namespace headroom::fit {

namespace {

constexpr int64_t kMostRanks = kMostGpus;

Error undivided(const std::string& what, const std::string& file) {
  return Error{ErrorCode::bad_input, what, file, ""};
}

std::string words(int64_t number) { return std::to_string(number); }

std::string words_of(Dtype dtype) {
  return dtype == Dtype::bf16 ? "bf16" : dtype == Dtype::fp16 ? "fp16" : "fp32";
}

Result<model::MegatronAttention> attention_of(const std::string& word, const std::string& file) {
  using model::MegatronAttention;
  constexpr std::array kWords{std::pair{"auto", MegatronAttention::automatic},
                              std::pair{"flash", MegatronAttention::flash},
                              std::pair{"fused", MegatronAttention::fused},
                              std::pair{"unfused", MegatronAttention::unfused}};
  for (const auto& [name, kind] : kWords) {
    if (word == name) return kind;
  }
  return Error{ErrorCode::bad_input, "--attention-backend " + word + " is not modelled", file,
               "auto, flash, fused or unfused"};
}

Result<void> set_model(const engines::MegatronArguments& from, const std::string& file,
                       model::MegatronModel& m) {
  m.layers = from.layers;
  m.decoder_layers = from.decoder_layers;
  m.hidden = from.hidden;
  m.heads = from.heads;
  m.kv_heads = from.query_groups;
  m.head_size = from.kv_channels;
  m.inner = from.ffn;
  m.positions = from.rotary ? 0 : from.positions;
  m.rotary = from.rotary;
  m.plain_rotary = from.rotary && !from.fused_rotary && from.kv_lora_rank == 0;
  m.interleaved_rotary = m.plain_rotary && from.interleaved_rotary;
  if (from.rotary && from.rotary_percent < 1) {
    m.rotary_size =
        static_cast<int64_t>(static_cast<double>(from.kv_channels) * from.rotary_percent);
    if (m.rotary_size < 2) return undivided("--rotary-percent turns no pair of columns", file);
  }
  m.rms_norm = from.rms_norm;
  m.gated = from.swiglu;
  m.linear_bias = from.linear_bias;
  m.qkv_bias = from.linear_bias || from.qkv_bias;
  m.tied = from.tied;
  m.head_norms = from.qk_layernorm && from.kv_lora_rank == 0;
  m.hidden_dropout = from.hidden_dropout;
  m.attention_dropout = from.attention_dropout;
  m.latent = {from.q_lora_rank, from.kv_lora_rank, from.qk_head_dim, from.qk_pos_emb_head_dim,
              from.v_head_dim,  from.qk_layernorm, from.fused_rotary};
  m.experts = from.experts;
  m.experts_per_token = from.experts_per_token;
  m.expert_inner = from.expert_ffn;
  m.grouped_experts = from.grouped_experts && !from.local;  // SequentialMLP there, in any case
  m.expert_capacity = from.expert_capacity.value_or(0);
  m.fills_capacity = from.fills_capacity;
  m.shared_inner = from.shared_expert_ffn;
  m.shared_gate = from.shared_expert_gate;
  m.local = from.local;
  m.fused_softmax = from.fused_softmax;
  m.scaled_softmax = from.scaled_softmax;
  m.wide_softmax = from.softmax_in_float32 || from.scaled_softmax;  // validate_args
  m.compiled_loss = from.fused_loss;
  m.plain_activation = !from.fused_activation && from.experts == 0;
  m.plain_dropout_add = !from.fused_dropout_add;
  HEADROOM_ASSIGN(m.attention, attention_of(from.attention_backend, file));
  return {};
}

model::MegatronFp8 fp8_of(const engines::MegatronArguments& from) {
  model::MegatronFp8 fp8;
  if (from.fp8_format.empty()) return fp8;
  fp8.recipe = op::fp8_recipe_of(from.fp8_recipe);
  fp8.history = from.fp8_history;
  fp8.router_pads = from.fp8_router_pads;
  return fp8;
}

// A tokenizer decides the vocabulary where no size is given.
Result<int64_t> vocabulary_of(const engines::MegatronArguments& from, const std::string& file) {
  if (!from.vocabulary) {
    return Error{ErrorCode::bad_input, "the vocabulary is the tokenizer's, which is not read", file,
                 "add --vocab N: 50257 is GPT-2's, 32000 Llama 2's, 128256 Llama 3's"};
  }
  const auto multiple = checked_multiply(from.vocabulary_multiple, from.tensor_ranks);
  if (!multiple || *multiple > kMostRanks * kMostRanks) {
    return undivided("the vocabulary is padded beyond any size", file);
  }
  return (*from.vocabulary + *multiple - 1) / *multiple * *multiple;
}

struct Spread {
  int64_t world = 1;
  int64_t data = 1;
};

// GPUs that hold the model once. The Error is about more than there can be.
Result<int64_t> product_of(std::initializer_list<int64_t> ranks, const std::string& file) {
  int64_t product = 1;
  for (const int64_t count : ranks) {
    if (count < 1 || count > kMostRanks || product > kMostRanks / count) {
      return undivided("more than " + words(kMostRanks) + " GPUs hold the model once", file);
    }
    product *= count;
  }
  return product;
}

// How many GPUs the file gives torchrun, where it says so.
std::optional<int64_t> world_of(const engines::MegatronArguments& from) {
  if (!from.ranks_per_node) return std::nullopt;
  const auto world = checked_multiply(*from.ranks_per_node, from.nodes.value_or(1));
  return world && *world <= kMostRanks ? world : std::nullopt;
}

Result<Spread> spread_of(const engines::MegatronArguments& from, const std::string& file,
                         std::optional<int64_t> gpus) {
  HEADROOM_ASSIGN(const int64_t once,
                  product_of({from.tensor_ranks, from.stages, from.context_ranks}, file));
  Spread spread{once, 1};
  if (gpus) {
    spread.world = *gpus;
  } else if (const auto world = world_of(from)) {
    spread.world = std::max(once, *world);
  }
  if (spread.world % once != 0) {
    return undivided("tensor, pipeline and context parallelism take " + words(once) +
                         " GPUs, which " + words(spread.world) + " is no multiple of",
                     file);
  }
  spread.data = spread.world / once;
  if (from.optimizer_instances < 1 ||
      spread.data * from.context_ranks % from.optimizer_instances != 0) {
    return undivided("instances of the optimizer do not divide the data parallel ranks", file);
  }
  return spread;
}

// Ranks that hold the same experts.
Result<int64_t> expert_data_ranks(const engines::MegatronArguments& from, const Spread& spread,
                                  const std::string& file) {
  if (from.experts == 0) return 1;
  HEADROOM_ASSIGN(const int64_t once,
                  product_of({from.expert_ranks, from.expert_tensor_ranks, from.stages}, file));
  if (spread.world % once == 0) return spread.world / once;
  return undivided("expert, expert tensor and pipeline parallelism take " + words(once) +
                       " GPUs, which " + words(spread.world) + " is no multiple of",
                   file);
}

Result<void> set_batch(const engines::MegatronArguments& from, const std::string& file,
                       int64_t data, FitQuestion& question) {
  question.batch = from.micro_batch;
  question.seq = from.sequence;
  if (question.given.contains("grad-accum")) return {};
  const auto together = checked_multiply(question.batch, data);
  if (!together || *together < 1) return undivided("the global batch is beyond any count", file);
  const int64_t global = from.global_batch.value_or(*together);
  if (global % *together != 0) {
    return undivided("a global batch of " + words(global) + " cannot be divided into " +
                         words(data) + " times " + words(question.batch),
                     file);
  }
  question.grad_accum = global / *together;
  return {};
}

}  // namespace

engines::MegatronArguments as_given(const FitQuestion& question, engines::MegatronArguments from) {
  const auto is_given = [&](const char* flag) { return question.given.contains(flag); };
  if (is_given("batch")) from.micro_batch = question.batch;
  if (is_given("seq")) from.sequence = question.seq;
  if (question.vocab) {
    from.vocabulary = question.vocab;
    if (from.extra_tokens >= *question.vocab) from.extra_tokens = 0;
  }
  if (is_given("dtype")) from.type = words_of(question.dtype);
  if (is_given("checkpointing")) {
    from.recomputes_layers = question.checkpointing.kind == CheckpointingKind::full;
    from.recomputes_attention = question.checkpointing.kind == CheckpointingKind::selective;
  }
  if (is_given("allocator")) from.allocator = question.allocator;
  return from;
}

Result<FitQuestion> megatron_question(FitQuestion question,
                                      const engines::MegatronArguments& written,
                                      const std::string& file, std::optional<int64_t> gpus) {
  const engines::MegatronArguments from = as_given(question, written);
  MegatronSetting setting;
  HEADROOM_TRY(set_model(from, file, setting.stage.model));
  if (question.given.contains("expert-imbalance") && setting.stage.model.experts == 0) {
    return Error{ErrorCode::usage, "of a model without experts", "--expert-imbalance",
                 "leave it out"};
  }
  HEADROOM_ASSIGN(setting.stage.model.padded_vocabulary, vocabulary_of(from, file));
  HEADROOM_ASSIGN(const Spread spread, spread_of(from, file, gpus));
  HEADROOM_ASSIGN(setting.layers_by_stage, layers_by_stage(from, file));
  model::MegatronRank& rank = setting.stage.rank;
  rank.tensor = from.tensor_ranks;
  rank.pipeline = from.stages;
  rank.context = from.context_ranks;
  setting.look_at(0);
  setting.stage.decoder_sequence = from.decoder_sequence;
  rank.expert = from.expert_ranks;
  rank.expert_tensor = from.expert_tensor_ranks;
  HEADROOM_ASSIGN(const int64_t expert_data, expert_data_ranks(from, spread, file));
  rank.sequence_parallel = from.sequence_parallel;
  rank.fused_accumulation = from.fused_accumulation;
  rank.mask_from_loader = from.mask_from_loader;
  step::MegatronOptions& data = setting.data;
  data.data_ranks = spread.data * from.context_ranks;
  data.expert_ranks = expert_data;
  data.distributed_optimizer = from.distributed_optimizer;
  data.instances = from.optimizer_instances;
  data.overlap_grad_reduce = from.overlap_grad_reduce;
  data.overlap_param_gather = from.overlap_param_gather;
  // validate_args: float32 beside bf16 unless it is told not to; beside fp16 where it is told to.
  if (from.type == "bf16" && from.gradients_in_half) data.gradients = op::DType::bf16;
  if (from.type == "fp16" && !from.gradients_in_float32) data.gradients = op::DType::f16;
  data.shares_embedding = from.tied && from.stages > 1;
  setting.stage.model.deterministic = from.deterministic;
  setting.stage.model.fp8 = fp8_of(from);
  HEADROOM_TRY(set_batch(from, file, spread.data, question));
  if (setting.stage.rank.chunks() > 1 && question.grad_accum % from.stages != 0) {
    return undivided("the " + words(question.grad_accum) + " micro-batches of a step are no " +
                         "multiple of the " + words(from.stages) +
                         " stages, which interleaved pipelines need",
                     file);
  }
  if (!question.given.contains("dtype")) HEADROOM_TRY(question.set("dtype", from.type));
  question.checkpointing.kind = from.recomputes_layers      ? CheckpointingKind::full
                                : from.recomputes_attention ? CheckpointingKind::selective
                                                            : CheckpointingKind::none;
  question.allocator = from.allocator;
  question.ranks = spread.world;
  question.model = file;
  question.megatron = std::move(setting);
  return question;
}

std::vector<Setting> megatron_settings(const FitQuestion& question) {
  const MegatronSetting& setting = *question.megatron;
  const model::MegatronModel& m = setting.stage.model;
  const model::MegatronRank& r = setting.stage.rank;
  std::vector<Setting> settings;
  const auto add = [&](const char* name, std::string value) {
    const bool is_given = question.given.contains(name);
    settings.push_back(
        {name, std::move(value), is_given ? SettingOrigin::given : SettingOrigin::config});
  };
  const auto flag = [&](const char* name, bool value) { add(name, value ? "true" : "false"); };
  add("engine", "megatron-lm");
  add("num-layers", words(m.layers));
  add("hidden-size", words(m.hidden));
  add("padded-vocab-size", words(m.padded_vocabulary));
  add("batch", words(question.batch));
  add("seq", words(question.seq));
  if (m.decoder_layers > 0) {
    add("decoder-num-layers", words(m.decoder_layers));
    add("decoder-seq-length", words(setting.stage.decoder_sequence));
  }
  add("grad-accum", words(question.grad_accum));
  add("tensor-model-parallel-size", words(r.tensor));
  add("pipeline-model-parallel-size", words(r.pipeline));
  add("context-parallel-size", words(r.context));
  add("data-parallel-size", words(setting.data.data_ranks / r.context));
  if (m.experts > 0) {
    add("num-experts", words(m.experts));
    add("expert-model-parallel-size", words(r.expert));
    add("expert-tensor-parallel-size", words(r.expert_tensor));
    if (m.expert_capacity > 0) add("moe-expert-capacity-factor", number_words(m.expert_capacity));
    if (m.fills_capacity) flag("moe-pad-expert-input-to-capacity", true);
  }
  if (setting.routes_among_ranks()) {
    settings.push_back({"expert-imbalance", imbalance_words(question.expert_imbalance),
                        question.given.contains("expert-imbalance") ? SettingOrigin::given
                                                                    : SettingOrigin::standard});
  }
  flag("sequence-parallel", r.sequence_parallel);
  flag("use-distributed-optimizer", setting.data.distributed_optimizer);
  add("checkpointing", question.checkpointing.kind == CheckpointingKind::full        ? "full"
                       : question.checkpointing.kind == CheckpointingKind::selective ? "selective"
                                                                                     : "none");
  add("dtype", words_of(question.dtype));
  if (m.fp8.is_on()) {
    add("fp8-recipe", std::string(op::name_of(m.fp8.recipe)));
  }
  add("gradients", std::string(op::dtype_name(setting.data.gradients)));
  add("attention", m.attention == model::MegatronAttention::automatic ? "auto"
                   : m.attention == model::MegatronAttention::flash   ? "flash"
                   : m.attention == model::MegatronAttention::fused   ? "fused"
                                                                      : "unfused");
  settings.push_back(
      {"torch", question.torch,
       question.given.contains("torch") ? SettingOrigin::given : SettingOrigin::standard});
  return settings;
}

namespace {

int64_t communicator_count(const FitQuestion& question) {
  const Communicators communicators = communicators_of(question);
  return communicators.ranks > 1 ? 1 + communicators.others : 0;
}

}  // namespace

std::vector<std::string> megatron_notes(const FitQuestion& question) {
  std::vector<std::string> notes;
  if (question.megatron->routes_among_ranks()) {
    const double share = question.expert_imbalance.expected;
    notes.push_back(
        "where a router divides tokens among ranks, a rank's experts are taken to get " +
        (share == 1 ? "an even share" : number_words(share) + " of an even share") +
        "; what a real router gives a rank varies from step to step, and activations "
        "with it (--expert-imbalance)");
  }
  if (question.megatron->stage.model.fills_capacity) {
    notes.emplace_back(
        "each expert gets as many tokens as it has room for, whatever the router does "
        "(--moe-pad-expert-input-to-capacity): imbalance plays no part");
  }
  if (question.megatron->stage.model.fp8.is_on()) {
    notes.emplace_back(
        "what Transformer Engine keeps in FP8 is as its source has it; of the runs in FP8 whose "
        "memory was at hand none was without other things that are not modelled "
        "(docs/measurements/2026-11-27-megatron-fp8)");
  }
  notes.emplace_back(
      "what the device shows is as measured on one GPU, and a process' communicators more (" +
      std::to_string(communicator_count(question)) +
      " here, 0.5 to 0.7 GB each by others' figures); Megatron-LM's own counters were at hand, "
      "nvidia-smi's were not");
  return notes;
}

std::string megatron_time_note(const StepTimer& timer, const Scenario& scenario) {
  const timing::InStep* residual = timer.residual_of(scenario.question);
  if (residual == nullptr) return "what a step takes beyond its kernels is not known";
  if (!residual->whole_steps) return "the step time is calibrated by " + residual->source;
  const timing::WholeSteps& steps = *residual->whole_steps;
  std::string note = "the step time and its interval are calibrated on " + words(steps.learned) +
                     " published steps of Megatron-LM; held out were " + words(steps.aside) +
                     " of other models, of which " + words(steps.inside) +
                     " are inside their interval (docs/measurements/2026-11-29-megatron-times)";
  if (residual->is_learned_on(scenario.device->name)) return note;
  return note + "; of " + scenario.device->name +
         " too few were at hand, and there the interval is as wide as the worst error on such a "
         "device";
}

Result<int64_t> megatron_parameters(const MegatronSetting& setting) {
  model::MegatronStage whole = setting.stage;
  whole.rank = {};
  whole.rank.chunk_layers = {whole.model.layers};
  whole.micro_batch = whole.sequence = whole.decoder_sequence = 1;  // they need none
  whole.model.fp8 = {};                                             // which wants more of them
  HEADROOM_ASSIGN(const model::Graph graph, model::build_megatron_stage(whole));
  return model::parameter_count(graph, false);
}

}  // namespace headroom::fit
