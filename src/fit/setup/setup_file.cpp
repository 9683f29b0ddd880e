#include "fit/setup/setup_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "base/file.h"
#include "engines/accelerate.h"
#include "engines/axolotl.h"
#include "engines/config_script.h"
#include "engines/deepspeed.h"
#include "engines/llama_factory.h"
#include "engines/torchtitan.h"
#include "engines/trainer.h"
#include "fit/compile_words.h"
#include "fit/scenario/zero.h"
#include "fit/setup/torchtitan_file.h"
#include "fit/stage3_flags.h"
#include "fit/words.h"
#include "text/block_yaml.h"
#include "text/gzip.h"

namespace headroom::fit {

namespace {

using engines::Half;
using engines::Sharing;
using engines::TrainingSetup;
using engines::Tuning;

struct SharingWord {
  Sharing sharing;
  Division division;
  std::string_view word;
};
constexpr std::array kSharings{SharingWord{Sharing::none, Division::none, ""},
                               SharingWord{Sharing::ddp, Division::ddp, "ddp"},
                               SharingWord{Sharing::fsdp1, Division::fsdp1, "fsdp1"},
                               SharingWord{Sharing::fsdp2, Division::fsdp2, "fsdp2"},
                               SharingWord{Sharing::zero1, Division::zero1, "zero1"},
                               SharingWord{Sharing::zero2, Division::zero2, "zero2"},
                               SharingWord{Sharing::zero3, Division::zero3, "zero3"}};

std::string_view word_of(Half half) {
  return half == Half::none ? "none" : half == Half::bf16 ? "bf16" : "fp16";
}

bool is_json_text(std::string_view content) {
  const size_t first = content.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && content[first] == '{';
}

// JSON, YAML, or a script of the Trainer's.
Result<text::Json> parse_setup(std::string_view content, const std::string& file) {
  if (content.starts_with("\xEF\xBB\xBF")) content.remove_prefix(3);  // a byte order mark
  if (is_json_text(content)) return text::parse_json(content, file);
  if (engines::is_trainer_script(content)) return engines::trainer_arguments_of(content, file);
  return text::parse_block_yaml(content, file);
}

// Beside the file that names it; or from where programs are started, as LLaMA-Factory and axolotl
// have their paths.
std::filesystem::path path_of_named(const std::string& name, const std::string& file) {
  const std::filesystem::path beside = std::filesystem::path(file).parent_path() / name;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(beside, ignored)) return beside;
  const std::filesystem::path here = name;
  return std::filesystem::is_regular_file(here, ignored) ? here : beside;
}

Result<text::Json> read_named(const std::string& name, const std::string& file,
                              const BesideSetup& beside) {
  const std::filesystem::path path = path_of_named(name, file);
  std::error_code ignored;
  if (!beside.read && !std::filesystem::is_regular_file(path, ignored)) {
    return Error{ErrorCode::bad_input, "names " + name.substr(0, 200) + ", which is no file here",
                 file, "paths are taken from where the setting lies, or from here"};
  }
  HEADROOM_ASSIGN(const std::string content,
                  beside.read ? beside.read(path.string()) : read_file(path.string(), kMostSetup));
  return parse_setup(content, path.string());
}

Result<TrainingSetup> read_setup(std::string_view content, const std::string& file,
                                 const BesideSetup& beside) {
  if (engines::is_torchtitan_script(content)) {
    return engines::read_torchtitan(content, file, beside.gpus);
  }
  const auto named = [&](const std::string& name) { return read_named(name, file, beside); };
  const bool is_started = !is_json_text(content) && engines::is_config_script(content);
  HEADROOM_ASSIGN(const text::Json root,
                  is_started ? engines::arguments_of_config_script(content, file, named)
                             : parse_setup(content, file));
  const text::JsonView view(root, file);
  if (view.has("zero_optimization")) return engines::read_deepspeed(view);
  if (engines::has_axolotl_arguments(root)) return engines::read_axolotl(view, named);
  if (engines::has_llama_factory_arguments(root)) return engines::read_llama_factory(view, named);
  if (engines::has_trainer_arguments(root)) return engines::read_trainer(view, named);
  if (view.has("distributed_type")) return engines::read_accelerate(view);
  return Error{ErrorCode::bad_input, "says no setting that is known", file,
               "accelerate's has distributed_type, DeepSpeed's zero_optimization, a Trainer's "
               "arguments output_dir or per_device_train_batch_size, LLaMA-Factory's "
               "finetuning_type, axolotl's base_model, torchtitan's command torchtitan.train with "
               "--module and --config"};
}

// The Trainer divides a batch among what it finds, as DistributedDataParallel does.
void take_gpus(const BesideSetup& beside, TrainingSetup& setup) {
  const bool is_divided = setup.context_ranks * setup.tensor_ranks * setup.stages > 1;
  if (beside.gpus && setup.ranks < 2 && !is_divided) {
    setup.ranks = *beside.gpus;
    setup.is_counted = true;
  }
  if (setup.is_trainer && !setup.sharing && setup.ranks > 1) setup.sharing = Sharing::ddp;
}

std::string_view word_of(Tuning tuning) {
  switch (tuning) {
    case Tuning::full:
      return "full";
    case Tuning::lora:
      return "lora";
    case Tuning::dora:
      return "dora";
    case Tuning::qlora:
      return "qlora";
    case Tuning::lora_8bit:
      return "lora-8bit";
  }
  return "full";
}

std::string_view schedule_word(engines::StageSchedule schedule) {
  using engines::StageSchedule;
  switch (schedule) {
    case StageSchedule::gpipe:
      return "gpipe";
    case StageSchedule::zero_bubble:
      return "zero-bubble";
    case StageSchedule::zero_bubble_v:
      return "zbv";
    case StageSchedule::dual_pipe_v:
      return "dualpipev";
    case StageSchedule::one_forward_one_backward:
      break;
  }
  return "1f1b";
}

// "lora,fsdp2:8,replicate:2"
Result<std::string> method_words(const TrainingSetup& setup, const std::string& file,
                                 std::string_view method) {
  std::string words(method.empty() && setup.tuning ? word_of(*setup.tuning) : method);
  for (const SharingWord& entry : kSharings) {
    if (entry.sharing != setup.sharing || entry.word.empty()) continue;
    if (method.find(':') != std::string_view::npos) {
      return Error{ErrorCode::usage,
                   std::string(method.substr(0, 40)) + " beside a file that divides the step",
                   "--method",
                   "how to train alone (" + std::string(method.substr(0, method.find(','))) +
                       "), or leave --from out"};
    }
    const bool is_within = setup.tensor_ranks * setup.stages > 1;
    const bool may_be_alone =
        ((engines::is_zero(setup.sharing) || is_within) && setup.is_counted) ||
        setup.context_ranks > 1;
    if (setup.ranks < 2 && !may_be_alone) {
      return Error{ErrorCode::bad_input, "says no number of GPUs", file,
                   "--gpus N beside it does; or " + setup.counted_by};
    }
    words +=
        (words.empty() ? "" : ",") + std::string(entry.word) + ":" + std::to_string(setup.ranks);
    if (setup.replicas > 1) words += ",replicate:" + std::to_string(setup.replicas);
    const auto add = [&](const char* word, int64_t count) {
      if (count > 1) words += word + std::to_string(count);
    };
    add(",cp:", setup.context_ranks);
    add(",tp:", setup.tensor_ranks);
    add(",pp:", setup.stages);
    add(",vpp:", setup.stage_chunks);
  }
  return words;
}

TrainingSetup setup_of(const FitQuestion& q, std::vector<std::string>& by_hand) {
  TrainingSetup setup;
  for (const SharingWord& entry : kSharings) {
    if (entry.division == q.division) setup.sharing = entry.sharing;
  }
  setup.ranks = q.ranks;
  setup.replicas = q.replicas;
  setup.nodes = q.nodes;
  if (q.compile.model) setup.compiles_model = true;
  if (q.compile.layers) setup.compiles_layers = true;
  const auto half_of = [](bool bf16, bool fp16) {
    return bf16 ? Half::bf16 : fp16 ? Half::fp16 : Half::none;
  };
  if (is_zero(q.division)) {
    setup.weights = half_of(q.dtype == Dtype::bf16, q.dtype == Dtype::fp16);
    setup.reduce_bucket_size = q.reduce_bucket_size;
    setup.overlap_comm = overlaps_comm(q);
    setup.offloads_optimizer = offloads_optimizer(q);
    setup.offloads_parameters = offloads_parameters(q);
    if (q.division == Division::zero3) {
      std::ranges::copy(q.stage3, setup.stage3.begin());
    }
  } else {
    setup.mixed_precision = half_of(q.mixed_precision == MixedPrecision::bf16,
                                    q.mixed_precision == MixedPrecision::fp16);
    if (is_fsdp(q.division)) setup.offloads_parameters = offloads_parameters(q);
    setup.reshards = q.reshards != step::Reshards::none;
  }
  setup.batch = q.batch;
  setup.grad_accum = q.grad_accum;
  setup.clip = q.clip;
  const bool is_full = q.checkpointing.kind == CheckpointingKind::full;
  if (is_fsdp(q.division) && is_full) {
    setup.checkpoints = true;
  } else if (q.checkpointing.kind != CheckpointingKind::none) {
    by_hand.emplace_back("checkpointing");
  }
  return setup;
}

// What only a training script says, where it is not as frameworks have it.
void add_by_hand(const FitQuestion& q, std::string_view kind, std::vector<std::string>& by_hand) {
  constexpr std::array kOfTheScript{"task",         "labels",
                                    "batch",        "seq",
                                    "dtype",        "optimizer",
                                    "compile",      "float8",
                                    "attention",    "loss",
                                    "kernels",      "optimizer-in-backward",
                                    "freeze",       "lora-rank",
                                    "lora-targets", "lora-dtype",
                                    "lora-dropout", "kbit-preparation",
                                    "gptq-group",   "checkpointing-kind"};
  const bool is_accelerate = kind == "accelerate";
  if (q.method != Method::full) by_hand.emplace_back("method");
  const bool says_offload = is_zero(q.division) || is_fsdp(q.division);
  if (q.given.contains("offload") && !says_offload) by_hand.emplace_back("offload");
  for (const char* flag : kOfTheScript) {
    if (flag == std::string_view("batch") && !is_accelerate) continue;
    // Of accelerate's file, but for the loss.
    const bool is_said = flag == std::string_view("compile") && is_accelerate && !q.compile.loss;
    if (is_said) continue;
    if (q.given.contains(flag)) by_hand.emplace_back(flag);
  }
  if (!is_accelerate) return;
  if (q.grad_accum > 1 && !is_zero(q.division)) by_hand.emplace_back("grad-accum");
  if (q.clip && !is_zero(q.division)) by_hand.emplace_back("clip");
  // accelerate's own way holds whole gradients.
  if (is_fsdp(q.division) && q.grad_accum > 1 && syncs_each_batch(q)) {
    by_hand.emplace_back("sync-each-batch");
  }
  for (const char* flag : {"bucket-cap-mb", "gradient-as-bucket-view", "find-unused-parameters",
                           "reduce-bucket-size", "overlap-comm"}) {
    if (q.given.contains(flag)) by_hand.emplace_back(flag);
  }
  for (const Stage3Flag& flag : kStage3Flags) {
    if (q.given.contains(flag.name())) by_hand.emplace_back(flag.name());
  }
}

struct TransformersName {
  std::string_view name;
  std::string_view word;
};
constexpr std::array kOptimizers{TransformersName{"adamw_torch", "adamw"},
                                 TransformersName{"adamw_torch_fused", "adamw-fused"},
                                 TransformersName{"adafactor", "hf-adafactor"},
                                 TransformersName{"sgd", "sgd"},
                                 TransformersName{"lion_32bit", "lion"},
                                 TransformersName{"lion_8bit", "lion-8bit"},
                                 TransformersName{"paged_lion_32bit", "paged-lion"},
                                 TransformersName{"paged_lion_8bit", "paged-lion-8bit"},
                                 TransformersName{"adamw_bnb_8bit", "adamw-8bit"},
                                 TransformersName{"adamw_8bit", "adamw-8bit"},
                                 TransformersName{"paged_adamw_32bit", "paged-adamw"},
                                 TransformersName{"paged_adamw_8bit", "paged-adamw-8bit"},
                                 TransformersName{"ademamix", "ademamix"},
                                 TransformersName{"ademamix_8bit", "ademamix-8bit"},
                                 TransformersName{"paged_ademamix_32bit", "paged-ademamix"},
                                 TransformersName{"paged_ademamix_8bit", "paged-ademamix-8bit"},
                                 TransformersName{"rmsprop_bnb", "rmsprop-bnb"},
                                 TransformersName{"rmsprop_bnb_32bit", "rmsprop-bnb"},
                                 TransformersName{"rmsprop_bnb_8bit", "rmsprop-bnb-8bit"}};
constexpr std::array kAttentions{TransformersName{"eager", "eager"},
                                 TransformersName{"sdpa", "sdpa"},
                                 TransformersName{"flash_attention_2", "flash2"}};

// By the name of transformers; an Error with those that are known.
template <size_t N>
Result<std::string> word_for(const std::array<TransformersName, N>& known, const std::string& name,
                             const std::string& file, std::string_view key) {
  std::string names;
  for (const TransformersName& entry : known) {
    if (entry.name == name) return std::string(entry.word);
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  return Error{ErrorCode::bad_input, "'" + name.substr(0, 40) + "' is not modelled",
               file + "#/" + std::string(key), names};
}

std::string checkpointing_words(const TrainingSetup& setup) {
  if (!*setup.checkpoints) return "none";
  if (setup.checkpoints_half_the_products) return "selective-every-2";
  const int64_t every = setup.checkpoints_every.value_or(1);
  return every > 1 ? "every-" + std::to_string(every) : "full";
}

std::string offload_words(const TrainingSetup& setup) {
  const bool has_parameters = setup.offloads_parameters.value_or(false);
  if (!setup.offloads_optimizer.value_or(false)) return has_parameters ? "parameters" : "none";
  return has_parameters ? "optimizer,parameters" : "optimizer";
}

std::string joined(const std::vector<std::string>& names) {
  std::string words;
  for (const std::string& name : names) words += (words.empty() ? "" : ",") + name;
  return words;
}

std::string_view word_of(engines::Prepared prepared) {
  return prepared == engines::Prepared::none    ? "none"
         : prepared == engines::Prepared::norms ? "norms"
                                                : "others";
}

void add_adapter_flags(const TrainingSetup& setup, std::vector<FlagWords>& flags) {
  if (setup.lora_rank) flags.emplace_back("lora-rank", std::to_string(*setup.lora_rank));
  if (!setup.lora_targets.empty()) {
    flags.emplace_back("lora-targets", joined(setup.lora_targets));
  }
  if (setup.lora_dropout.value_or(0) > 0) {
    flags.emplace_back("lora-dropout", number_words(*setup.lora_dropout));
  }
  if (setup.adapters) {
    flags.emplace_back("lora-dtype",
                       *setup.adapters == Half::none ? "fp32" : word_of(*setup.adapters));
  }
  const bool is_shared_out = engines::is_zero(setup.sharing) || setup.sharing == Sharing::fsdp1 ||
                             setup.sharing == Sharing::fsdp2;
  const bool is_quantized = setup.tuning == Tuning::qlora || setup.tuning == Tuning::lora_8bit;
  if (!is_quantized || is_shared_out) return;  // what shares it out undoes that
  flags.emplace_back("kbit-preparation",
                     word_of(setup.prepared.value_or(engines::Prepared::norms)));
}

std::string_view word_of(engines::SetupLoss loss) {
  return loss == engines::SetupLoss::own     ? "hf"
         : loss == engines::SetupLoss::fused ? "fused"
                                             : "fused-linear";
}

// What a Trainer's arguments say beside what launchers and engines do.
Result<void> add_trainer_flags(const TrainingSetup& setup, const std::string& file,
                               std::vector<FlagWords>& flags) {
  if (setup.optimizer) {
    HEADROOM_ASSIGN(std::string word,
                    word_for(kOptimizers, *setup.optimizer, file, setup.optimizer_key));
    if (setup.optimizer_loop) word += "-" + *setup.optimizer_loop;
    flags.emplace_back("optimizer", std::move(word));
  }
  if (setup.attention) {
    HEADROOM_ASSIGN(std::string word,
                    word_for(kAttentions, *setup.attention, file, setup.attention_key));
    flags.emplace_back("attention", std::move(word));
  }
  if (setup.sequence) flags.emplace_back("seq", std::to_string(*setup.sequence));
  add_adapter_flags(setup, flags);
  if (!setup.allocator.empty()) flags.emplace_back("allocator", setup.allocator);
  if (setup.loss_chunks) {
    const bool is_whole = *setup.loss_chunks == 1;
    flags.emplace_back("loss", is_whole ? "hf" : "chunked-head");
    if (!is_whole) flags.emplace_back("loss-chunks", std::to_string(*setup.loss_chunks));
  }
  if (setup.reshards == false) flags.emplace_back("reshard-after-forward", "false");
  if (setup.tensor_ranks > 1) flags.emplace_back("sequence-parallel", "true");
  if (setup.stages > 1) {
    flags.emplace_back("pipeline-schedule", std::string(schedule_word(setup.schedule)));
  }
  if (setup.shards_ends) flags.emplace_back("shard-ends", *setup.shards_ends ? "true" : "false");
  if (setup.compiles_layers || setup.compiles_loss || setup.compiles_model) {
    flags.emplace_back("compile", compile_word({.layers = setup.compiles_layers.value_or(false),
                                                .loss = setup.compiles_loss.value_or(false),
                                                .model = setup.compiles_model.value_or(false)}));
  }
  if (setup.has_liger.value_or(false)) flags.emplace_back("kernels", "liger");
  if (setup.loss) flags.emplace_back("loss", word_of(*setup.loss));
  if (setup.sharing != Sharing::ddp) return {};
  if (setup.bucket_cap_mb) {
    flags.emplace_back("bucket-cap-mb", std::to_string(*setup.bucket_cap_mb));
  }
  if (setup.finds_unused) {
    flags.emplace_back("find-unused-parameters", *setup.finds_unused ? "true" : "false");
  }
  return {};
}

}  // namespace

Result<SetupFlags> flags_of_setup(std::string_view content, const std::string& file,
                                  const BesideSetup& beside) {
  HEADROOM_ASSIGN(TrainingSetup setup, read_setup(content, file, beside));
  take_gpus(beside, setup);
  if (setup.ranks * setup.replicas > 1 && setup.allocator.empty()) {
    setup.allocator = setup.allocator_of_several;
  }
  if (setup.takes_all_gpus && !setup.is_counted && !beside.gpus) {
    setup.notes.emplace_back(
        "taken on one GPU, as nobody says how many; it starts a process on each that it sees: "
        "--gpus N");
  }
  SetupFlags read{{}, setup.model.value_or(""), setup.notes};
  std::vector<FlagWords>& flags = read.flags;
  HEADROOM_ASSIGN(std::string words, method_words(setup, file, beside.method));
  if (!words.empty()) flags.emplace_back("method", std::move(words));
  if (setup.nodes > 1) flags.emplace_back("nodes", std::to_string(setup.nodes));
  if (setup.mixed_precision) {
    flags.emplace_back("mixed-precision", word_of(*setup.mixed_precision));
    if (setup.is_accelerated && setup.mixed_precision != Half::none) {
      flags.emplace_back("accelerate", "true");
    }
  }
  // Its compute_loss returns the loss alone (transformers/trainer.py).
  if (setup.is_trainer) flags.emplace_back("keep-outputs", "false");
  if (setup.weights) {
    flags.emplace_back("dtype", *setup.weights == Half::none ? "fp32" : word_of(*setup.weights));
  }
  if (setup.reduced) {
    flags.emplace_back("reduce-dtype",
                       *setup.reduced == Half::none ? "fp32" : word_of(*setup.reduced));
  }
  if (setup.checkpoints) flags.emplace_back("checkpointing", checkpointing_words(setup));
  if (setup.checkpoints.value_or(false) && setup.is_reentrant) {
    flags.emplace_back("checkpointing-kind", *setup.is_reentrant ? "reentrant" : "non-reentrant");
  }
  if (setup.batch) flags.emplace_back("batch", std::to_string(*setup.batch));
  if (setup.grad_accum) flags.emplace_back("grad-accum", std::to_string(*setup.grad_accum));
  const bool is_fsdp_of_accelerate =
      setup.is_accelerated && (setup.sharing == Sharing::fsdp1 || setup.sharing == Sharing::fsdp2);
  if (is_fsdp_of_accelerate) {
    flags.emplace_back("sync-each-batch",
                       setup.syncs_each_batch.value_or(false) ? "true" : "false");
  }
  if (setup.clip) flags.emplace_back("clip", number_words(*setup.clip));
  if (setup.reduce_bucket_size) {
    flags.emplace_back("reduce-bucket-size", elements_words(*setup.reduce_bucket_size));
  }
  if (setup.offloads_optimizer || setup.offloads_parameters) {
    flags.emplace_back("offload", offload_words(setup));
  }
  for (size_t i = 0; i < kStage3Flags.size(); ++i) {
    if (!setup.stage3[i]) continue;
    flags.emplace_back(kStage3Flags[i].name(), elements_words(*setup.stage3[i]));
  }
  if (setup.overlap_comm)
    flags.emplace_back("overlap-comm", *setup.overlap_comm ? "true" : "false");
  HEADROOM_TRY(add_trainer_flags(setup, file, flags));
  return read;
}

namespace {

// What can be written, and the file's name where nobody gives one.
struct Kind {
  std::string_view name;
  std::string_view file;
};
constexpr std::array kKinds{Kind{"accelerate", "accelerate.yaml"},
                            Kind{"deepspeed", "ds_config.json"}, Kind{"megatron", "megatron.sh"},
                            Kind{"torchtitan", "torchtitan.sh"}};

}  // namespace

Result<EmitRequest> parse_emit(std::string_view words) {
  const size_t equals = words.find('=');
  EmitRequest request{std::string(words.substr(0, equals)), ""};
  if (equals != std::string_view::npos) request.file = words.substr(equals + 1);
  const auto* const known = std::ranges::find(kKinds, request.kind, &Kind::name);
  if (known == kKinds.end()) {
    return Error{ErrorCode::usage, "'" + request.kind.substr(0, 40) + "' is nothing to write",
                 "--emit", "accelerate, deepspeed, megatron, torchtitan, or accelerate=FILE"};
  }
  if (equals == std::string_view::npos) request.file = known->file;
  if (request.file.empty() || request.file == "-") {
    return Error{ErrorCode::usage, "standard output has the answer", "--emit", "name a file"};
  }
  return request;
}

Result<std::vector<EmitRequest>> parse_emits(const std::vector<std::string>& words,
                                             const std::string& from) {
  std::vector<EmitRequest> requests;
  for (const std::string& word : words) {
    HEADROOM_ASSIGN(EmitRequest request, parse_emit(word));
    std::error_code none;
    if (request.file == from || std::filesystem::equivalent(request.file, from, none)) {
      return Error{ErrorCode::usage, "is what the setting was read from", "--emit " + request.file,
                   "name another file: what it says besides would be lost"};
    }
    if (std::ranges::find(requests, request.file, &EmitRequest::file) != requests.end()) {
      return Error{ErrorCode::usage, "is to be written twice", "--emit " + request.file,
                   "name another file for one of them"};
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

bool can_be_said(const FitQuestion& question, std::string_view kind) {
  const Division division = question.division;
  const bool is_megatrons = kind == "megatron";
  if (is_megatrons || question.megatron) return is_megatrons && question.megatron;
  const bool divides_layers = question.tensor_ranks > 1 || question.stages > 1;
  if (division == Division::gemini || question.expert_ranks > 1) return false;
  if (kind == "torchtitan") return static_cast<bool>(check_torchtitan(question));
  if (divides_layers || question.context_ranks > 1) return false;
  if (kind == "deepspeed") return is_zero(division);
  return division != Division::fsdp1 || question.replicas == 1;
}

namespace {

// transformers' own, of fully_shard and experts that are shared out.
std::string distributed_config(const FitQuestion& question) {
  std::string words = "DistributedConfig(fsdp_size=" + std::to_string(question.ranks);
  if (question.replicas > 1) {
    words += ", dp_replicate_size=" + std::to_string(question.replicas);
  }
  words += ", ep_size=" + std::to_string(question.expert_ranks);
  if (question.mixed_precision != MixedPrecision::none) words += ", fsdp_mixed_precision=True";
  return words + ")";
}

Error unsaid(const FitQuestion& question, const std::string& kind) {
  const std::string flag = "--emit " + kind;
  if (question.megatron) {
    return Error{ErrorCode::usage, "is of other engines than Megatron-LM", flag,
                 "--emit megatron=FILE"};
  }
  if (kind == "megatron") {
    return Error{ErrorCode::usage, "is for a run of Megatron-LM", flag,
                 "--from FILE, which has its arguments, in place of MODEL"};
  }
  if (question.division == Division::gemini) {
    return Error{ErrorCode::usage, "Colossal-AI's Gemini is set up in the script", flag,
                 "Booster(plugin=GeminiPlugin(placement_policy=\"cuda\", precision=\"fp16\"))"};
  }
  if (question.expert_ranks > 1) {
    return Error{ErrorCode::usage, "experts are shared out where the model is loaded", flag,
                 "from_pretrained(..., distributed_config=" + distributed_config(question) +
                     "), in transformers' Trainer"};
  }
  if (kind == "torchtitan") return check_torchtitan(question).error();
  if (question.stages > 1) {
    return Error{
        ErrorCode::usage, "a pipeline's stages are made in the script", flag,
        "torch.distributed.pipelining.PipelineStage and its schedules; --emit torchtitan=FILE "
        "with fsdp2:N,pp:M; of Megatron-LM --engine megatron --emit megatron=FILE"};
  }
  if (question.tensor_ranks > 1) {
    return Error{ErrorCode::usage, "a file with tensor parallelism is not written yet", flag,
                 "from_pretrained(..., distributed_config=DistributedConfig(tp_size=N)); --emit "
                 "torchtitan=FILE with fsdp2:M,tp:N --sequence-parallel true"};
  }
  if (question.context_ranks > 1) {
    return Error{ErrorCode::usage, "a file with context parallelism is not written yet", flag,
                 "--emit torchtitan=FILE"};
  }
  if (kind == "deepspeed") {
    return Error{ErrorCode::usage, "DeepSpeed's file is for its ZeRO", flag,
                 "--method zero1:N, zero2:N or zero3:N; or --emit accelerate"};
  }
  return Error{ErrorCode::usage, "accelerate divides so with FSDP 2 alone", flag,
               "--method fsdp2:N,replicate:M"};
}

}  // namespace

Result<void> check_said(const FitQuestion& question, const std::string& kind) {
  if (!can_be_said(question, kind)) return unsaid(question, kind);
  return {};
}

Result<Emitted> emit_setup(const FitQuestion& question, const EmitRequest& request) {
  HEADROOM_TRY(check_said(question, request.kind));
  if (request.kind == "torchtitan") return emit_torchtitan(question, request);
  Emitted emitted;
  const TrainingSetup setup = setup_of(as_deepspeed_runs(question), emitted.by_hand);
  add_by_hand(question, request.kind, emitted.by_hand);
  emitted.kind = request.kind;
  emitted.file = request.file;
  const bool is_accelerate = request.kind == "accelerate";
  if (question.division == Division::fsdp2 && !shards_ends(question)) {
    emitted.notes.push_back(request.kind + std::string(kShardsEnds));
  }
  if (question.method == Method::qlora && is_fsdp(question.division)) {
    emitted.notes.emplace_back(
        "four-bit weights are shared out where the script loads them with bnb_4bit_quant_storage "
        "in the model's type, and not with the default, uint8");
  }
  if (question.reshards == step::Reshards::all_but_last_layer) {
    emitted.by_hand.emplace_back("reshard-after-forward");
  }
  emitted.command = is_accelerate ? engines::accelerate_line(setup, request.file)
                                  : engines::deepspeed_line(setup, request.file);
  HEADROOM_TRY(write_file_atomic(request.file, is_accelerate ? engines::accelerate_yaml(setup)
                                                             : engines::deepspeed_json(setup)));
  return emitted;
}

}  // namespace headroom::fit
