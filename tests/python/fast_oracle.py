"""The oracle on Llama with fms-acceleration's fast kernels, as a program of its own (test_kernels.py).

`fast_oracle.py [arguments of headroom.memory_oracle]`: RMS norms, rotary embeddings and the loss are the
plugin's own functions, put where the plugin puts them. Its kernels are not run (triton_stub.py).
"""

import importlib
import importlib.util
import sys
import types

import triton_stub

from headroom import memory_oracle

PLUGIN = "fms_acceleration_foak"


def make_packages():
    """The plugin's packages without what they import (the rest of fms-acceleration)."""
    path = next(iter(importlib.util.find_spec(PLUGIN).submodule_search_locations))
    for part in ("", ".kernels", ".kernels.unsloth"):
        package = types.ModuleType(PLUGIN + part)
        package.__path__ = [path + part.replace(".", "/")]
        sys.modules[package.__name__] = package


def plugin_module(name):
    return importlib.import_module(f"{PLUGIN}.kernels.unsloth.{name}")


def main():
    triton_stub.install()
    memory_oracle.import_torch()
    make_packages()
    from transformers.loss.loss_utils import LOSS_MAPPING
    from transformers.models.llama import modeling_llama
    norms = plugin_module("rms_layernorm")
    modeling_llama.LlamaRMSNorm.forward = norms.fast_rms_layernorm
    rotary = plugin_module("rope_embedding")
    modeling_llama.apply_rotary_pos_emb = rotary.fast_rope_embedding
    losses = plugin_module("cross_entropy_loss")
    LOSS_MAPPING["ForCausalLM"] = losses.FastForCausalLMLoss
    return memory_oracle.main()


if __name__ == "__main__":
    sys.exit(main())
