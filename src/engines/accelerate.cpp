#include "engines/accelerate.h"

#include <array>
#include <utility>

#include "engines/shell_words.h"

namespace headroom::engines {

namespace {

using text::JsonView;

struct Word {
  std::string_view word;
  Half half;
};
constexpr std::array kPrecisions{Word{"no", Half::none}, Word{"bf16", Half::bf16},
                                 Word{"fp16", Half::fp16}};

std::string word_of(std::optional<Half> half) {
  for (const Word& entry : kPrecisions) {
    if (entry.half == half.value_or(Half::none)) return std::string(entry.word);
  }
  return "no";
}

Result<void> read_precision(const JsonView& root, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto words, root.optional_string("mixed_precision"));
  if (!words) return {};
  for (const Word& entry : kPrecisions) {
    if (*words == entry.word) {
      setup.mixed_precision = entry.half;
      return {};
    }
  }
  return root.error_at("mixed_precision", "'" + words->substr(0, 40) + "' is not modelled",
                       "no, bf16 or fp16");
}

// accelerate's dynamo_config, or dynamo_backend of older files: torch.compile of the model, or of
// what repeats in it by itself (accelerate/accelerator.py, prepare_model).
Result<void> read_compile(const JsonView& root, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto config, root.optional_object("dynamo_config"));
  const JsonView& in = config ? *config : root;
  HEADROOM_ASSIGN(const auto said, in.optional_string("dynamo_backend"));
  const std::string backend = said.value_or("NO");
  if (backend == "NO" || backend == "no") return {};
  if (backend != "INDUCTOR" && backend != "inductor") {
    return in.error_at("dynamo_backend", "is not modelled", "INDUCTOR or NO");
  }
  HEADROOM_ASSIGN(const auto mode, in.optional_string("dynamo_mode"));
  if (mode && *mode != "default") return in.error_at("dynamo_mode", "is not modelled", "default");
  HEADROOM_ASSIGN(const auto by_region, in.optional_bool("dynamo_use_regional_compilation"));
  (by_region.value_or(false) ? setup.compiles_layers : setup.compiles_model) = true;
  return {};
}

// What accelerate's own files have beside what decides memory and time.
Result<void> read_fsdp(const JsonView& fsdp, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto version, fsdp.optional_int("fsdp_version", 1, 2));
  setup.sharing = version.value_or(1) == 2 ? Sharing::fsdp2 : Sharing::fsdp1;
  HEADROOM_ASSIGN(const auto offloads, fsdp.optional_bool("fsdp_offload_params"));
  if (offloads.value_or(false)) setup.offloads_parameters = true;
  HEADROOM_ASSIGN(setup.checkpoints, fsdp.optional_bool("fsdp_activation_checkpointing"));
  if (setup.sharing == Sharing::fsdp2) {
    HEADROOM_ASSIGN(setup.reshards, fsdp.optional_bool("fsdp_reshard_after_forward"));
    setup.shards_ends = true;
    return {};
  }
  for (const char* key : {"fsdp_sharding_strategy", "fsdp_reshard_after_forward"}) {
    const text::Json* strategy = fsdp.json().find(key);
    if (strategy == nullptr || strategy->is_null()) continue;
    const bool is_full =
        *strategy == text::Json("FULL_SHARD") || *strategy == text::Json(int64_t{1});
    if (!is_full) return fsdp.error_at(key, "is not modelled", "FULL_SHARD");
  }
  return {};
}

Result<void> read_groups(const JsonView& root, TrainingSetup& setup) {
  HEADROOM_ASSIGN(const auto groups, root.optional_object("parallelism_config"));
  if (!groups) return {};
  for (const char* key : {"tp_size", "cp_size", "sp_size"}) {
    const std::string name = std::string("parallelism_config_") + key;
    HEADROOM_ASSIGN(const auto size, groups->optional_int(name, 1, kMostDevices));
    if (size.value_or(1) > 1) return groups->error_at(name, "is not modelled", "1");
  }
  HEADROOM_ASSIGN(const auto replicas,
                  groups->optional_int("parallelism_config_dp_replicate_size", 1, kMostDevices));
  HEADROOM_ASSIGN(const auto shards,
                  groups->optional_int("parallelism_config_dp_shard_size", 1, kMostDevices));
  if (replicas.value_or(1) == 1) return {};
  if (setup.sharing != Sharing::fsdp2 || shards.value_or(0) * *replicas != setup.ranks) {
    return groups->error("groups times their replicas are not the processes, or not of FSDP 2");
  }
  setup.replicas = *replicas;
  setup.ranks = *shards;
  return {};
}

Result<void> read_deepspeed_part(const JsonView& part, TrainingSetup& setup) {
  if (part.has("deepspeed_config_file")) {
    return part.error_at("deepspeed_config_file", "says the setting elsewhere",
                         "name that file instead");
  }
  HEADROOM_ASSIGN(const int64_t stage, part.get_int("zero_stage", 0, 3));
  if (stage == 0) return part.error_at("zero_stage", "is not modelled", "1, 2 or 3");
  setup.sharing = stage == 1 ? Sharing::zero1 : stage == 2 ? Sharing::zero2 : Sharing::zero3;
  for (const auto& [key, field] :
       {std::pair{"offload_optimizer_device", &TrainingSetup::offloads_optimizer},
        std::pair{"offload_param_device", &TrainingSetup::offloads_parameters}}) {
    HEADROOM_ASSIGN(const auto device, part.optional_string(key));
    if (!device) continue;
    if (*device != "none" && *device != "cpu") {
      return part.error_at(key, "is not modelled", "cpu, or none");
    }
    setup.*field = *device == "cpu";
  }
  if (setup.offloads_parameters.value_or(false) && stage != 3) {
    return part.error_at("offload_param_device", "is of stage 3", "none");
  }
  HEADROOM_ASSIGN(setup.grad_accum, part.optional_int("gradient_accumulation_steps", 1, 1'000'000));
  HEADROOM_ASSIGN(setup.clip, part.optional_double("gradient_clipping", 0, 1e30));
  if (setup.clip && *setup.clip == 0) setup.clip.reset();
  setup.weights = std::exchange(setup.mixed_precision, std::nullopt);
  return {};
}

std::string deepspeed_part(const TrainingSetup& setup) {
  std::string words = "deepspeed_config:\n";
  if (setup.grad_accum) {
    words += "  gradient_accumulation_steps: " + std::to_string(*setup.grad_accum) + "\n";
  }
  if (setup.clip) words += "  gradient_clipping: " + text::Json(*setup.clip).dump() + "\n";
  const auto add = [&](const char* key, std::optional<bool> is_offloaded) {
    words += std::string("  ") + key + (is_offloaded.value_or(false) ? ": cpu\n" : ": none\n");
  };
  add("offload_optimizer_device", setup.offloads_optimizer);
  add("offload_param_device", setup.offloads_parameters);
  const bool is_third = setup.sharing == Sharing::zero3;
  if (is_third) words += "  zero3_init_flag: true\n";
  words += "  zero_stage: ";
  return words + (is_third ? "3\n" : setup.sharing == Sharing::zero1 ? "1\n" : "2\n");
}

std::string fsdp_part(const TrainingSetup& setup) {
  const bool is_second = setup.sharing == Sharing::fsdp2;
  std::string words = "fsdp_config:\n  fsdp_activation_checkpointing: ";
  words += setup.checkpoints.value_or(false) ? "true\n" : "false\n";
  words += "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_offload_params: ";
  words += setup.offloads_parameters.value_or(false) ? "true\n" : "false\n";
  words += !is_second                      ? "  fsdp_sharding_strategy: FULL_SHARD\n"
           : setup.reshards.value_or(true) ? "  fsdp_reshard_after_forward: true\n"
                                           : "  fsdp_reshard_after_forward: false\n";
  if (!is_second) words += "  fsdp_use_orig_params: true\n";
  words += "  fsdp_version: ";
  return words + (is_second ? "2\n" : "1\n");
}

// Inductor is what torch.compile is by default.
std::string dynamo_part(const TrainingSetup& setup) {
  const bool layers = setup.compiles_layers.value_or(false);
  if (!layers && !setup.compiles_model.value_or(false)) return "";
  return std::string("dynamo_config:\n  dynamo_backend: INDUCTOR\n") +
         (layers ? "  dynamo_use_regional_compilation: true\n" : "");
}

std::string type_of(const TrainingSetup& setup) {
  switch (setup.sharing.value_or(Sharing::none)) {
    case Sharing::none:
      return "'NO'";
    case Sharing::ddp:
      return "MULTI_GPU";
    case Sharing::fsdp1:
    case Sharing::fsdp2:
      return "FSDP";
    case Sharing::zero1:
    case Sharing::zero2:
    case Sharing::zero3:
      return "DEEPSPEED";
  }
  return "'NO'";
}

}  // namespace

Result<TrainingSetup> read_accelerate(const JsonView& root) {
  TrainingSetup setup;
  setup.is_accelerated = true;
  setup.counted_by = "num_processes in it";
  HEADROOM_ASSIGN(const std::string type, root.get_string("distributed_type"));
  HEADROOM_ASSIGN(const auto processes, root.optional_int("num_processes", 1, kMostDevices));
  HEADROOM_ASSIGN(const auto nodes, root.optional_int("num_machines", 1, kMostDevices));
  setup.ranks = processes.value_or(1);
  setup.is_counted = processes.has_value();
  setup.nodes = nodes.value_or(1);
  HEADROOM_TRY(read_precision(root, setup));
  HEADROOM_TRY(read_compile(root, setup));
  if (type == "NO") {
    setup.sharing = Sharing::none;
  } else if (type == "MULTI_GPU") {
    setup.sharing = Sharing::ddp;
  } else if (type == "FSDP") {
    HEADROOM_ASSIGN(const JsonView fsdp, root.get_object("fsdp_config"));
    HEADROOM_TRY(read_fsdp(fsdp, setup));
  } else if (type == "DEEPSPEED") {
    HEADROOM_ASSIGN(const JsonView part, root.get_object("deepspeed_config"));
    HEADROOM_TRY(read_deepspeed_part(part, setup));
  } else {
    return root.error_at("distributed_type", "'" + type.substr(0, 40) + "' is not modelled",
                         "NO, MULTI_GPU, FSDP or DEEPSPEED");
  }
  HEADROOM_TRY(read_groups(root, setup));
  if (setup.sharing == Sharing::none) return setup;
  if (processes && setup.ranks < 2 && !is_zero(setup.sharing))
    return root.error_at("num_processes", "is less than two", "how many GPUs?");
  return setup;
}

std::string accelerate_yaml(const TrainingSetup& setup) {
  const bool is_deepspeed = is_zero(setup.sharing);
  const bool is_fsdp = setup.sharing == Sharing::fsdp1 || setup.sharing == Sharing::fsdp2;
  std::string words = "compute_environment: LOCAL_MACHINE\n";
  if (is_deepspeed) words += deepspeed_part(setup);
  words += "distributed_type: " + type_of(setup) + "\n";
  words += dynamo_part(setup);
  if (is_fsdp) words += fsdp_part(setup);
  words += "machine_rank: 0\nmain_training_function: main\nmixed_precision: '";
  words += word_of(is_deepspeed ? setup.weights : setup.mixed_precision) + "'\n";
  words += "num_machines: " + std::to_string(setup.nodes) + "\n";
  words += "num_processes: " + std::to_string(setup.ranks * setup.replicas) + "\n";
  if (setup.replicas > 1) {
    words += "parallelism_config:\n  parallelism_config_cp_size: 1\n";
    words += "  parallelism_config_dp_replicate_size: " + std::to_string(setup.replicas) + "\n";
    words += "  parallelism_config_dp_shard_size: " + std::to_string(setup.ranks) + "\n";
    words += "  parallelism_config_tp_size: 1\n";
  }
  return words + "use_cpu: false\n";
}

std::string accelerate_line(const TrainingSetup& setup, const std::string& file) {
  std::string line = "accelerate launch --config_file " + shell_word(file);
  if (setup.nodes > 1) {
    line += " --machine_rank $NODE_RANK --main_process_ip $HEAD_NODE --main_process_port 29500";
  }
  return line + " train.py";
}

}  // namespace headroom::engines
