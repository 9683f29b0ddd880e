"""What compiled layers and models keep for backward, held against PyTorch's own partitioner.

The layer of a tiny random model, or all of it, is compiled with the partitioner and the decompositions that
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


def backward_graphs(run):
    """What the partitioner hands to the backward pass of each graph of run(backend), a loss."""
    graphs = []

    def take_backward(module, _inputs):
        graphs.append(module)
        return module

    backend = aot_autograd(
        fw_compiler=lambda module, _inputs: module, bw_compiler=take_backward,
        partition_fn=min_cut_rematerialization_partition, decompositions=select_decomp_table())
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of graphs that are run as they are
        run(backend).backward()
    return [graph.graph for graph in graphs]


def kept_by_torch(config, kind):
    """Bytes of the blocks that backward is given, parameters and the gradient apart."""
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config), attn_implementation="sdpa").to(torch.bfloat16)
    layer, args, kwargs = first_layer(model)

    def run(backend):
        outputs = torch.compile(checkpointed(layer, kind), backend=backend, fullgraph=True)(
            *args, **kwargs)
        return (outputs[0] if isinstance(outputs, tuple) else outputs).sum()

    graph, = backward_graphs(run)
    blocks = {}
    for node in graph.nodes:
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


def whole_model(config, kind, layers):
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config, **layers_of(config, layers)),
        attn_implementation="sdpa").to(torch.bfloat16)
    model.config.use_cache = False
    if kind == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def layers_of(config, count):
    return {"n_layer" if "n_embd" in config else "num_hidden_layers": count}


def tokens(batch, sequence):
    ids = torch.zeros(batch, sequence, dtype=torch.int64)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def large(sizes):
    """Blocks of more than a few numbers a token: what a layer keeps, the mask, the logits."""
    return collections.Counter(size for size in sizes if size >= BATCH * SEQUENCE * 64)


def kept_of_the_model_by_torch(config, kind, layers):
    model = whole_model(config, kind, layers)
    graphs = backward_graphs(
        lambda backend: torch.compile(model, backend=backend)(**tokens(BATCH, SEQUENCE)).loss)
    blocks = {}
    for node in (node for graph in graphs for node in graph.nodes):
        value = node.meta.get("val")
        is_given = node.op == "placeholder" and isinstance(value, torch.Tensor)
        # A loss that is a graph of its own has the logits as an argument.
        is_argument = node.name.startswith(("primals", "tangents", "rng_state"))
        is_logits = (is_given and value.dim() == 3 and value.shape[-1] == config["vocab_size"]
                     and not node.name.startswith("tangents"))
        if is_given and (is_logits or not is_argument):
            blocks[StorageWeakRef(value.untyped_storage())] = value.untyped_storage().nbytes()
    return large(blocks.values())


def kept_of_the_model_by_us(config, kind, layers, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, **layers_of(config, layers)}))
    events = step_dump.run(path, batch=BATCH, seq=SEQUENCE, dtype="bfloat16", attention="sdpa",
                           sdpa="efficient", compile="model", checkpointing=CHECKPOINTS[kind],
                           log="blocks")
    live = {}
    for phase, what, size, _category, block in events:
        if phase == "backward":
            break
        if what == "release":
            live.pop(block, None)
        elif phase == "forward":
            live[block] = size
    return large(live.values())


@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd")
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable`")
@pytest.mark.parametrize("kind", ["none", "full"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2"])
def test_a_compiled_model_keeps_what_the_partitioner_keeps(name, kind, tmp_path):
    theirs = kept_of_the_model_by_torch(MODELS[name], kind, 3)
    assert sum(theirs.values()) >= 6
    assert kept_of_the_model_by_us(MODELS[name], kind, 3, tmp_path) == theirs


WIDE = {"hidden_size": 256, "intermediate_size": 896, "num_attention_heads": 8,
        "num_key_value_heads": 4, "vocab_size": 2000, "max_position_embeddings": 512}


def peak_in_torch(model, batches):
    """Bytes of the CPU's allocator at most in one step's passes, beyond what was there before."""
    def step():
        for _ in range(batches):
            model(**tokens(2, 512)).loss.backward()
        model.zero_grad(set_to_none=True)

    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                profile_memory=True) as profile:
        step()
    live = most = 0
    for event in sorted((event for event in profile.profiler.kineto_results.events()
                         if event.name() == "[memory]"), key=lambda event: event.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    return most


def peak_by_us(config, compiles, batches, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, **layers_of(config, 4)}))
    events = step_dump.run(path, batch=2, seq=512, dtype="bfloat16", attention="sdpa",
                           sdpa="efficient" if compiles else "flash", optimizer="sgd",
                           compile="model" if compiles else "none", accumulation=batches)["events"]
    passes = [event for event in events
              if event["step"] == 1 and event["phase"] in ("forward", "backward")]
    before = passes[0]["live"] - sum(passes[0]["allocs"]) + sum(passes[0]["frees"])
    return max(event["live"] + sum(event["frees"]) for event in passes) - before


@pytest.mark.parametrize("name, compiles, batches", [
    ("llama", False, 1), ("llama", True, 2),
    pytest.param("qwen3", True, 1, marks=pytest.mark.full)])
def test_a_compiled_models_code_holds_at_most_what_we_say(name, compiles, batches, tmp_path):
    """Of code that Inductor generates for a CPU, with the eager model as a check of the check."""
    config = {"model_type": name, **WIDE}
    torch._dynamo.reset()
    model = whole_model(config, "none", 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = peak_in_torch(torch.compile(model) if compiles else model, batches)
    assert peak_by_us(config, compiles, batches, tmp_path) == pytest.approx(theirs, rel=0.005)
