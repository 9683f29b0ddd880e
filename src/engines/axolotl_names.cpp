#include "engines/axolotl_names.h"

#include <algorithm>
#include <string>

namespace headroom::engines {

namespace {

constexpr size_t kMostNamed = 8;

constexpr std::string_view kRead =
    " base_model model_type bf16 fp16 bfloat16 float16 tf32 micro_batch_size "
    "gradient_accumulation_steps max_grad_norm optimizer gradient_checkpointing "
    "gradient_checkpointing_kwargs attn_implementation xformers_attention sage_attention "
    "flex_attention flash_attention sdp_attention eager_attention sdpa_varlen sequence_len "
    "pad_to_multiple_of pad_to_sequence_len sample_packing adapter load_in_4bit load_in_8bit "
    "bnb_config_kwargs lora_r lora_alpha lora_dropout lora_model_dir lora_target_modules "
    "lora_target_linear lora_fan_in_fan_out lora_mlp_kernel lora_qkv_kernel lora_o_kernel "
    "lora_embedding_kernel peft_use_dora peft_use_rslora peft_autocast_adapter_dtype plugins "
    "cut_cross_entropy deepspeed accelerator_config fsdp fsdp_config fsdp_version "
    "dp_shard_size dp_replicate_size tensor_parallel_size context_parallel_size "
    "sequence_parallel_degree expert_parallel_size experts_implementation trust_remote_code "
    "ddp_bucket_cap_mb ddp_find_unused_parameters nproc_per_node nnodes num_processes "
    "num_machines num_gpus ";

// Data, logs, schedules, checkpoints on disk.
constexpr std::string_view kBesideThePoint =
    " datasets test_datasets pretraining_dataset shuffle_merged_datasets batch_size "
    "batch_flattening num_epochs max_steps learning_rate weight_decay output_dir "
    "val_set_size chat_template chat_template_jinja special_tokens tokens eot_tokens "
    "added_tokens_overrides seed strict debug resume_from_checkpoint "
    "auto_resume_from_checkpoints early_stopping_patience load_best_model_at_end "
    "metric_for_best_model greater_is_better train_on_inputs group_by_length "
    "remove_unused_columns skip_prepare_dataset push_dataset_to_hub local_rank xformers "
    "device device_map ddp ddp_timeout ddp_broadcast_buffers evaluation_strategy "
    "do_bench_eval do_causal_lm_eval neftune_noise_alpha reinit_weights low_cpu_mem_usage "
    "curriculum_sampling multipack_real_batches resize_token_embeddings_to_32x "
    "shrink_embeddings mean_resizing_embeddings embeddings_skip_upcast profiler_steps "
    "gc_steps torch_empty_cache_steps min_sample_len torchdistx_path "
    "experimental_skip_move_to_device qlora_sharded_model_loading include_tkps "
    "include_tokens_per_second use_wandb use_mlflow use_tensorboard use_comet use_ray "
    "is_llama_derived_model is_mistral_derived_model revision_of_model "
    "excess_length_strategy roles_to_train ";
constexpr auto kBeginnings =
    std::to_array<std::string_view>({"wandb_",         "mlflow_",  "comet_",      "swanlab_",
                                     "use_swanlab",    "trackio_", "use_trackio", "otel_",
                                     "use_otel",       "hub_",     "hf_use_",     "eval_",
                                     "evals_",         "save_",    "saves_",      "logging_",
                                     "warmup_",        "lr_",      "adam_",       "cosine_",
                                     "loss_watchdog_", "dataset_", "dataloader_", "tokenizer_",
                                     "ray_",           "liger_",   "loraplus_",   "sample_packing_",
                                     "base_model_",    "streaming"});

bool has_word(std::string_view words, std::string_view word) {
  return word.find(' ') == std::string_view::npos &&
         words.find(" " + std::string(word) + " ") != std::string_view::npos;
}

bool is_known(std::string_view name) {
  return has_word(kRead, name) || has_word(kBesideThePoint, name) ||
         std::ranges::find(kAxolotlRefused, name) != kAxolotlRefused.end() ||
         std::ranges::any_of(kBeginnings,
                             [&](std::string_view begin) { return name.starts_with(begin); });
}

}  // namespace

void note_axolotl_names(const SettingValues& in, TrainingSetup& setup) {
  std::string names;
  size_t count = 0;
  for (const auto& [name, value] : in.view().json().members()) {
    if (is_known(name) || !in.is_on(name)) continue;
    if (++count <= kMostNamed) names += (names.empty() ? "" : ", ") + name.substr(0, 60);
  }
  if (count == 0) return;
  if (count > kMostNamed) names += " and " + std::to_string(count - kMostNamed) + " more";
  setup.notes.push_back("nobody looked at what these mean for memory: " + names);
}

}  // namespace headroom::engines
