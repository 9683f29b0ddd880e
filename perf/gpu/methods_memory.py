"""One rank on one GPU under what ranks_memory.py leaves out: tensor parallelism, pipelines, DeepSpeed's ZeRO, torch.compile.

As there, the group of processes is PyTorch's fake one: what is made, kept and let go is as it would be, by the real
allocator on a real device; what is trained is not, and NCCL's own memory is not there.

    python3 perf/gpu/methods_memory.py --out DIR --seconds 90 --alone 0 --beside 5
    python3 perf/gpu/methods_memory.py --list

The columns are train_memory.py's and a few more: `flags` is what `headroom fit CONFIG` is asked for the same rank, `stage`
which of a pipeline's it is. DeepSpeed is taken from $HEADROOM_DEEPSPEED, a folder with it and what it needs; without it its
settings fail, and say so. Files, families held aside and exit codes are train_memory.py's.
"""

import contextlib
import copy
import dataclasses
import os
import random
import sys
from pathlib import Path

# Several compile at once; by default each takes as many processes as there are cores.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]
import ranks_memory  # noqa: E402
import train_memory  # noqa: E402

COLUMNS = (*train_memory.COLUMNS, "way", "stage", "steady_peak_bytes", "before_steps_bytes", "flags")


@dataclasses.dataclass(frozen=True)
class Setting(train_memory.Setting):
    way: str = "tensor"      # which of WAYS it is of
    division: str = ""       # fit's word, tp:4 or fsdp2:2,tp:2; empty: undivided
    schedule: str = ""       # of a pipeline: gpipe, 1f1b, zero-bubble
    stage: int = 0
    accumulation: int = 1
    compiled: str = ""       # layers, or layers,loss
    bucket: int = 500000000  # elements that ZeRO reduces together

    def degree(self, method):
        """Of fsdp2:2,tp:4, method tp: 4; 1 where it is not among them."""
        return dict(part.split(":") for part in self.division.split(",") if part).get(method, 1)

    def ranks(self):
        ranks = 1
        for part in self.division.split(","):
            ranks *= int(part.partition(":")[2] or 1) if not part.startswith("vpp") else 1
        return ranks


@dataclasses.dataclass(frozen=True)
class Way:
    """Of each list as many draws of one level as of another."""

    share: int  # of 66 settings
    families: tuple
    divisions: tuple = ("",)
    schedules: tuple = ("",)
    compiled: tuple = ("",)
    tokens: tuple = (1024, 2048, 4096, 8192)
    attention: tuple = ("sdpa",)
    checkpointing: tuple = ("none", "full")
    dtypes: tuple = ("bfloat16", "bfloat16", "float32")
    buckets: tuple = (500000000,)
    optimizer: str = "adamw-foreach"


EMBEDDING_WHOLE = ("gpt_neox",)  # in transformers 5.23, too
LLAMAS = ("llama", "mistral", "qwen2", "qwen3")  # whose modules torchtitan's plan and PyTorch's stages are written for
WAYS = {
    # A DTensor beside plain tensors has torch.optim's loop.
    "tensor": Way(12, (*LLAMAS, "gpt_neox", "phi"), ("tp:2", "tp:4"), attention=("sdpa", "eager"), optimizer="adamw-loop"),
    "sequence": Way(12, LLAMAS, ("tp:2", "tp:4"), optimizer="adamw-loop"),
    "fsdp-tensor": Way(6, LLAMAS, ("fsdp2:2,tp:2", "fsdp2:4,tp:2", "fsdp2:2,tp:4"), optimizer="adamw-loop"),
    "pipeline": Way(15, LLAMAS, ("pp:2", "pp:4", "pp:3"), ("gpipe", "1f1b", "zero-bubble"), tokens=(1024, 2048)),
    "chunks": Way(6, LLAMAS, ("pp:2,vpp:2", "pp:3,vpp:2"), ("1f1b", "zero-bubble"), tokens=(1024, 2048)),
    "zero": Way(9, ("llama", "gpt2", "opt", "mistral", "qwen2", "phi"), ("zero1:4", "zero2:4", "zero3:4", "zero2:8", "zero3:8", "zero1:2"),
                dtypes=("bfloat16",), buckets=(500000000, 50000000)),
    "compile": Way(6, LLAMAS, ("", "", "fsdp2:4"), compiled=("layers", "layers,loss"), checkpointing=("none",), dtypes=("bfloat16",)),
}


def of_way(name, way, count, rng):
    def drawn(levels):
        return train_memory.balanced(levels, count, rng)

    lists = zip(drawn(way.families), drawn(way.divisions), drawn(way.schedules), drawn(way.compiled), drawn(way.tokens),
                drawn((512, 1024, 2048)), drawn(way.attention), drawn(way.checkpointing), drawn(way.dtypes), drawn(way.buckets),
                drawn(("first", "middle", "last")))
    return [setting_of(name, way, *values) for values in lists]


def setting_of(name, way, family, division, schedule, compiled, tokens, seq, attention, checkpointing, dtype, bucket, stage):
    batch = train_memory.bounded_batch(family, train_memory.FAMILIES[family], tokens, seq, attention)
    one = Setting(0, family, "full", batch, seq, checkpointing, attention, way.optimizer, dtype, way=name, division=division,
                  schedule=schedule, compiled=compiled, bucket=bucket)
    if not schedule:
        return one
    stages = int(one.degree("pp"))
    # fit's zero-bubble has no layers that run again.
    return dataclasses.replace(one, stage={"first": 0, "middle": stages // 2, "last": stages - 1}[stage], accumulation=2 * stages,
                               checkpointing="none" if schedule == "zero-bubble" else checkpointing)


def design(count, seed):
    """The settings, in an order in which any first part is about balanced over the ways."""
    rng = random.Random(seed)
    total = sum(way.share for way in WAYS.values())
    placed = []
    for name, way in WAYS.items():
        number = max(1, round(count * way.share / total))
        # What compiles takes longest, so it begins among the first, one at a time.
        reach = 0.5 if name == "compile" else 1.0
        placed += [(reach * (i + 0.5) / number, one) for i, one in enumerate(of_way(name, way, number, rng))]
    placed.sort(key=lambda pair: pair[0])
    return [dataclasses.replace(one, id=i) for i, (_, one) in enumerate(placed[:count])]


def mesh_of(device, sizes, names):
    from torch.distributed.device_mesh import init_device_mesh
    return init_device_mesh(device, sizes, mesh_dim_names=names)


def divided(model, setting, device):
    """By tensor parallelism, and by fully_shard around it."""
    from headroom import tensor_ranks
    tensor, shards = int(setting.degree("tp")), int(setting.degree("fsdp2"))
    mesh = mesh_of(device, (shards, tensor), ("fsdp", "tp"))
    if setting.way == "sequence":
        model = tensor_ranks.divide_sequences(model, mesh["tp"])
    else:
        with_embedding_in_parts(model)
        model = tensor_ranks.divide(model, mesh["tp"])
    return ranks_memory.fully_sharded(model, mesh["fsdp"]) if shards > 1 else model


def with_embedding_in_parts(model):
    """As in the plans of transformers from 5.23 on, which are fit's; those of 5.17 leave every embedding whole."""
    if model.config.model_type in EMBEDDING_WHOLE:
        return
    names = {module: name for name, module in model.named_modules()}
    model._tp_plan.setdefault(names[model.get_input_embeddings()], "embedding_rowwise")


def compiled(model, setting, device):
    """As torchtitan: each layer by itself, and each compiled one a unit of fully_shard, whose hooks run outside of it."""
    import torch
    layers = compiled_layers(model)
    if "loss" in setting.compiled:
        model.loss_function = torch.compile(model.loss_function)
    shards = int(setting.degree("fsdp2"))
    if shards > 1:
        from torch.distributed.fsdp import fully_shard
        mesh = mesh_of(device, (shards,), ("fsdp",))
        for module in [*layers, model]:
            fully_shard(module, mesh=mesh)
    return model


def compiled_layers(model):
    import torch
    classes = ranks_memory.block_classes(model)
    stack = next(module for module in model.modules() if isinstance(module, torch.nn.ModuleList) and type(module[0]) in classes)
    for i, layer in enumerate(stack):
        stack[i] = torch.compile(layer, fullgraph=True)
    return list(stack)


def train_divided(model, setting, device):
    from torch.distributed.tensor.parallel import loss_parallel
    vocab = model.config.vocab_size
    model = train_memory.prepared(model, setting, device)
    module = (compiled if setting.way == "compile" else divided)(model, setting, device)
    with loss_parallel() if setting.way == "sequence" else contextlib.nullcontext():
        return from_here(device, lambda: train_memory.train(module, setting, device, vocab))


def from_here(device, train):
    """The peak counts from where the model is divided: the whole is there before."""
    ranks_memory.forget(device)
    before = train_memory.Meter(device).figures()["allocated"]
    return {**train(), "before": before}


def train_stage(model, setting, device):
    """A rank of PyTorch's pipelines; of its parts only its own reach the device."""
    import torch
    from headroom import memory_oracle, pipeline_ranks
    options = memory_oracle.Options(
        batch=setting.batch, seq=setting.seq, dtype=setting.dtype, schedule=setting.schedule, accumulation=setting.accumulation,
        stages=int(setting.degree("pp")), stage=setting.stage, chunks=int(setting.degree("vpp")))
    config = copy.deepcopy(model.config)  # that of a part has the part's layers
    model = train_memory.prepared(model, setting, "cpu")
    with pipeline_ranks.nothing_sent():
        modules = pipeline_ranks.parts_of_rank(lambda: copy.deepcopy(model), options).to(device)
        pipeline = pipeline_ranks.PipelineSteps(modules, options, config, device)
        optimizer = train_memory.make_optimizer(setting.optimizer, list(modules.parameters()))

        def step():
            shape = (setting.batch * setting.accumulation, setting.seq)
            ids, labels = (torch.randint(3, config.vocab_size, shape, device=device) if is_read else None
                           for is_read in (pipeline.is_first, pipeline.is_last))
            pipeline(ids, labels)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return ids, labels

        return from_here(device, lambda: train_memory.watched(step, device))


def zero_engine(model, setting, device):
    """DeepSpeed's, by torch's AdamW, so that none of its own operators is compiled."""
    import torch
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(setting.ranks()), DS_ACCELERATOR=device, DS_BUILD_OPS="0")
    if os.environ.get("HEADROOM_DEEPSPEED"):
        sys.path.append(os.environ["HEADROOM_DEEPSPEED"])
    import deepspeed
    from deepspeed.utils import logger
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # of one machine's CPUs, compiled when it is asked for
    logger.setLevel("ERROR")
    stage = int(setting.division[len("zero")])
    configuration = {"train_micro_batch_size_per_gpu": setting.batch, "gradient_accumulation_steps": 1,
                     "bf16": {"enabled": True}, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
                     "zero_optimization": {"stage": stage, "reduce_bucket_size": setting.bucket}}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=True)
    engine, optimizer, _, _ = deepspeed.initialize(model=model, config=configuration, optimizer=optimizer)
    take_any_gradients(optimizer)
    return engine


def take_any_gradients(optimizer):
    """Values are anything here, and a step whose gradients are no numbers would be left out. What looks at them still does."""
    look = optimizer.has_overflow
    optimizer.has_overflow = lambda *arguments, **named: look(*arguments, **named) and False
    sys.modules[type(optimizer).__module__].is_invalid_grad_norm = lambda norm: False


def train_by_zero(model, setting, device):
    import torch
    vocab = model.config.vocab_size
    engine = zero_engine(train_memory.prepared(model, setting, "cpu"), setting, device)

    def step():
        tokens = torch.randint(3, vocab, (setting.batch, setting.seq), device=device)
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        del loss
        engine.step()
        if engine.skipped_steps:
            raise RuntimeError("DeepSpeed left a step out")
        return tokens

    return from_here(device, lambda: train_memory.watched(step, device))


def run_setting(model, setting, device):
    """What was measured of the rank, as a dict. In a child process."""
    parameters = sum(p.numel() for p in model.parameters())
    train = {"pipeline": train_stage, "chunks": train_stage, "zero": train_by_zero}.get(setting.way, train_divided)
    with ranks_memory.group_of(setting.ranks(), setting.stage):
        return {**train(model, setting, device), "n_params": parameters}


def flags_of(setting):
    """What `headroom fit` is asked for the same step."""
    flags = ["--method", ",".join(part for part in ("full", setting.division) if part), "--batch", setting.batch, "--seq", setting.seq,
             "--dtype", {"bfloat16": "bf16", "float32": "fp32"}[setting.dtype], "--checkpointing", setting.checkpointing,
             "--attention", setting.attention, "--optimizer", setting.optimizer, "--loss", "hf", "--keep-outputs", "false"]
    if setting.way == "sequence":
        flags += ["--sequence-parallel", "true"]
    if setting.schedule:
        flags += ["--pipeline-schedule", setting.schedule, "--grad-accum", setting.accumulation]
    if setting.compiled:
        flags += ["--compile", setting.compiled]
    if setting.way == "zero":
        flags += ["--reduce-bucket-size", setting.bucket]
    return [str(flag) for flag in flags]


def rows_of(setting, result, about, seconds):
    rows = train_memory.rows_of(setting, result, about, seconds)
    for row in rows:
        row.update(source="methods_memory", n_gpus=setting.ranks(), parallelism=setting.division or "none", nvidia_smi_mib="",
                   grad_accum=setting.accumulation, notes=row["notes"] + "; a rank of a fake group", way=setting.way,
                   stage=setting.stage if setting.schedule else "", steady_peak_bytes=result.get("steady_peak", ""),
                   before_steps_bytes=result.get("before", ""), flags=" ".join(flags_of(setting)))
    return rows


KIND = train_memory.Kind(design, run_setting, rows_of, COLUMNS)


def main(words=None):
    return train_memory.run(KIND, words, "methods_memory_out", 66)


if __name__ == "__main__":
    sys.exit(main())
