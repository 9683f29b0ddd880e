"""What a compiled layer keeps for its backward pass, held against PyTorch's own partitioner.

The layer of a tiny random model is compiled with the partitioner and the decompositions that
torch.compile uses, up to where code would be generated; what its backward graph is given is
counted. Ours comes of the symbolic step, as what one more layer leaves behind after forward.
"""

import collections
import json
import warnings

import pytest
import torch
import transformers
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import step_dump

BATCH, SEQUENCE = 2, 128
# A flash kernel on a GPU returns two blocks for its random numbers, of which a CPU has none.
SEED_BYTES = 16 + 8

SIZES = {"hidden_size": 64, "intermediate_size": 224, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 256}
MODELS = {
    "llama": {"model_type": "llama", **SIZES},
    "qwen2": {"model_type": "qwen2", **SIZES},
    "qwen3": {"model_type": "qwen3", "head_dim": 16, **SIZES},
    "gpt2": {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "vocab_size": 96,
             "n_positions": 256, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0},
}
# A LayerNorm's mean and deviation are in the type of its input on a CPU, in float32 on a GPU.
LAYER_NORMS = {"gpt2": 2}
CHECKPOINTS = {"none": "none", "full": "non_reentrant", "selective": "selective-every-2"}

PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def every_second_product():
    """torchtitan's policy: attention and all products but every second."""
    products = collections.Counter()

    def policy(context, operator, *_args, **_kwargs):
        run = "again" if context.is_recompute else "first"
        products[run] += operator in PRODUCTS
        kept = operator == ATTENTION or (operator in PRODUCTS and products[run] % 2)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def checkpointed(layer, kind):
    if kind == "none":
        return layer
    context = {"context_fn": every_second_product} if kind == "selective" else {}

    def run(*args, **kwargs):
        return checkpoint(layer, *args, use_reentrant=False, preserve_rng_state=False,
                          **context, **kwargs)

    return run


def first_layer(model):
    """The layer and what the model calls it with."""
    calls = []
    decoder = getattr(model, "transformer", None) or model.model
    layer = (decoder.h if hasattr(decoder, "h") else decoder.layers)[0]
    handle = layer.register_forward_pre_hook(
        lambda _module, args, kwargs: calls.append((args, kwargs)), with_kwargs=True)
    model(torch.zeros(BATCH, SEQUENCE, dtype=torch.int64), use_cache=False)
    handle.remove()
    args, kwargs = calls[0]
    hidden = args[0].detach().requires_grad_()
    return layer, (hidden, *args[1:]), kwargs


def kept_by_torch(config, kind):
    """Bytes of the blocks that backward is given, parameters and the gradient apart."""
    torch._dynamo.reset()
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config), attn_implementation="sdpa").to(torch.bfloat16)
    layer, args, kwargs = first_layer(model)
    backward = []

    def take_backward(module, _inputs):
        backward.append(module)
        return module

    backend = aot_autograd(
        fw_compiler=lambda module, _inputs: module, bw_compiler=take_backward,
        partition_fn=min_cut_rematerialization_partition, decompositions=select_decomp_table())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of graphs that are run as they are
        outputs = torch.compile(checkpointed(layer, kind), backend=backend, fullgraph=True)(
            *args, **kwargs)
    (outputs[0] if isinstance(outputs, tuple) else outputs).sum().backward()
    blocks = {}
    for node in backward[0].graph.nodes:
        value = node.meta.get("val")
        is_given = node.op == "placeholder" and isinstance(value, torch.Tensor)
        if is_given and not node.name.startswith(("primals", "tangents", "rng_state")):
            blocks[StorageWeakRef(value.untyped_storage())] = value.untyped_storage().nbytes()
    return sum(blocks.values()) + args[0].untyped_storage().nbytes()


def kept_by_us(config, kind, tmp_path):
    """What the second of three layers leaves."""
    path = tmp_path / "config.json"
    layers = "n_layer" if "n_layer" in config or "n_embd" in config else "num_hidden_layers"
    path.write_text(json.dumps({**config, layers: 3}))
    events = step_dump.run(path, batch=BATCH, seq=SEQUENCE, dtype="bfloat16", attention="sdpa",
                           sdpa="flash", compile="layers",
                           checkpointing=CHECKPOINTS[kind])["events"]
    after = {}
    for event in events:
        if event["phase"] == "forward" and event["step"] == 1:
            after[event["module"]] = event["live"]
    first, second = (next(live for module, live in after.items() if module.endswith(f".{layer}"))
                     for layer in (0, 1))
    return second - first


@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd")
@pytest.mark.parametrize("kind", CHECKPOINTS)
@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_layer_keeps_what_the_partitioner_keeps(name, kind, tmp_path):
    on_a_gpu = 0 if kind == "full" else SEED_BYTES
    if kind == "none":
        on_a_gpu += LAYER_NORMS.get(name, 0) * 2 * BATCH * SEQUENCE * (4 - 2)
    theirs = kept_by_torch(MODELS[name], kind)
    assert kept_by_us(MODELS[name], kind, tmp_path) == theirs + on_a_gpu
