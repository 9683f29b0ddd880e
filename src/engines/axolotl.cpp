#include "engines/axolotl.h"

#include <algorithm>
#include <array>

#include "engines/axolotl_names.h"
#include "engines/axolotl_plugins.h"
#include "engines/fsdp_config.h"
#include "engines/setting_values.h"

namespace headroom::engines {

namespace {

using text::Json;
using text::JsonView;

Result<void> check_modelled(const SettingValues& in) {
  if (in.is_on("config_file")) {
    return in.not_modelled("config_file", "deepspeed or fsdp_config in axolotl's own file");
  }
  for (const std::string_view key : kAxolotlRefused) {
    if (in.is_on(key)) {
      return in.not_modelled(key, "leave it out, where the run can do without");
    }
  }
  for (const char* key : {"tensor_parallel_size", "context_parallel_size",
                          "sequence_parallel_degree", "expert_parallel_size"}) {
    HEADROOM_ASSIGN(const auto ranks, in.count(key));
    if (ranks.value_or(1) > 1) return in.not_modelled(key, "1");
  }
  HEADROOM_ASSIGN(const auto experts, in.words("experts_implementation"));
  if (experts && *experts != "grouped_mm" && *experts != "eager") {
    return in.not_modelled("experts_implementation", "grouped_mm, transformers' own");
  }
  HEADROOM_ASSIGN(const auto kind, in.words("model_type"));
  if (kind && kind->find("ForCausalLM") == std::string::npos) {
    return in.not_modelled("model_type", "a model for causal language modelling");
  }
  return {};
}

// resolve_dtype: what the model is loaded in, and autocast beside it. Weights of 8 bits come in
// fp16 where nobody says bf16.
Result<void> read_types(const SettingValues& in, TrainingSetup& setup) {
  const Json* value = in.find("bf16");
  HEADROOM_ASSIGN(const auto is_fp16, in.truth("fp16"));
  HEADROOM_ASSIGN(const auto loads_fp16, in.truth("float16"));
  HEADROOM_ASSIGN(const auto loads_bf16, in.truth("bfloat16"));
  const bool is_full = value != nullptr && *value == Json("full");
  const bool is_auto = value == nullptr || *value == Json("auto");
  bool is_bf16 = is_full || (is_auto && !is_fp16.value_or(false));
  if (!is_full && !is_auto) {
    HEADROOM_ASSIGN(const auto is_on, in.truth("bf16"));
    is_bf16 = is_on.value_or(false);
  }
  if (is_bf16 || loads_bf16.value_or(false)) {
    setup.weights = Half::bf16;
    setup.mixed_precision = is_full ? Half::none : Half::bf16;
    return {};
  }
  const bool has_fp16 = is_fp16.value_or(false);
  HEADROOM_ASSIGN(const auto has_8_bits, in.truth("load_in_8bit"));
  const bool loads_half = has_fp16 || loads_fp16.value_or(false) || has_8_bits.value_or(false);
  setup.weights = loads_half ? Half::fp16 : Half::none;
  setup.mixed_precision = has_fp16 ? Half::fp16 : Half::none;
  return {};
}

// Names, or ends of them; a text by itself is a regular expression to peft, and so may an item be.
Result<void> read_targets(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(setup.lora_targets, in.names("lora_target_modules"));
  for (const std::string& name : setup.lora_targets) {
    const bool is_name = name.find_first_of("\\^$*+?()[]{}|") == std::string::npos;
    const bool is_end = name == "lm_head" || name.starts_with("embed_");
    if (is_name && !is_end) continue;
    return in.not_modelled("lora_target_modules",
                           is_end ? "modules within layers"
                                  : "a list of names: q_proj, v_proj; or lora_target_linear: true");
  }
  HEADROOM_ASSIGN(const auto takes_all, in.truth("lora_target_linear"));
  if (takes_all.value_or(false)) setup.lora_targets = {"all-linear"};
  if (setup.lora_targets.empty()) {
    return in.view().error("says no modules for its adapters",
                           "lora_target_linear: true, or lora_target_modules");
  }
  return {};
}

// load_in_8bit is of adapter: lora, and load_in_4bit of adapter: qlora.
Result<void> check_bits(const SettingValues& in, bool is_qlora) {
  const char* const other = is_qlora ? "load_in_8bit" : "load_in_4bit";
  HEADROOM_ASSIGN(const auto is_on, in.truth(other));
  if (!is_on.value_or(false)) return {};
  return in.view().error_at(
      other, std::string("quantizes nothing beside adapter: ") + (is_qlora ? "qlora" : "lora"),
      is_qlora ? "adapter: lora" : "adapter: qlora");
}

Result<void> read_bits(const SettingValues& in) {
  HEADROOM_ASSIGN(const auto is_quantized, in.truth("load_in_4bit"));
  if (!is_quantized.value_or(false)) {
    return in.view().error("has adapter: qlora without load_in_4bit", "load_in_4bit: true");
  }
  HEADROOM_ASSIGN(const auto more, in.view().optional_object("bnb_config_kwargs"));
  if (!more) return {};
  const SettingValues kwargs(*more);
  HEADROOM_ASSIGN(const auto doubles, kwargs.truth("bnb_4bit_use_double_quant"));
  if (!doubles.value_or(true)) return kwargs.not_modelled("bnb_4bit_use_double_quant", "true");
  for (const auto& [name, member] : more->json().members()) {
    const bool is_known = name == "bnb_4bit_use_double_quant" || name == "bnb_4bit_quant_type";
    if (!is_known) return kwargs.not_modelled(name, "leave it out");
  }
  return {};
}

// LoRA's kernels, which axolotl turns on by itself beside adapters where nobody says otherwise, and
// neither remote code, FSDP1 nor weights of 8 bits forbid it. They keep less of a layer than peft's
// modules.
Result<void> read_lora_kernels(const SettingValues& in, TrainingSetup& setup) {
  bool is_said = false;
  bool is_on = false;
  for (const char* key :
       {"lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel"}) {
    HEADROOM_ASSIGN(const auto said, in.truth(key));
    is_said = is_said || said.has_value();
    is_on = is_on || said.value_or(false);
  }
  HEADROOM_ASSIGN(const auto trusts, in.truth("trust_remote_code"));
  const bool has_8_bits = setup.tuning == Tuning::lora_8bit;
  if (has_8_bits && is_on) {
    return in.view().error("has axolotl's LoRA kernels beside load_in_8bit, which it refuses",
                           "lora_mlp_kernel, lora_qkv_kernel and lora_o_kernel: false");
  }
  if (!is_said) is_on = !trusts.value_or(false) && setup.sharing != Sharing::fsdp1 && !has_8_bits;
  if (!is_on) return {};
  if (!setup.checkpoints.value_or(false)) {
    return in.view().error(
        std::string("has axolotl's LoRA kernels") + (is_said ? "" : ", which are on by default") +
            ", and no recomputation: what they keep of every layer is not modelled",
        "gradient_checkpointing: true; or lora_mlp_kernel, lora_qkv_kernel and lora_o_kernel: "
        "false");
  }
  // The shares are those of fms-acceleration's kernels (--kernels fast), of the same descent.
  setup.notes.emplace_back(
      std::string("axolotl's LoRA kernels") + (is_said ? "" : ", on by default,") +
      " are taken as peft's modules: they keep less of the one layer that runs again, below 1 % of "
      "the peak beside whole logits and up to 8 % without, which is left in as room");
  return {};
}

Result<void> read_tuning(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto adapter, in.words("adapter"));
  if (!adapter || adapter->empty()) {
    setup.tuning = Tuning::full;
    for (const char* key : {"load_in_4bit", "load_in_8bit"}) {
      if (in.is_on(key)) return in.view().error_at(key, "is of adapters", "adapter: qlora");
    }
    return {};
  }
  if (*adapter != "lora" && *adapter != "qlora") return in.not_modelled("adapter", "lora or qlora");
  const bool is_qlora = *adapter == "qlora";
  if (is_qlora) HEADROOM_TRY(read_bits(in));
  HEADROOM_TRY(check_bits(in, is_qlora));
  HEADROOM_ASSIGN(const auto has_8_bits, in.truth("load_in_8bit"));
  const bool is_quantized = is_qlora || has_8_bits.value_or(false);
  HEADROOM_ASSIGN(const auto has_magnitudes, in.truth("peft_use_dora"));
  if (is_quantized && has_magnitudes.value_or(false)) return in.not_modelled("peft_use_dora");
  setup.tuning = is_qlora                         ? Tuning::qlora
                 : is_quantized                   ? Tuning::lora_8bit
                 : has_magnitudes.value_or(false) ? Tuning::dora
                                                  : Tuning::lora;
  // Of peft's preparation norms, embedding and head go back to the model's type.
  if (is_quantized) setup.prepared = Prepared::others;
  HEADROOM_ASSIGN(setup.lora_rank, in.count("lora_r"));
  if (!setup.lora_rank) return in.view().error("says no rank of its adapters", "lora_r: 16");
  HEADROOM_ASSIGN(setup.lora_dropout, in.number("lora_dropout", 1));
  HEADROOM_ASSIGN(const auto widens, in.truth("peft_autocast_adapter_dtype"));
  if (!widens.value_or(true)) setup.adapters = setup.weights;
  HEADROOM_TRY(read_targets(in, setup));
  if (in.is_on("lora_model_dir")) {
    setup.notes.emplace_back("the adapter of lora_model_dir has a rank and modules of its own");
  }
  return {};
}

Result<void> read_step(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto batch, in.count("micro_batch_size"));
  setup.batch = batch.value_or(1);
  HEADROOM_ASSIGN(const auto accumulation, in.count("gradient_accumulation_steps"));
  setup.grad_accum = accumulation.value_or(1);
  constexpr double kNorm = 1;  // the Trainer's
  HEADROOM_ASSIGN(const auto norm, in.number("max_grad_norm", 1e30));
  setup.clip = norm.value_or(kNorm);
  if (*setup.clip == 0) setup.clip.reset();
  HEADROOM_ASSIGN(const auto optimizer, in.words("optimizer"));
  setup.optimizer = optimizer.value_or("adamw_torch_fused");
  setup.optimizer_key = "optimizer";
  return {};
}

// Sequences are filled up to the longest, and to a multiple of 64. Packed rows (multipack) have as
// many tokens: attention that tells documents apart gets one row of all micro-batches' tokens,
// other attention a row each.
Result<void> read_length(const SettingValues& in, TrainingSetup& setup) {
  constexpr int64_t kLength = 512;
  constexpr int64_t kMultiple = 64;
  HEADROOM_ASSIGN(const auto said, in.count("sequence_len"));
  HEADROOM_ASSIGN(const auto multiple, in.count("pad_to_multiple_of"));
  HEADROOM_ASSIGN(const auto packs, in.truth("sample_packing"));
  HEADROOM_ASSIGN(const auto pads, in.truth("pad_to_sequence_len"));
  const int64_t length = said.value_or(kLength);
  const int64_t unit = multiple.value_or(kMultiple);
  setup.sequence = pads.value_or(true) ? (length + unit - 1) / unit * unit : length;
  if (!packs.value_or(false)) return {};
  setup.notes.emplace_back(
      "packed sequences are taken to be as long as the row: of shorter ones attention takes less "
      "time, and as much memory");
  return {};
}

// Former words, the first that is on counts.
struct AttentionFlag {
  std::string_view key;
  std::string_view name;
};
constexpr std::array kAttentionFlags{AttentionFlag{"xformers_attention", "xformers"},
                                     AttentionFlag{"sage_attention", "sage"},
                                     AttentionFlag{"flex_attention", "flex_attention"},
                                     AttentionFlag{"flash_attention", "flash_attention_2"},
                                     AttentionFlag{"sdp_attention", "sdpa"},
                                     AttentionFlag{"eager_attention", "eager"}};

Result<void> read_attention(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(setup.attention, in.words("attn_implementation"));
  for (const AttentionFlag& flag : kAttentionFlags) {
    if (setup.attention) break;
    HEADROOM_ASSIGN(const auto is_on, in.truth(flag.key));
    if (!is_on.value_or(false)) continue;
    setup.attention = flag.name;
    setup.attention_key = flag.key;
  }
  if (setup.attention == "kernels-community/flash-attn2") setup.attention = "flash_attention_2";
  HEADROOM_ASSIGN(const auto packs, in.truth("sample_packing"));
  HEADROOM_ASSIGN(const auto is_varlen, in.truth("sdpa_varlen"));
  if (setup.attention == "sdpa" && packs.value_or(false) && !is_varlen.value_or(true)) {
    return in.not_modelled("sdpa_varlen", "true: else sdpa gets a mask of all pairs");
  }
  return {};
}

// A model that is trained as a whole keeps norms, embedding and head in float32 where attention
// takes that, unless FSDP, DeepSpeed or cut cross entropy want one type.
Result<void> check_types(const SettingValues& in, bool is_cut, const TrainingSetup& setup) {
  const bool is_shared =
      is_zero(setup.sharing) || setup.sharing == Sharing::fsdp1 || setup.sharing == Sharing::fsdp2;
  const bool is_wide = setup.weights.value_or(Half::none) == Half::none;
  const bool takes_wide =
      !setup.attention || setup.attention == "sdpa" || setup.attention == "eager";
  if (setup.tuning != Tuning::full || is_shared || is_wide || is_cut || !takes_wide) return {};
  return in.view().error(
      "trains the whole model with its norms, embedding and head in float32, as axolotl has it "
      "beside this attention, which is not modelled",
      "attn_implementation: flash_attention_2, or deepspeed or fsdp_config, which want one type");
}

Result<void> read_sharding(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_TRY(read_fsdp_words(in, setup));
  HEADROOM_ASSIGN(const auto config, in.view().optional_object("fsdp_config"));
  if (!config && !in.is_on("fsdp")) return {};
  HEADROOM_ASSIGN(const auto version, in.count("fsdp_version"));
  if (version.value_or(1) > 2) return in.view().error_at("fsdp_version", "is not known", "2");
  const Json none = Json::object();
  FsdpConfigKind kind = kAxolotlFsdp;
  kind.version = version.value_or(kind.version);
  const JsonView read = config ? *config : JsonView::at(none, in.view().place());
  HEADROOM_TRY(read_fsdp_config(read, kind, setup));
  if (version) setup.sharing = *version == 2 ? Sharing::fsdp2 : Sharing::fsdp1;
  setup.shards_ends = setup.sharing == Sharing::fsdp2 ? std::optional(true) : std::nullopt;
  // accelerate widens what FSDP1 trains; axolotl's own fully_shard (monkeypatch/accelerate) leaves
  // it in the type that it was loaded in.
  const bool is_mixed = setup.mixed_precision.value_or(Half::none) != Half::none;
  if (setup.sharing == Sharing::fsdp1 && setup.tuning == Tuning::full && is_mixed) {
    setup.weights = Half::none;
  }
  return {};
}

Result<void> read_ranks(const SettingValues& in, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto shards, in.count("dp_shard_size"));
  HEADROOM_ASSIGN(const auto replicas, in.count("dp_replicate_size"));
  HEADROOM_ASSIGN(const auto workers, in.count("ray_num_workers"));
  for (const auto& [key, count] :
       {std::pair{"dp_shard_size", shards}, std::pair{"dp_replicate_size", replicas},
        std::pair{"ray_num_workers", workers}}) {
    if (count.value_or(1) > kMostDevices) {
      return in.view().error_at(key, "is more than are known to train one model");
    }
  }
  const int64_t shared = shards.value_or(1);
  if (replicas.value_or(1) > 1) {
    if (setup.sharing != Sharing::fsdp2 || shared < 2) {
      return in.view().error_at("dp_replicate_size", "is modelled beside fully_shard's shares",
                                "fsdp_version: 2 and dp_shard_size: N");
    }
    setup.replicas = *replicas;
  }
  const int64_t ranks = shared > 1 ? shared : workers.value_or(1);
  if (ranks < 2) return read_launcher(in, setup);
  setup.ranks = ranks;
  setup.is_counted = true;
  return {};
}

Result<void> read_checkpoints(const SettingValues& in, TrainingSetup& setup) {
  const Json* value = in.find("gradient_checkpointing");
  if (value != nullptr && (*value == Json("offload") || *value == Json("offload_disk"))) {
    return in.not_modelled("gradient_checkpointing", "true: what is kept stays on the GPU");
  }
  HEADROOM_ASSIGN(const auto is_on, in.truth("gradient_checkpointing"));
  setup.checkpoints = is_on.value_or(false);
  HEADROOM_ASSIGN(const auto kwargs, in.view().optional_object("gradient_checkpointing_kwargs"));
  setup.is_reentrant = true;  // utils/config/__init__.py, unless somebody gives arguments
  if (kwargs) {
    HEADROOM_ASSIGN(setup.is_reentrant, kwargs->optional_bool("use_reentrant"));
  }
  return {};
}

}  // namespace

bool has_axolotl_arguments(const Json& root) {
  if (!root.is_object() || root.find("base_model") == nullptr) return false;
  return std::ranges::any_of(kAxolotlOwn,
                             [&](std::string_view name) { return root.find(name) != nullptr; });
}

Result<TrainingSetup> read_axolotl(const JsonView& root, const ReadNamed& read_named) {
  const SettingValues in(root);
  TrainingSetup setup;
  setup.is_accelerated = true;
  setup.is_trainer = true;
  setup.counted_by = "dp_shard_size in it";
  HEADROOM_TRY(check_modelled(in));
  HEADROOM_ASSIGN(setup.model, in.words("base_model"));
  HEADROOM_TRY(read_types(in, setup));
  HEADROOM_TRY(read_step(in, setup));
  HEADROOM_TRY(read_checkpoints(in, setup));
  HEADROOM_TRY(read_attention(in, setup));
  HEADROOM_TRY(read_length(in, setup));
  HEADROOM_TRY(read_tuning(in, setup));
  HEADROOM_ASSIGN(const bool is_cut, read_axolotl_plugins(in, setup));
  HEADROOM_TRY(read_sharding(in, setup));
  HEADROOM_TRY(read_accumulation(in, read_named, setup));
  HEADROOM_TRY(read_deepspeed_of(in, read_named, setup));
  HEADROOM_TRY(read_ranks(in, setup));
  if (setup.tuning != Tuning::full) HEADROOM_TRY(read_lora_kernels(in, setup));
  HEADROOM_TRY(check_types(in, is_cut, setup));
  HEADROOM_ASSIGN(setup.bucket_cap_mb, in.count("ddp_bucket_cap_mb"));
  HEADROOM_ASSIGN(const auto looks, in.truth("ddp_find_unused_parameters"));
  setup.finds_unused = looks.value_or(false);
  setup.allocator = "expandable_segments:True";  // utils/__init__.py, as `axolotl train` has it
  setup.takes_all_gpus = true;
  note_axolotl_names(in, setup);
  return setup;
}

}  // namespace headroom::engines
