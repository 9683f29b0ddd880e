// Members of axolotl's configuration by what they mean for a step's memory and time.
#pragma once

#include <array>
#include <string_view>

#include "engines/setting_values.h"
#include "engines/training_setup.h"

namespace headroom::engines {

// That other files with a base_model have not.
inline constexpr auto kAxolotlOwn = std::to_array<std::string_view>(
    {"micro_batch_size", "sequence_len", "datasets", "sample_packing", "adapter",
     "lora_target_linear", "pretraining_dataset"});

// What changes memory and is not modelled, where it is on.
inline constexpr auto kAxolotlRefused = std::to_array<std::string_view>(
    {// another objective, or another model beside
     "rl", "reward_model", "process_reward_model", "use_eaft", "ebft", "diffusion", "orpo_alpha",
     // other weights
     "gptq", "qat", "fp8", "fp32_norms", "use_onebitllms", "model_quantization_config",
     "quantize_moe_experts", "model_config", "overrides_of_model_config",
     "overrides_of_model_kwargs", "llama4_linearized_experts", "llmcompressor", "processor_type",
     "gpu_memory_limit", "max_memory",
     // other parts that are trained
     "unfrozen_parameters", "lora_modules_to_save", "lora_target_parameters",
     "peft_layers_to_transform", "peft_layer_replication", "peft_trainable_token_indices",
     "lora_rank_pattern", "lora_exclude_modules", "lora_on_cpu", "peft", "relora", "lisa_n_layers",
     "optim_target_modules",
     // other kernels, losses and recomputation
     "torch_compile", "deepcompile", "tiled_mlp", "chunked_cross_entropy",
     "flash_attn_cross_entropy", "flash_attn_fuse_mlp", "flash_attn_fuse_qkv",
     "flash_attn_rms_norm", "fused_attn_kernel", "flash_optimum", "gemma4_hybrid_attn_impl",
     "scaling_softmax", "use_scattermoe", "use_sonicmoe", "use_kernels", "s2_attention",
     "activation_offloading", "layer_offloading", "selective_checkpointing", "use_dsv4_kernels",
     "use_glm_dsa_kernels", "nvfp4_merge_aware"});

// Adds a note that names the members that are neither read nor known to decide nothing.
void note_axolotl_names(const SettingValues& in, TrainingSetup& setup);

}  // namespace headroom::engines
