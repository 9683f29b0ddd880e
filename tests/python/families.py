"""Tiny random configurations, one a family of models, and the config.json files made from them.

Every dimension of a family has its own number where the architecture lets it, so that two mixed-up
dimensions show as a wrong shape. `python tests/python/families.py` rewrites tests/python/configs.
The names are those of the files; the model types are transformers' own.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

CONFIGS = Path(__file__).with_name("configs")

_VOCAB = 101
_COMMON = {"vocab_size": _VOCAB, "hidden_size": 48, "intermediate_size": 88,
           "num_hidden_layers": 2, "num_attention_heads": 6, "max_position_embeddings": 64}
_GROUPED = {**_COMMON, "num_key_value_heads": 3}
_WIDE_HEAD = {**_GROUPED, "hidden_size": 48, "num_attention_heads": 6, "head_dim": 24}
_GEMMA4 = {**_WIDE_HEAD, "global_head_dim": 32, "sliding_window": 10, "layer_types": ["sliding_attention", "full_attention"]}
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


@dataclass(frozen=True)
class Family:
    """A name, the config.json, and how its model is trained."""

    name: str
    config: dict
    head: str = "causal_lm"
    data_dependent: bool = False
    lora_targets: tuple = field(default=())


def _family(name, model_type, values, **rest):
    return Family(name, {"model_type": model_type, **values}, **rest)


def _decoders():
    return [
        _family("opt", "opt", {
            "vocab_size": _VOCAB, "hidden_size": 48, "word_embed_proj_dim": 48, "ffn_dim": 88,
            "num_hidden_layers": 2, "num_attention_heads": 6, "max_position_embeddings": 64,
            "dropout": 0.1, "do_layer_norm_before": True, **_TOKENS}),
        _family("opt_post_norm", "opt", {
            "vocab_size": _VOCAB, "hidden_size": 48, "word_embed_proj_dim": 32, "ffn_dim": 88,
            "num_hidden_layers": 2, "num_attention_heads": 6, "max_position_embeddings": 64,
            "dropout": 0.1, "do_layer_norm_before": False, **_TOKENS}),
        _family("bloom", "bloom", {
            "vocab_size": _VOCAB, "hidden_size": 48, "n_layer": 2, "n_head": 6,
            "hidden_dropout": 0.0, "attention_dropout": 0.0, **_TOKENS}),
        _family("codegen", "codegen", {
            "vocab_size": _VOCAB, "n_positions": 64, "n_ctx": 64, "n_embd": 64, "n_layer": 2,
            "n_head": 4, "rotary_dim": 8, "n_inner": None, **_TOKENS,
            "tie_word_embeddings": False}),
        _family("biogpt", "biogpt", {
            **_COMMON, "activation_dropout": 0.0, "layerdrop": 0.0, **_TOKENS}),
        _family("gpt_bigcode", "gpt_bigcode", {
            "vocab_size": _VOCAB, "n_positions": 64, "n_embd": 48, "n_layer": 2, "n_head": 6,
            "n_inner": 104, "multi_query": True, **_TOKENS}),
        _family("gpt_neo", "gpt_neo", {
            "vocab_size": _VOCAB, "max_position_embeddings": 64, "hidden_size": 48,
            "num_layers": 2, "num_heads": 6, "intermediate_size": 88, "window_size": 11,
            "attention_types": [[["global", "local"], 1]], **_TOKENS}),
        _family("gpt2", "gpt2", {
            "vocab_size": _VOCAB, "n_positions": 64, "n_embd": 48, "n_layer": 2, "n_head": 6,
            "n_inner": 88, **_TOKENS}),
        _family("gptj", "gptj", {
            "vocab_size": _VOCAB, "n_positions": 64, "n_embd": 48, "n_layer": 2, "n_head": 3,
            "rotary_dim": 8, "n_inner": 88, "tie_word_embeddings": False, **_TOKENS}),
        _family("gpt_neox", "gpt_neox", {
            **_COMMON, "num_attention_heads": 3, "rotary_pct": 0.25, **_TOKENS}),
        _family("gpt_neox_serial", "gpt_neox", {
            **_COMMON, "num_attention_heads": 3, "rotary_pct": 1.0, "hidden_act": "gelu_fast",
            "use_parallel_residual": False, "attention_bias": False, "hidden_dropout": 0.1,
            "attention_dropout": 0.1, "tie_word_embeddings": True, **_TOKENS}),
        _family("llama", "llama", {**_GROUPED, **_TOKENS}),
        _family("llama_tied", "llama", {
            **_GROUPED, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True,
            "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                                "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                "original_max_position_embeddings": 32}, **_TOKENS}),
        _family("mistral", "mistral", {**_GROUPED, "sliding_window": 10, **_TOKENS}),
        _family("qwen2", "qwen2", {**_GROUPED, **_TOKENS}),
        _family("qwen3", "qwen3", {**_WIDE_HEAD, **_TOKENS}),
        _family("gemma", "gemma", {**_WIDE_HEAD, **_TOKENS}),
        _family("gemma2", "gemma2", {**_WIDE_HEAD, "sliding_window": 10,
                                     "query_pre_attn_scalar": 24, **_TOKENS}),
        _family("gemma3_text", "gemma3_text", {**_WIDE_HEAD, "sliding_window": 10,
                                               "query_pre_attn_scalar": 24, **_TOKENS}),
        # Dense; keys and values taken over, and embeddings for layers; a mixture beside the feed-forward part.
        _family("gemma4_text", "gemma4_text", {
            **_GEMMA4, "hidden_size_per_layer_input": 0, "attention_k_eq_v": True, "num_global_key_value_heads": 1, **_TOKENS}),
        _family("gemma4_text_shared", "gemma4_text", {
            **_GEMMA4, "num_hidden_layers": 5, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": _VOCAB,
            "num_kv_shared_layers": 2, "use_double_wide_mlp": True, "final_logit_softcapping": 30.0,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
            **_TOKENS}),
        _family("gemma4_text_mixture", "gemma4_text", {
            **_GEMMA4, "hidden_size_per_layer_input": 0, "enable_moe_block": True, "num_experts": 5, "top_k_experts": 2,
            "moe_intermediate_size": 32, **_TOKENS}),
        _family("phi", "phi", {**_COMMON, "num_attention_heads": 3,
                               "partial_rotary_factor": 0.5, **_TOKENS}),
        _family("phi_normed", "phi", {
            **_GROUPED, "num_attention_heads": 6, "num_key_value_heads": 3,
            "partial_rotary_factor": 0.5, "qk_layernorm": True, "resid_pdrop": 0.1,
            "embd_pdrop": 0.1, "attention_dropout": 0.1, **_TOKENS}),
        _family("phi3", "phi3", {**_GROUPED, "sliding_window": None, **_TOKENS}),
        _family("falcon", "falcon", {
            "vocab_size": _VOCAB, "hidden_size": 48, "num_hidden_layers": 2,
            "num_attention_heads": 6, "multi_query": True, "parallel_attn": True, "bias": False,
            "max_position_embeddings": 64, "ffn_hidden_size": 88, **_TOKENS}),
        _family("falcon_new", "falcon", {
            "vocab_size": _VOCAB, "hidden_size": 48, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_kv_heads": 3, "new_decoder_architecture": True,
            "parallel_attn": True, "bias": False, "max_position_embeddings": 64,
            "ffn_hidden_size": 88, **_TOKENS}),
        _family("falcon_rw", "falcon", {
            "vocab_size": _VOCAB, "hidden_size": 48, "num_hidden_layers": 2,
            "num_attention_heads": 6, "alibi": True, "multi_query": False, "parallel_attn": False,
            "bias": True, "ffn_hidden_size": 88, "hidden_dropout": 0.1, "attention_dropout": 0.1,
            **_TOKENS}),
        _family("stablelm", "stablelm", {**_GROUPED, "num_attention_heads": 3,
                                         "num_key_value_heads": 3,
                                         "partial_rotary_factor": 0.5, **_TOKENS}),
        _family("stablelm_parallel", "stablelm", {
            **_GROUPED, "num_attention_heads": 6, "num_key_value_heads": 3,
            "partial_rotary_factor": 0.5, "use_parallel_residual": True, "qk_layernorm": True,
            "use_qkv_bias": True, "hidden_dropout": 0.1, **_TOKENS}),
        _family("starcoder2", "starcoder2", {
            **_GROUPED, "sliding_window": 10, "residual_dropout": 0.1, "embedding_dropout": 0.1,
            "attention_dropout": 0.1, **_TOKENS}),
        _family("granite", "granite", {**_GROUPED, **_TOKENS}),
        _family("powerlm", "granite", {**_GROUPED, "num_key_value_heads": 6,
                                       "embedding_multiplier": 12, "residual_multiplier": 0.22,
                                       "attention_multiplier": 0.125, "logits_scaling": 6.0,
                                       "tie_word_embeddings": True, **_TOKENS}),
        _family("glm4", "glm4", {**_WIDE_HEAD, "partial_rotary_factor": 0.5,
                                 "attention_bias": True, **_TOKENS}),
        _family("glm", "glm", {**_WIDE_HEAD, "partial_rotary_factor": 0.5,
                               "attention_bias": True, **_TOKENS}),
        _family("arcee", "arcee", {**_GROUPED, **_TOKENS}),
        _family("cohere", "cohere", {**_GROUPED, **_TOKENS}),
        _family("cohere_normed", "cohere", {**_GROUPED, "use_qk_norm": True,
                                            "attention_bias": True,
                                            "tie_word_embeddings": False, **_TOKENS}),
        _family("cohere2", "cohere2", {
            **_GROUPED, "sliding_window": 10,
            "layer_types": ["sliding_attention", "full_attention"], **_TOKENS}),
        _family("ernie4_5", "ernie4_5", {**_WIDE_HEAD, "use_bias": True, **_TOKENS}),
        _family("exaone4", "exaone4", {
            **_GROUPED, "sliding_window": 10, "sliding_window_pattern": "LG",
            "layer_types": ["sliding_attention", "full_attention"], **_TOKENS}),
        _family("helium", "helium", {**_GROUPED, "head_dim": 8, **_TOKENS}),
        _family("hunyuan_v1_dense", "hunyuan_v1_dense", {**_WIDE_HEAD, **_TOKENS}),
        _family("olmo", "olmo", {**_GROUPED, **_TOKENS}),
        _family("olmo_clipped", "olmo", {**_GROUPED, "clip_qkv": 8.0, **_TOKENS}),
        _family("olmo2", "olmo2", {**_GROUPED, **_TOKENS}),
        _family("olmo3", "olmo3", {
            **_GROUPED, "sliding_window": 10,
            "layer_types": ["sliding_attention", "full_attention"], **_TOKENS}),
        _family("seed_oss", "seed_oss", {**_WIDE_HEAD, **_TOKENS}),
        _family("smollm3", "smollm3", {**_GROUPED, "no_rope_layers": [1, 0], **_TOKENS}),
        _family("smollm3_windowed", "smollm3", {
            **_GROUPED, "no_rope_layer_interval": 2, "use_sliding_window": True,
            "sliding_window": 10, "tie_word_embeddings": False, **_TOKENS}),
    ]


_QWEN_TOWER = {"depth": 2, "hidden_size": 32, "out_hidden_size": 48, "intermediate_size": 40,
               "num_heads": 4, "patch_size": 7}


def _with_images():
    """Language models beside a tower that reads images."""
    return [
        _family("gemma4", "gemma4", {
            "text_config": {**_GEMMA4, "num_hidden_layers": 5, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": _VOCAB,
                            "num_kv_shared_layers": 2, "final_logit_softcapping": 30.0,
                            # Of one kind, as below.
                            "layer_types": ["full_attention"] * 5, **_TOKENS},
            "vision_config": {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
                              "head_dim": 8, "position_embedding_size": 20, "use_clipped_linears": True, "standardize": True},
            "audio_config": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "subsampling_conv_channels": [8, 4],
                             "output_proj_dims": 24},
            "image_token_id": 90, "video_token_id": 91, "audio_token_id": 92}),
        _family("gemma4_images", "gemma4", {
            "text_config": {**_GEMMA4, "hidden_size_per_layer_input": 0, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
                            "layer_types": ["full_attention"] * 2, **_TOKENS},
            "vision_config": {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                              "head_dim": 8, "position_embedding_size": 20},
            "image_token_id": 90, "video_token_id": 91, "audio_token_id": 92}),
        _family("gemma3", "gemma3", {
            # Of one kind: transformers makes the masks in the order of a set.
            "text_config": {**_WIDE_HEAD, "sliding_window": 10, "query_pre_attn_scalar": 24,
                            "layer_types": ["sliding_attention"] * 2, **_TOKENS},
            "vision_config": {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
                              "num_attention_heads": 4, "image_size": 28, "patch_size": 7},
            "mm_tokens_per_image": 4, "image_token_index": 100}),
        _family("mistral3", "mistral3", {
            "text_config": {"model_type": "mistral", **_WIDE_HEAD, "sliding_window": None,
                            **_TOKENS},
            "vision_config": {"model_type": "pixtral", "hidden_size": 32, "intermediate_size": 40,
                              "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 28,
                              "patch_size": 7, "head_dim": 8},
            "tie_word_embeddings": False}),
        _family("ministral3", "ministral3", {**_WIDE_HEAD, **_TOKENS}),
        _family("qwen2_vl", "qwen2_vl", {
            **_GROUPED, **_TOKENS, "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]},
            "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 48, "mlp_ratio": 2,
                              "num_heads": 4, "patch_size": 7}}),
        _family("qwen2_5_vl", "qwen2_5_vl", {
            "text_config": {**_GROUPED, **_TOKENS,
                            "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}},
            "vision_config": _QWEN_TOWER}),
        _family("qwen3_vl", "qwen3_vl", {
            "text_config": {**_WIDE_HEAD, **_TOKENS},
            "vision_config": {**_QWEN_TOWER, "num_position_embeddings": 16,
                              "deepstack_visual_indexes": [0, 1]},
            "tie_word_embeddings": True}),
    ]


_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
_LATENT = {**_COMMON, "num_attention_heads": 6, "num_key_value_heads": 6, "kv_lora_rank": 20,
           "q_lora_rank": 36, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24,
           "n_routed_experts": 5, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
           "first_k_dense_replace": 1, **_EXPERTS}


def _experts():
    return [
        _family("mixtral", "mixtral", {**_GROUPED, "num_local_experts": 5,
                                       "num_experts_per_tok": 2, **_TOKENS}, data_dependent=True),
        _family("qwen2_moe", "qwen2_moe", {
            **_GROUPED, **_EXPERTS, "num_experts": 5, "shared_expert_intermediate_size": 56,
            **_TOKENS}, data_dependent=True),
        _family("qwen3_moe", "qwen3_moe", {**_WIDE_HEAD, **_EXPERTS, "num_experts": 5, **_TOKENS},
                data_dependent=True),
        _family("olmoe", "olmoe", {
            **_GROUPED, "num_experts": 5, "num_experts_per_tok": 2, "clip_qkv": 8.0, **_TOKENS},
            data_dependent=True),
        _family("dots1", "dots1", {
            **_WIDE_HEAD, **_EXPERTS, "n_routed_experts": 8, "n_shared_experts": 2, "n_group": 4,
            "topk_group": 2, "first_k_dense_replace": 1, "norm_topk_prob": True, **_TOKENS},
            data_dependent=True),
        _family("dots1_sliding", "dots1", {
            **_WIDE_HEAD, **_EXPERTS, "n_routed_experts": 5, "n_shared_experts": 1,
            "attention_bias": True, "max_window_layers": 0, "sliding_window": 10, **_TOKENS},
            data_dependent=True),
        _family("qwen3_5", "qwen3_5_text", {
            **_WIDE_HEAD, "linear_key_head_dim": 12, "linear_value_head_dim": 20,
            "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_conv_kernel_dim": 4,
            "layer_types": ["linear_attention", "full_attention"], **_TOKENS}),
        _family("qwen3_5_moe", "qwen3_5_moe_text", {
            **_WIDE_HEAD, **_EXPERTS, "num_experts": 5, "shared_expert_intermediate_size": 56,
            "linear_key_head_dim": 12, "linear_value_head_dim": 20, "linear_num_key_heads": 2,
            "linear_num_value_heads": 4, "linear_conv_kernel_dim": 4,
            "layer_types": ["linear_attention", "full_attention"], **_TOKENS},
            data_dependent=True),
        _family("qwen3_next", "qwen3_next", {
            **_WIDE_HEAD, **_EXPERTS, "num_experts": 5, "shared_expert_intermediate_size": 56,
            "linear_key_head_dim": 12, "linear_value_head_dim": 20, "linear_num_key_heads": 2,
            "linear_num_value_heads": 4, "linear_conv_kernel_dim": 4,
            "layer_types": ["linear_attention", "full_attention"], **_TOKENS},
            data_dependent=True),
        _family("glm4_moe", "glm4_moe", {
            **_WIDE_HEAD, **_EXPERTS, "n_routed_experts": 5, "n_shared_experts": 1, "n_group": 1,
            "topk_group": 1, "first_k_dense_replace": 1, "use_qk_norm": True,
            "attention_bias": True, **_TOKENS}, data_dependent=True),
        _family("llama4_text", "llama4_text", {
            **_WIDE_HEAD, "intermediate_size_mlp": 72, "num_local_experts": 5,
            "num_experts_per_tok": 2, "no_rope_layer_interval": 2, "attention_chunk_size": 10,
            "floor_scale": 8, **_TOKENS}),
        _family("llama4", "llama4", {
            "text_config": {
                "model_type": "llama4_text", **_WIDE_HEAD, "num_hidden_layers": 3,
                "intermediate_size_mlp": 72, "num_local_experts": 5, "num_experts_per_tok": 1,
                "no_rope_layers": [1, 1, 0], "interleave_moe_layer_step": 2,
                "use_qk_norm": False, "attn_temperature_tuning": False, "attention_bias": True,
                **_TOKENS},
            "tie_word_embeddings": False}),
        _family("phimoe", "phimoe", {
            **_GROUPED, "num_local_experts": 5, "num_experts_per_tok": 2, **_TOKENS},
            data_dependent=True),
        _family("phimoe_jittered", "phimoe", {
            **_GROUPED, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 10,
            "input_jitter_noise": 0.01, "attention_bias": True, "lm_head_bias": True, **_TOKENS},
            data_dependent=True),
        _family("ernie4_5_moe", "ernie4_5_moe", {
            **_WIDE_HEAD, "moe_intermediate_size": 32, "moe_num_experts": 5, "moe_k": 2,
            "moe_num_shared_experts": 2, "use_bias": True, **_TOKENS}, data_dependent=True),
        _family("ernie4_5_moe_alone", "ernie4_5_moe", {
            **_GROUPED, "num_hidden_layers": 3, "moe_intermediate_size": 32, "moe_num_experts": 5,
            "moe_k": 2, "moe_num_shared_experts": 0, "moe_layer_interval": 2,
            "moe_layer_end_index": 2, "tie_word_embeddings": False, **_TOKENS},
            data_dependent=True),
        _family("glm4_moe_lite", "glm4_moe_lite", {**_LATENT, **_TOKENS}, data_dependent=True),
        _family("deepseek_v32", "deepseek_v32", {
            **_LATENT, "index_n_heads": 3, "index_head_dim": 16, "index_topk": 7, **_TOKENS},
            data_dependent=True),
        _family("glm_moe_dsa", "glm_moe_dsa", {
            **_LATENT, "index_n_heads": 3, "index_head_dim": 16, "index_topk": 7, **_TOKENS},
            data_dependent=True),
        _family("glm_moe_dsa_shared", "glm_moe_dsa", {
            **_LATENT, "num_hidden_layers": 3, "index_n_heads": 3, "index_head_dim": 16,
            "index_topk": 40, "indexer_types": ["full", "shared", "full"],
            "attention_bias": True, **_TOKENS}, data_dependent=True),
        _family("qwen3_next_dense", "qwen3_next", {
            **_WIDE_HEAD, **_EXPERTS, "num_experts": 5, "shared_expert_intermediate_size": 56,
            "linear_key_head_dim": 12, "linear_value_head_dim": 20, "linear_num_key_heads": 3,
            "linear_num_value_heads": 3, "linear_conv_kernel_dim": 3, "attention_bias": True,
            "mlp_only_layers": [1], "norm_topk_prob": False, "tie_word_embeddings": True,
            "full_attention_interval": 2, **_TOKENS}, data_dependent=True),
        _family("minimax", "minimax", {
            **_GROUPED, "head_dim": 8, "num_local_experts": 5, "num_experts_per_tok": 2,
            "block_size": 8, "layer_types": ["linear_attention", "full_attention"], **_TOKENS},
            data_dependent=True),
        _family("minimax_m2", "minimax_m2", {
            **_WIDE_HEAD, "num_local_experts": 5, "num_experts_per_tok": 2, "rotary_dim": 12,
            **_TOKENS}, data_dependent=True),
        _family("granitemoe", "granitemoe", {
            **_GROUPED, "num_local_experts": 5, "num_experts_per_tok": 2,
            "embedding_multiplier": 12, "residual_multiplier": 0.22, "logits_scaling": 6.0,
            "attention_multiplier": 0.125, **_TOKENS}, data_dependent=True),
        _family("deepseek_v2", "deepseek_v2", {**_LATENT, "topk_method": "greedy", **_TOKENS},
                data_dependent=True),
        _family("deepseek_v3", "deepseek_v3", {**_LATENT, **_TOKENS}, data_dependent=True),
        _family("kimi_k2", "deepseek_v3", {**_LATENT, "n_routed_experts": 7,
                                           "routed_scaling_factor": 2.827, **_TOKENS},
                data_dependent=True),
        _family("gpt_oss", "gpt_oss", {
            **_WIDE_HEAD, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 10,
            **_TOKENS}, data_dependent=True),
    ]


def _others():
    return [
        _family("bert", "bert", {**_COMMON, "type_vocab_size": 2, **_TOKENS}, head="masked_lm"),
        _family("roberta", "roberta", {  # two positions are padding's
            **_COMMON, "max_position_embeddings": 66, "type_vocab_size": 1, "bos_token_id": 0, "eos_token_id": 2,
            "pad_token_id": 1}, head="masked_lm"),
        _family("camembert", "camembert", {
            **_COMMON, "max_position_embeddings": 66, "type_vocab_size": 1, "bos_token_id": 0, "eos_token_id": 2,
            "pad_token_id": 1}, head="masked_lm"),
        _family("deberta_v2", "deberta-v2", {
            **_COMMON, "type_vocab_size": 0, "relative_attention": True, "position_buckets": 12,
            "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": "p2c|c2p",
            "position_biased_input": False, "pooler_dropout": 0.1, **_TOKENS}, head="masked_lm"),
        _family("deberta_v2_positions", "deberta-v2", {
            **_COMMON, "type_vocab_size": 2, "relative_attention": True,
            "max_relative_positions": 20, "pos_att_type": ["c2p"], "position_biased_input": True, **_TOKENS},
            head="masked_lm"),
        _family("distilbert", "distilbert", {
            "vocab_size": _VOCAB, "dim": 48, "hidden_dim": 88, "n_layers": 2, "n_heads": 6,
            "max_position_embeddings": 64, "pad_token_id": 0}, head="masked_lm"),
        _family("electra", "electra", {
            **_COMMON, "embedding_size": 40, "type_vocab_size": 2, **_TOKENS}, head="masked_lm"),
        _family("electra_wide", "electra", {
            **_COMMON, "embedding_size": 48, "type_vocab_size": 2, "hidden_act": "gelu_new",
            "tie_word_embeddings": False, **_TOKENS}, head="masked_lm"),
        _family("modernbert", "modernbert", {
            **_COMMON, "num_hidden_layers": 4, "local_attention": 10, "global_attn_every_n_layers": 3,
            "embedding_dropout": 0.1, "attention_dropout": 0.1, "mlp_dropout": 0.1,
            "classifier_dropout": 0.1, "classifier_pooling": "mean", **_TOKENS}, head="masked_lm"),
        _family("modernbert_biased", "modernbert", {
            **_COMMON, "local_attention": 128, "norm_bias": True, "attention_bias": True,
            "mlp_bias": True, "classifier_bias": True, "decoder_bias": False,
            "layer_types": ["sliding_attention", "sliding_attention"], "tie_word_embeddings": False,
            **_TOKENS}, head="masked_lm"),
        _family("mpnet", "mpnet", {  # padding is token 1, whatever the config says
            **_COMMON, "max_position_embeddings": 66, "relative_attention_num_buckets": 32, "bos_token_id": 0,
            "eos_token_id": 2, "pad_token_id": 1}, head="masked_lm"),
        _family("t5", "t5", {
            "vocab_size": _VOCAB, "d_model": 48, "d_kv": 8, "d_ff": 88, "num_layers": 2,
            "num_heads": 5, "relative_attention_num_buckets": 9,
            "relative_attention_max_distance": 30, "decoder_start_token_id": 0,
            "pad_token_id": 0, "eos_token_id": 1}, head="seq2seq_lm"),
        _family("t5_gated", "t5", {
            "vocab_size": _VOCAB, "d_model": 48, "d_kv": 8, "d_ff": 88, "num_layers": 2,
            "num_heads": 5, "relative_attention_num_buckets": 9, "feed_forward_proj": "gated-gelu",
            "relative_attention_max_distance": 30, "decoder_start_token_id": 0,
            "tie_word_embeddings": False, "pad_token_id": 0, "eos_token_id": 1},
            head="seq2seq_lm"),
        _family("vit", "vit", {
            "hidden_size": 48, "intermediate_size": 88, "num_hidden_layers": 2,
            "num_attention_heads": 6, "image_size": 28, "patch_size": 7, "num_channels": 3,
            "id2label": {str(i): f"LABEL_{i}" for i in range(10)}},
            head="image_classification"),
    ]


FAMILIES = {family.name: family for family in _decoders() + _with_images() + _experts() + _others()}


def write_configs(folder=CONFIGS):
    folder.mkdir(parents=True, exist_ok=True)
    for family in FAMILIES.values():
        text = json.dumps(family.config, indent=2) + "\n"
        (folder / f"{family.name}.json").write_text(text, encoding="utf-8")
    return len(FAMILIES)


if __name__ == "__main__":
    print(write_configs(), "configs", file=sys.stderr)
