"""Llama-3.1-8B's shapes at several lengths, for `headroom bench nongemm FILE.py:FUNCTION`: the first four of its 32 layers and
its head, with random weights.

    headroom bench nongemm perf/gpu/llama_lengths.py:tokens_512 perf/gpu/llama_lengths.py:tokens_8192 \\
        --on cuda --engine pytorch,graphed --quantize none,int8 --batches 1
"""

import torch

LAYERS = 4
CONFIG = {"hidden_size": 4096, "num_hidden_layers": LAYERS, "num_attention_heads": 32, "num_key_value_heads": 8,
          "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
          "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}, "use_cache": False}


def _made(tokens):
    from headroom.nongemm_models import fill
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.initialization import no_init_weights
    with no_init_weights():
        model = LlamaForCausalLM._from_config(LlamaConfig(**CONFIG), dtype=torch.float16)
    fill(torch, model)
    words = torch.randint(CONFIG["vocab_size"], (1, tokens), generator=torch.Generator().manual_seed(1))
    return model, {"input_ids": words}


def tokens_512():
    return _made(512)


def tokens_2048():
    return _made(2048)


def tokens_8192():
    return _made(8192)
