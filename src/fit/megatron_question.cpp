#include "fit/megatron_question.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/parallel.h"
#include "fit/prediction.h"
#include "fit/scenario.h"

namespace headroom::fit {

namespace {

constexpr int64_t kMostStages = 1024;

Error undivided(const std::string& what, const std::string& file) {
  return Error{ErrorCode::bad_input, what, file, ""};
}

std::string words(int64_t number) { return std::to_string(number); }

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
  m.hidden = from.hidden;
  m.heads = from.heads;
  m.kv_heads = from.query_groups;
  m.head_size = from.kv_channels;
  m.inner = from.ffn;
  m.positions = from.rotary ? 0 : from.positions;
  m.rotary = from.rotary;
  m.rms_norm = from.rms_norm;
  m.gated = from.swiglu;
  m.linear_bias = from.linear_bias;
  m.qkv_bias = from.linear_bias || from.qkv_bias;
  m.tied = from.tied;
  m.hidden_dropout = from.hidden_dropout;
  m.attention_dropout = from.attention_dropout;
  HEADROOM_ASSIGN(m.attention, attention_of(from.attention_backend, file));
  return {};
}

// A tokenizer decides the vocabulary where no size is given.
Result<int64_t> vocabulary_of(const engines::MegatronArguments& from, const FitQuestion& question,
                              const std::string& file) {
  const auto given = question.vocab ? question.vocab : from.vocabulary;
  if (!given) {
    return Error{ErrorCode::bad_input, "the vocabulary is the tokenizer's, which is not read", file,
                 "--vocab N (headroom's, or Megatron-LM's --vocab-size)"};
  }
  const int64_t multiple = from.vocabulary_multiple * from.tensor_ranks;
  return (*given + multiple - 1) / multiple * multiple;
}

struct Spread {
  int64_t world = 1;
  int64_t data = 1;
};

Result<Spread> spread_of(const engines::MegatronArguments& from, const std::string& file,
                         std::optional<int64_t> gpus) {
  const int64_t once = from.tensor_ranks * from.stages * from.context_ranks;
  Spread spread{once, 1};
  if (gpus) {
    spread.world = *gpus;
  } else if (from.ranks_per_node) {
    spread.world = std::max(once, *from.ranks_per_node * from.nodes.value_or(1));
  }
  if (spread.world % once != 0) {
    return undivided("tensor, pipeline and context parallelism take " + words(once) +
                         " GPUs, which " + words(spread.world) + " is no multiple of",
                     file);
  }
  spread.data = spread.world / once;
  return spread;
}

Result<void> set_batch(const engines::MegatronArguments& from, const std::string& file,
                       int64_t data, FitQuestion& question) {
  if (!question.given.contains("batch")) question.batch = from.micro_batch;
  if (!question.given.contains("seq")) question.seq = from.sequence;
  if (question.given.contains("grad-accum")) return {};
  const int64_t together = question.batch * data;
  const int64_t global = from.global_batch.value_or(together);
  if (global % together != 0) {
    return undivided("a global batch of " + words(global) + " cannot be divided into " +
                         words(data) + " times " + words(question.batch),
                     file);
  }
  question.grad_accum = global / together;
  return {};
}

}  // namespace

Result<FitQuestion> megatron_question(FitQuestion question, const engines::MegatronArguments& from,
                                      const std::string& file, std::optional<int64_t> gpus) {
  MegatronSetting setting;
  HEADROOM_TRY(set_model(from, file, setting.stage.model));
  HEADROOM_ASSIGN(setting.stage.model.padded_vocabulary, vocabulary_of(from, question, file));
  HEADROOM_ASSIGN(const Spread spread, spread_of(from, file, gpus));
  if (from.stages > kMostStages || from.layers % from.stages != 0) {
    return undivided(
        words(from.layers) + " layers cannot be divided among " + words(from.stages) + " stages",
        file);
  }
  model::MegatronRank& rank = setting.stage.rank;
  rank.tensor = from.tensor_ranks;
  rank.pipeline = from.stages;
  rank.context = from.context_ranks;
  rank.stage_layers = from.layers / from.stages;
  rank.sequence_parallel = from.sequence_parallel;
  rank.fused_accumulation = from.fused_accumulation;
  rank.mask_from_loader = from.mask_from_loader;
  step::MegatronOptions& data = setting.data;
  data.data_ranks = spread.data * from.context_ranks;
  data.distributed_optimizer = from.distributed_optimizer;
  data.instances = from.optimizer_instances;
  data.overlap_grad_reduce = from.overlap_grad_reduce;
  data.gradients = from.gradients_in_half ? op::DType::bf16 : op::DType::f32;
  data.shares_embedding = from.tied && from.stages > 1;
  setting.deterministic = from.deterministic;
  HEADROOM_TRY(set_batch(from, file, spread.data, question));
  if (!question.given.contains("dtype")) HEADROOM_TRY(question.set("dtype", from.type));
  if (from.recomputes_layers && !question.given.contains("checkpointing")) {
    HEADROOM_TRY(question.set("checkpointing", "full"));
  }
  question.ranks = spread.world;
  question.model = file;
  question.megatron = std::move(setting);
  return question;
}

Result<std::vector<StageFigures>> stages_of(const FitQuestion& question) {
  const int64_t count = question.megatron->stage.rank.pipeline;
  std::vector<Result<StageFigures>> made(static_cast<size_t>(count), StageFigures());
  for_each_in_parallel(made.size(), 0, [&](size_t i) {
    FitQuestion asked = question;
    asked.megatron->stage.rank.stage = static_cast<int64_t>(i);
    made[i] = [&]() -> Result<StageFigures> {
      HEADROOM_ASSIGN(const Scenario scenario, resolve(asked));
      HEADROOM_ASSIGN(const Prediction prediction, predict(scenario));
      StageFigures figures;
      figures.stage = static_cast<int64_t>(i);
      figures.layers = asked.megatron->stage.rank.stage_layers;
      figures.in_flight = std::min(count - figures.stage, question.grad_accum);
      figures.peak_allocated = prediction.peak_allocated;
      figures.device_used = prediction.device_used;
      figures.verdict = prediction.verdict;
      return figures;
    }();
  });
  std::vector<StageFigures> stages;
  for (Result<StageFigures>& stage : made) {
    if (!stage) return stage.error();
    stages.push_back(std::move(*stage));
  }
  return stages;
}

int64_t fullest_stage(const std::vector<StageFigures>& stages) {
  return std::ranges::max_element(stages, {},
                                  [](const StageFigures& stage) {
                                    return std::pair(stage.device_used.expected.count,
                                                     stage.peak_allocated.count);
                                  })
      ->stage;
}

std::vector<Setting> megatron_settings(const FitQuestion& question) {
  const MegatronSetting& setting = *question.megatron;
  const model::MegatronModel& m = setting.stage.model;
  const model::MegatronRank& r = setting.stage.rank;
  std::vector<Setting> settings;
  const auto add = [&](const char* name, std::string value) {
    settings.push_back({name, std::move(value), SettingOrigin::config});
  };
  const auto flag = [&](const char* name, bool value) { add(name, value ? "true" : "false"); };
  add("engine", "megatron-lm");
  add("num-layers", words(m.layers));
  add("hidden-size", words(m.hidden));
  add("padded-vocab-size", words(m.padded_vocabulary));
  add("batch", words(question.batch));
  add("seq", words(question.seq));
  add("grad-accum", words(question.grad_accum));
  add("tensor-model-parallel-size", words(r.tensor));
  add("pipeline-model-parallel-size", words(r.pipeline));
  add("context-parallel-size", words(r.context));
  add("data-parallel-size", words(setting.data.data_ranks / r.context));
  flag("sequence-parallel", r.sequence_parallel);
  flag("use-distributed-optimizer", setting.data.distributed_optimizer);
  flag("recompute-layers", question.checkpointing.kind == CheckpointingKind::full);
  add("torch", question.torch);
  return settings;
}

Result<int64_t> megatron_parameters(const MegatronSetting& setting) {
  model::MegatronStage whole = setting.stage;
  whole.rank = {};
  whole.rank.stage_layers = whole.model.layers;
  whole.micro_batch = whole.sequence = 1;  // parameters do not depend on them
  HEADROOM_ASSIGN(const model::Graph graph, model::build_megatron_stage(whole));
  return model::parameter_count(graph, false);
}

}  // namespace headroom::fit
