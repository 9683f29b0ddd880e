#include "engines/llama_factory.h"

#include <algorithm>
#include <array>

#include "engines/setting_values.h"

namespace headroom::engines {

namespace {

using text::Json;
using text::JsonView;

// Names that its files have and those of the Trainer and of TRL's scripts have not.
constexpr std::array<std::string_view, 6> kItsOwn{"finetuning_type", "cutoff_len", "lora_target",
                                                  "neat_packing",    "stage",      "dataset_dir"};

// Of other programs that it starts, told apart by an environment variable or by their arguments.
Result<void> check_program(const SettingValues& in) {
  if (in.find("model_class") != nullptr || in.find("dist_config") != nullptr) {
    return in.view().error("has the arguments of LLaMA-Factory's second program (v1)",
                           "those of llamafactory-cli train without USE_V1 are read");
  }
  for (const char* key : {"tensor_model_parallel_size", "pipeline_model_parallel_size",
                          "expert_model_parallel_size"}) {
    if (in.find(key) == nullptr) continue;
    return in.not_modelled(key,
                           "it is of Megatron (USE_MCA, USE_MEGATRON_BRIDGE): Megatron-LM's "
                           "own arguments are read");
  }
  HEADROOM_ASSIGN(const auto trains, in.truth("do_train"));
  if (trains.value_or(false)) return {};
  return in.view().error("trains nothing: do_train is not true in it", "do_train: true");
}

Result<void> check_modelled(const SettingValues& in) {
  HEADROOM_TRY(in.refuse_if_on({"use_unsloth", "use_unsloth_gc", "use_kt", "use_v1_kernels",
                                "shift_attn", "mixture_of_depths", "use_llama_pro"}));
  HEADROOM_TRY(
      in.refuse_if_on({"use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon",
                       "use_mca", "use_megatron_bridge", "use_hyper_parallel"}));
  HEADROOM_TRY(
      in.refuse_if_on({"torch_compile", "torch_compile_backend", "torch_compile_mode",
                       "use_dft_loss", "use_asft_loss", "use_eaft_loss", "upcast_lmhead_output",
                       "moe_aux_loss_coef", "fp8", "fp8_enable_fsdp_float8_all_gather"}));
  HEADROOM_ASSIGN(const auto said, in.words("stage"));
  const std::string stage = said.value_or("sft");
  if (stage != "sft" && stage != "pt") {
    return in.not_modelled("stage", "sft or pt: others run a second model, or value heads");
  }
  return {};
}

Result<void> read_quantization(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto bits, in.count("quantization_bit"));
  if (!bits) return {};
  if (*bits != 4 && *bits != 8) return in.not_modelled("quantization_bit", "4 or 8");
  HEADROOM_ASSIGN(const auto method, in.words("quantization_method"));
  if (method && *method != "bnb" && *method != "bitsandbytes") {
    return in.not_modelled("quantization_method", "bnb");
  }
  HEADROOM_ASSIGN(const auto doubles, in.truth("double_quantization"));
  if (!doubles.value_or(true)) return in.not_modelled("double_quantization", "true, the default");
  if (setup.tuning != Tuning::lora) {
    return in.not_modelled("quantization_bit",
                           setup.tuning == Tuning::dora
                               ? "use_dora: false"
                               : "finetuning_type: lora, what is quantized is not trained");
  }
  setup.tuning = *bits == 8 ? Tuning::lora_8bit : Tuning::qlora;
  return {};
}

// "q_proj,v_proj"
void add_items(std::string_view words, std::vector<std::string>& items) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(','), words.size());
    std::string_view item = words.substr(0, end);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    if (!item.empty()) items.emplace_back(item);
    words.remove_prefix(std::min(end + 1, words.size()));
  }
}

Result<void> read_adapters(const SettingValues& in, TrainingSetup& setup) {
  constexpr int64_t kRank = 8;
  if (in.is_on("additional_target")) {
    return in.not_modelled("additional_target", "leave it out: adapters alone are trained");
  }
  if (in.is_on("resize_vocab")) {
    return in.not_modelled("resize_vocab", "false: beside adapters the embedding is trained, too");
  }
  HEADROOM_ASSIGN(const auto rank, in.count("lora_rank"));
  setup.lora_rank = rank.value_or(kRank);
  HEADROOM_ASSIGN(setup.lora_dropout, in.number("lora_dropout", 1));
  HEADROOM_ASSIGN(const auto targets, in.names("lora_target"));
  for (const std::string& words : targets) add_items(words, setup.lora_targets);
  const std::vector<std::string> all{"all"};
  if (setup.lora_targets.empty() || setup.lora_targets == all) setup.lora_targets = {"all-linear"};
  HEADROOM_ASSIGN(const auto has_magnitudes, in.truth("use_dora"));
  if (has_magnitudes.value_or(false)) setup.tuning = Tuning::dora;
  if (in.is_on("adapter_name_or_path")) {
    setup.notes.emplace_back(
        "the adapter that is trained on has a rank and modules of its own: --lora-rank and "
        "--lora-targets say them");
  }
  return {};
}

Result<void> read_tuning(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto said, in.words("finetuning_type"));
  const std::string kind = said.value_or("lora");
  if (kind == "full") {
    setup.tuning = Tuning::full;
  } else if (kind == "lora") {
    setup.tuning = Tuning::lora;
    HEADROOM_TRY(read_adapters(in, setup));
  } else {
    return in.not_modelled("finetuning_type", "full or lora");
  }
  return read_quantization(in, setup);
}

// What is trained is cast to float32; the rest stays as the checkpoint has it. DeepSpeed's own type
// is none of this.
Result<void> read_types(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto is_pure, in.truth("pure_bf16"));
  const bool is_full = setup.tuning == Tuning::full;
  HEADROOM_ASSIGN(const auto upcasts, in.truth("upcast_layernorm"));
  const bool is_quantized = setup.tuning == Tuning::qlora || setup.tuning == Tuning::lora_8bit;
  if (upcasts.value_or(false) && !is_quantized && !is_full) {
    return in.not_modelled("upcast_layernorm", "false, or quantization_bit: 4");
  }
  if (is_quantized) {
    // No prepare_model_for_kbit_training.
    setup.prepared = upcasts.value_or(false) ? Prepared::norms : Prepared::none;
  }
  if (is_zero(setup.sharing)) return {};
  const bool is_half = setup.mixed_precision == Half::fp16 && !is_pure.value_or(false);
  if (is_full) {
    setup.weights = is_pure.value_or(false) ? Half::bf16 : Half::none;
    return {};
  }
  setup.weights = is_half ? Half::fp16 : Half::bf16;
  setup.notes.emplace_back(std::string("weights that are not trained stay as their checkpoint "
                                       "keeps them: taken in ") +
                           (is_half ? "fp16" : "bf16") + ", --dtype says otherwise");
  return {};
}

// Packed rows are as long as said, since a token is taken off and put on again (data_args.py,
// supervised.py); pt packs if nobody says otherwise, and has one token less where somebody does.
// SFT's collator fills up to a multiple of 8.
Result<void> read_length(const SettingValues& in, TrainingSetup& setup) {
  constexpr int64_t kLength = 2048;
  constexpr int64_t kMultiple = 8;
  HEADROOM_ASSIGN(const auto cutoff, in.count("cutoff_len"));
  HEADROOM_ASSIGN(const auto packs, in.truth("packing"));
  HEADROOM_ASSIGN(const auto stage, in.words("stage"));
  const int64_t length = cutoff.value_or(kLength);
  const bool is_pretraining = stage == "pt";
  setup.sequence = is_pretraining ? std::max<int64_t>(length - (packs.value_or(false) ? 1 : 0), 1)
                                  : (length + kMultiple - 1) / kMultiple * kMultiple;
  HEADROOM_ASSIGN(const auto is_neat, in.truth("neat_packing"));
  if (!is_neat.value_or(false)) return {};
  if (setup.attention != "flash_attention_2") {
    return in.not_modelled("neat_packing", "flash_attn: fa2: others get a mask of all pairs");
  }
  if (setup.batch.value_or(1) > 1) {
    return in.view().error_at("per_device_train_batch_size",
                              "is more than the one row that neat_packing takes with fa2", "1");
  }
  return {};
}

struct AttentionName {
  std::string_view word;
  std::string_view name;  // transformers'
};
constexpr std::array kAttentions{AttentionName{"disabled", "eager"}, AttentionName{"sdpa", "sdpa"},
                                 AttentionName{"fa2", "flash_attention_2"}};

Result<void> read_attention(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto word, in.words("flash_attn"));
  if (!word || *word == "auto") return {};
  const auto* const known = std::ranges::find(kAttentions, *word, &AttentionName::word);
  if (known == kAttentions.end()) return in.not_modelled("flash_attn", "auto, disabled, sdpa, fa2");
  setup.attention = known->name;
  return {};
}

// On unless it is switched off; DistributedDataParallel looks for unused parameters as the Trainer
// has it, but beside adapters never.
Result<void> read_checkpoints(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto is_disabled, in.truth("disable_gradient_checkpointing"));
  if (!is_disabled.value_or(false)) setup.checkpoints = true;
  setup.checkpoints = setup.checkpoints.value_or(false);
  HEADROOM_ASSIGN(const auto is_reentrant, in.truth("use_reentrant_gc"));
  setup.is_reentrant = is_reentrant.value_or(true) && setup.sharing != Sharing::fsdp2;
  HEADROOM_ASSIGN(const auto looks, in.truth("ddp_find_unused_parameters"));
  const bool is_full = setup.tuning == Tuning::full;
  setup.finds_unused = looks.value_or(is_full && !*setup.checkpoints);
  return {};
}

Result<void> read_workers(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto workers, in.count("ray_num_workers"));
  if (!workers || setup.is_counted) return {};
  if (*workers > kMostDevices) {
    return in.view().error_at("ray_num_workers", "is more than are known to train one model");
  }
  setup.ranks = *workers;
  setup.is_counted = true;
  return {};
}

}  // namespace

bool has_llama_factory_arguments(const Json& root) {
  if (!root.is_object()) return false;
  const bool is_second = root.find("model_class") != nullptr && root.find("model") != nullptr;
  const bool has_its_own = std::ranges::any_of(
      kItsOwn, [&](std::string_view name) { return root.find(name) != nullptr; });
  return is_second || (has_its_own && root.find("model_name_or_path") != nullptr);
}

Result<TrainingSetup> read_llama_factory(const JsonView& root, const ReadNamed& read_named) {
  const SettingValues in(root);
  TrainingSetup setup;
  HEADROOM_TRY(check_program(in));
  HEADROOM_TRY(check_modelled(in));
  HEADROOM_TRY(read_trainer_loop(in, read_named, setup));
  HEADROOM_ASSIGN(setup.model, in.words("model_name_or_path"));
  HEADROOM_TRY(read_tuning(in, setup));
  HEADROOM_TRY(read_types(in, setup));
  HEADROOM_TRY(read_attention(in, setup));
  HEADROOM_TRY(read_length(in, setup));
  HEADROOM_TRY(read_checkpoints(in, setup));
  HEADROOM_TRY(read_workers(in, setup));
  // launcher.py: torchrun for several GPUs, all that there are.
  setup.allocator_of_several = "expandable_segments:True";
  setup.takes_all_gpus = true;
  for (const char* key : {"enable_liger_kernel", "use_liger_kernel"}) {
    HEADROOM_ASSIGN(const auto is_on, in.truth(key));
    if (is_on) setup.has_liger = *is_on || setup.has_liger.value_or(false);
  }
  for (const auto& [said, meant] : in.misspelt()) {
    setup.notes.push_back(said + " is no argument of LLaMA-Factory's: " + meant + "?");
  }
  return setup;
}

}  // namespace headroom::engines
