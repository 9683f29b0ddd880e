#include "engines/trainer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "engines/accelerate.h"
#include "engines/deepspeed.h"
#include "engines/fsdp_config.h"
#include "engines/setting_values.h"
#include "engines/shell_words.h"

namespace headroom::engines {

namespace {

using text::Json;
using text::JsonView;

constexpr int64_t kMostCount = 1'000'000'000;

// Names that a file of the Trainer has and one of a launcher has not.
constexpr std::array<std::string_view, 4> kItsOwn{"per_device_train_batch_size", "output_dir",
                                                  "num_train_epochs", "logging_steps"};
// Those of a command, with TRL's: other programs have an output_dir, too.
constexpr auto kOfItsCommands = std::to_array<std::string_view>(
    {"per_device_train_batch_size", "num_train_epochs", "logging_steps", "learning_rate",
     "gradient_accumulation_steps", "gradient_checkpointing", "max_steps", "lr_scheduler_type",
     "bf16", "fp16", "fsdp", "deepspeed", "use_peft", "dataset_name"});

// What changes memory, and nobody has modelled.
Result<void> check_modelled(const SettingValues& in) {
  HEADROOM_ASSIGN(const auto offloads, in.truth("activation_offloading"));
  if (offloads.value_or(false)) return in.not_modelled("activation_offloading", "false");
  HEADROOM_ASSIGN(const auto smoothing, in.number("label_smoothing_factor", 1));
  if (smoothing.value_or(0) > 0) return in.not_modelled("label_smoothing_factor", "0");
  for (const char* key : {"parallelism_config", "optim_target_modules"}) {
    if (in.find(key) != nullptr) return in.not_modelled(key);
  }
  return {};
}

// transformers/training_args.py: a backend or a mode switches it on, too. Modes but the default
// replay CUDA graphs, or try kernels out.
Result<void> read_compile(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(setup.compiles_model, in.truth("torch_compile"));
  HEADROOM_ASSIGN(const auto backend, in.words("torch_compile_backend"));
  HEADROOM_ASSIGN(const auto mode, in.words("torch_compile_mode"));
  if (backend && *backend != "inductor") {
    return in.not_modelled("torch_compile_backend", "inductor");
  }
  if (mode && *mode != "default") return in.not_modelled("torch_compile_mode", "default");
  if (backend || mode) setup.compiles_model = true;
  return {};
}

Result<void> read_checkpointing(const SettingValues& in, TrainingSetup& setup) {
  for (const std::string key : {"gradient_checkpointing", "activation_checkpointing"}) {
    HEADROOM_ASSIGN(const auto is_on, in.truth(key));
    if (is_on) setup.checkpoints = is_on;
    const std::string more = key + "_kwargs";
    const Json* value = in.find(more);
    if (value == nullptr || value->is_string()) continue;  // of a command: JSON, seldom
    HEADROOM_ASSIGN(const JsonView view, in.view().get_object(more));
    HEADROOM_ASSIGN(const auto offloads, view.optional_bool("offload"));
    if (offloads.value_or(false)) return view.error_at("offload", "is not modelled", "false");
    HEADROOM_ASSIGN(setup.checkpoints_every, view.optional_int("every_n_layers", 1, kMostCount));
    HEADROOM_ASSIGN(setup.is_reentrant, view.optional_bool("use_reentrant"));
  }
  return {};
}

Result<std::optional<Half>> half_of(const SettingValues& in) {
  HEADROOM_ASSIGN(const auto bf16, in.truth("bf16"));
  HEADROOM_ASSIGN(const auto fp16, in.truth("fp16"));
  if (bf16.value_or(false) && fp16.value_or(false)) {
    return in.view().error_at("fp16", "is on beside bf16", "one of them");
  }
  if (!bf16 && !fp16) return std::optional<Half>();
  return std::optional(bf16.value_or(false)   ? Half::bf16
                       : fp16.value_or(false) ? Half::fp16
                                              : Half::none);
}

// What a script of TRL's says of the weights; DeepSpeed's part says otherwise.
Result<void> read_weights(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(setup.mixed_precision, half_of(in));
  const bool is_half = setup.mixed_precision && setup.mixed_precision != Half::none;
  if (is_half && in.find("deepspeed") == nullptr && !in.view().has("dtype") &&
      !in.view().has("torch_dtype")) {
    setup.notes.emplace_back(
        "weights are taken in float32 under mixed precision; where the script loads them as they "
        "are kept (from_pretrained since transformers 5): --dtype bf16");
  }
  for (const char* key : {"dtype", "torch_dtype"}) {
    HEADROOM_ASSIGN(const auto type, in.words(key));
    if (!type || *type == "auto") continue;
    constexpr std::array<std::pair<std::string_view, Half>, 3> kTypes{
        {{"bfloat16", Half::bf16}, {"float16", Half::fp16}, {"float32", Half::none}}};
    const auto known = std::ranges::find(kTypes, *type, &std::pair<std::string_view, Half>::first);
    if (known == kTypes.end()) return in.not_modelled(key, "auto, bfloat16, float16 or float32");
    setup.weights = known->second;
  }
  return {};
}

// Weights of 4 bits or 8. Beside the latter TRL (trl/trainer/sft_trainer.py, 2026) prepares nothing
// and casts adapters to bf16.
Result<void> read_tuning(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto has_adapters, in.truth("use_peft"));
  HEADROOM_ASSIGN(const auto has_4_bits, in.truth("load_in_4bit"));
  HEADROOM_ASSIGN(const auto has_8_bits, in.truth("load_in_8bit"));
  const bool is_narrow = has_4_bits.value_or(false);
  const bool is_wide = has_8_bits.value_or(false);
  if (is_narrow && is_wide) {
    return in.view().error_at("load_in_8bit", "is on beside load_in_4bit", "one of them");
  }
  if (!has_adapters) {
    if (!is_narrow && !is_wide) return {};
    return in.not_modelled(is_narrow ? "load_in_4bit" : "load_in_8bit",
                           "with use_peft: what is quantized is not trained");
  }
  setup.tuning = !*has_adapters ? Tuning::full
                 : is_narrow    ? Tuning::qlora
                 : is_wide      ? Tuning::lora_8bit
                                : Tuning::lora;
  if (setup.tuning != Tuning::lora_8bit) return {};
  setup.prepared = Prepared::none;
  setup.adapters = Half::bf16;
  return {};
}

// The model and its adapters, as TRL's scripts are told of them.
Result<void> read_model(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(setup.model, in.words("model_name_or_path"));
  HEADROOM_ASSIGN(setup.attention, in.words("attn_implementation"));
  for (const char* key : {"max_length", "max_seq_length", "model_max_length", "block_size"}) {
    HEADROOM_ASSIGN(const auto length, in.count(key));
    if (length) setup.sequence = length;
  }
  HEADROOM_TRY(read_tuning(in, setup));
  HEADROOM_ASSIGN(setup.lora_rank, in.count("lora_r"));
  HEADROOM_ASSIGN(setup.lora_targets, in.names("lora_target_modules"));
  HEADROOM_ASSIGN(setup.has_liger, in.truth("use_liger_kernel"));
  return {};
}

// What is here, or in the file that is named here.
Result<Json> here_or_named(const Json& value, const ReadNamed& read_named) {
  if (value.is_string()) return read_named(value.as_string());
  return value;
}

Result<void> read_fsdp(const SettingValues& in, const ReadNamed& read_named, TrainingSetup& setup) {
  if (!in.is_on("fsdp")) return {};
  if (!(*in.find("fsdp") == Json(true))) HEADROOM_TRY(read_fsdp_words(in, setup));
  setup.sharing = Sharing::fsdp2;
  if (const Json* config = in.find("fsdp_config"); config != nullptr) {
    HEADROOM_ASSIGN(const Json read, here_or_named(*config, read_named));
    HEADROOM_TRY(read_fsdp_config(JsonView::at(read, in.view().place() + "/fsdp_config"),
                                  kTransformersFsdp, setup));
  }
  return {};
}

// What DeepSpeed's part leaves to the Trainer ("auto") has the Trainer's own.
void take_zero(const TrainingSetup& zero, TrainingSetup& setup) {
  setup.sharing = zero.sharing;
  setup.weights = zero.weights ? zero.weights : setup.mixed_precision.value_or(Half::none);
  setup.mixed_precision.reset();
  if (zero.batch) setup.batch = zero.batch;
  if (zero.grad_accum) setup.grad_accum = zero.grad_accum;
  if (zero.clip) setup.clip = zero.clip;
  setup.overlap_comm = zero.overlap_comm;
  setup.reduce_bucket_size = zero.reduce_bucket_size;
  setup.stage3 = zero.stage3;
  setup.offloads_optimizer = zero.offloads_optimizer;
  setup.offloads_parameters = zero.offloads_parameters;
}

// accelerate launch --config_file: how the step is divided, and types where the Trainer's own
// arguments leave them out. The command's own counts come first.
Result<void> read_config_file(const SettingValues& in, const ReadNamed& read_named,
                              TrainingSetup& setup) {
  const Json* value = in.find("config_file");
  if (value == nullptr || !value->is_string()) return {};
  HEADROOM_ASSIGN(const Json read, read_named(value->as_string()));
  const JsonView view = JsonView::at(read, in.view().place() + "/config_file");
  HEADROOM_ASSIGN(const TrainingSetup launched, read_accelerate(view));
  if (!setup.is_counted) {
    setup.ranks = launched.ranks;
    setup.nodes = std::max(setup.nodes, launched.nodes);
    setup.is_counted = launched.is_counted;
    setup.counted_by = launched.counted_by;
  }
  setup.replicas = launched.replicas;
  if (!setup.mixed_precision) setup.mixed_precision = launched.mixed_precision;
  if (!setup.compiles_model) setup.compiles_model = launched.compiles_model;
  setup.compiles_layers = launched.compiles_layers;
  if (is_zero(launched.sharing)) {
    take_zero(launched, setup);
    return {};
  }
  if (launched.sharing != Sharing::none) setup.sharing = launched.sharing;
  if (launched.checkpoints.value_or(false)) setup.checkpoints = true;
  setup.offloads_parameters = launched.offloads_parameters;
  setup.reshards = launched.reshards;
  setup.shards_ends = launched.shards_ends;
  return {};
}

Result<void> read_step(const SettingValues& in, TrainingSetup& setup) {
  constexpr int64_t kBatch = 8;
  constexpr double kNorm = 1;
  HEADROOM_ASSIGN(const auto batch, in.count("per_device_train_batch_size"));
  setup.batch = batch.value_or(kBatch);
  HEADROOM_ASSIGN(setup.grad_accum, in.count("gradient_accumulation_steps"));
  HEADROOM_ASSIGN(const auto norm, in.number("max_grad_norm", 1e30));
  setup.clip = norm.value_or(kNorm);
  if (*setup.clip == 0) setup.clip.reset();
  HEADROOM_ASSIGN(const auto optimizer, in.words("optim"));
  setup.optimizer = optimizer.value_or("adamw_torch_fused");
  return {};
}

Result<void> read_ddp(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(setup.bucket_cap_mb, in.count("ddp_bucket_cap_mb"));
  HEADROOM_ASSIGN(const auto looks, in.truth("ddp_find_unused_parameters"));
  setup.finds_unused = looks.value_or(!setup.checkpoints.value_or(false));
  return {};
}

// "q_proj v_proj"
Json list_of(std::string_view words) {
  Json::Array items;
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (end > 0) items.emplace_back(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return Json::array(std::move(items));
}

}  // namespace

bool has_trainer_arguments(const Json& root) {
  return root.is_object() && std::ranges::any_of(kItsOwn, [&](std::string_view name) {
           return root.find(name) != nullptr;
         });
}

bool is_trainer_script(std::string_view content) {
  return std::ranges::any_of(kOfItsCommands, [&](std::string_view name) {
    std::string dashed(name);
    std::ranges::replace(dashed, '_', '-');
    return content.find("--" + std::string(name)) != std::string_view::npos ||
           content.find("--" + dashed) != std::string_view::npos;
  });
}

Result<Json> trainer_arguments_of(std::string_view script, const std::string& file) {
  HEADROOM_ASSIGN(ShellWords words, ShellWords::read(script, file));
  Json root = Json::object();
  for (const std::string& argument : words.arguments()) {
    std::string name = argument;
    std::ranges::replace(name, '-', '_');
    const std::string written = words.written(argument).value_or("");
    if (written.empty()) {
      root.set(name, true);
    } else if (name == "lora_target_modules") {
      root.set(name, list_of(written + " " + words.more_of(argument).value_or("")));
    } else {
      root.set(name, words.resolved(written).value_or(""));
    }
  }
  return root;
}

// Of a command: processes of a machine times machines.
Result<void> read_launcher(const SettingValues& in, TrainingSetup& setup) {
  for (const char* key : {"nnodes", "num_nodes", "num_machines"}) {  // torchrun's, deepspeed's
    HEADROOM_ASSIGN(const auto named, in.count(key));                // and accelerate's
    if (named) setup.nodes = std::min(*named, kMostDevices);
  }
  for (const char* key : {"nproc_per_node", "num_gpus"}) {
    HEADROOM_ASSIGN(const auto each, in.count(key));
    if (!each) continue;
    setup.ranks = std::min(*each, kMostDevices) * setup.nodes;
    setup.is_counted = true;
  }
  HEADROOM_ASSIGN(const auto all, in.count("num_processes"));  // accelerate launch
  if (all) {
    setup.ranks = *all;
    setup.is_counted = true;
  }
  if (setup.ranks > kMostDevices) {
    return in.view().error("more processes than are known to train one model");
  }
  return {};
}

Result<void> read_accumulation(const SettingValues& in, const ReadNamed& read_named,
                               TrainingSetup& setup) {
  const Json* value = in.find("accelerator_config");
  if (value == nullptr) return {};
  HEADROOM_ASSIGN(const Json read, here_or_named(*value, read_named));
  const JsonView view = JsonView::at(read, in.view().place() + "/accelerator_config");
  HEADROOM_ASSIGN(const auto kwargs, view.optional_object("gradient_accumulation_kwargs"));
  if (!kwargs) return {};
  HEADROOM_ASSIGN(setup.syncs_each_batch, kwargs->optional_bool("sync_each_batch"));
  return {};
}

Result<void> read_deepspeed_of(const SettingValues& in, const ReadNamed& read_named,
                               TrainingSetup& setup) {
  const Json* value = in.find("deepspeed");
  if (value == nullptr) return {};
  HEADROOM_ASSIGN(const Json read, here_or_named(*value, read_named));
  const JsonView view = JsonView::at(read, in.view().place() + "/deepspeed");
  HEADROOM_ASSIGN(const TrainingSetup zero, read_deepspeed(view));
  setup.ranks = std::max(setup.ranks, zero.ranks);
  setup.is_counted = setup.is_counted || zero.is_counted;
  take_zero(zero, setup);
  return {};
}

Result<void> read_trainer_loop(const SettingValues& in, const ReadNamed& read_named,
                               TrainingSetup& setup) {
  setup.is_accelerated = true;
  setup.is_trainer = true;
  setup.counted_by = "torchrun --nproc_per_node N in a script";
  HEADROOM_TRY(check_modelled(in));
  HEADROOM_TRY(read_step(in, setup));
  HEADROOM_ASSIGN(setup.mixed_precision, half_of(in));
  HEADROOM_TRY(read_compile(in, setup));
  HEADROOM_TRY(read_checkpointing(in, setup));
  HEADROOM_TRY(read_launcher(in, setup));
  HEADROOM_TRY(read_config_file(in, read_named, setup));
  HEADROOM_TRY(read_fsdp(in, read_named, setup));
  HEADROOM_TRY(read_accumulation(in, read_named, setup));
  HEADROOM_TRY(read_deepspeed_of(in, read_named, setup));
  return read_ddp(in, setup);
}

Result<TrainingSetup> read_trainer(const JsonView& root, const ReadNamed& read_named) {
  const SettingValues in(root);
  TrainingSetup setup;
  HEADROOM_TRY(read_weights(in, setup));
  HEADROOM_TRY(read_model(in, setup));
  HEADROOM_TRY(read_trainer_loop(in, read_named, setup));
  for (const auto& [said, meant] : in.misspelt()) {
    setup.notes.push_back(said + " is no argument that is known: " + meant + "?");
  }
  return setup;
}

}  // namespace headroom::engines
