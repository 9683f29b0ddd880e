"""What real processes hold and send under DDP, FSDP2, ZeRO and pipelines; for test_parallel.py.

Starts as many processes as a case has ranks, on the CPU, joined by gloo. Each trains a tiny model for two
steps. Reads a JSON list of cases from stdin, writes a list by case of what each rank has seen:
  live       by phase, the bytes of parameters, buffers, gradients, optimizer states, and of what the wrapper
             keeps besides (DDP's buckets)
  transfers  of DDP and ZeRO, the blocks they make and let go, in order: [phase, kind, bytes,
             which of them]
"""

import contextlib
import json
import os
import sys
import tempfile
import time
import types
import weakref

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
from headroom.pipeline_ranks import PipelineSteps, parts_of_rank  # noqa: E402 (from this tree)

SMALLEST = 64  # bytes; below, ZeRO has numbers: norms, flags

# By transformers, as each rank loads its own.
LOADED_IN_PARTS = ("tensor", "experts")


def is_called_by_zero():
    """Whether DeepSpeed's optimizer called, and not a model that it hangs on."""
    frame = sys._getframe(2)
    for _ in range(12):
        if frame is None or "autograd" in frame.f_code.co_filename:
            return False
        if frame.f_code.co_filename.endswith("deepspeed/runtime/zero/linear.py"):  # a module of the model's
            return False
        if "deepspeed/runtime/zero" in frame.f_code.co_filename:
            return frame.f_code.co_name != "_optimizer_step"
        if "torch/optim" in frame.f_code.co_filename:
            return False
        frame = frame.f_back
    return False


class Blocks(TorchDispatchMode):
    """Notes the blocks that DDP's reducer or ZeRO makes, while it is the one that runs."""

    def __init__(self):
        super().__init__()
        self.phase, self.entries, self.live = "construct", [], {}
        self.is_forward = False
        self.is_zero = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if self.listens(function, made):
            self.note(made)
        return made

    def listens(self, function, made):
        """Only DDP joins blocks of several parameters, or makes flat ones of a floating type."""
        if self.is_zero:
            # Views of what is there make nothing.
            return (isinstance(made, torch.Tensor) and made.device.type == "cpu" and made.nbytes >= SMALLEST
                    and function._schema.name.split("::")[1] in ZERO_MAKES and function._overloadname != "out"
                    and is_called_by_zero())
        if self.is_forward or not isinstance(made, torch.Tensor) or made.dim() != 1:
            return False
        name = str(function)
        return (name == "aten.cat.default"
                or (name == "aten.empty.memory_format"
                    and (made.is_floating_point() or made.dtype == torch.int32 and self.phase == "construct")))

    def note(self, made):
        bytes_ = made.numel() * made.element_size()
        key = len(self.entries)
        self.entries.append([self.phase, "gather", bytes_, key])
        self.live[key] = (made.untyped_storage().data_ptr(), bytes_)
        weakref.finalize(made.untyped_storage(), self.let_go, key)

    def let_go(self, key):
        _, bytes_ = self.live.pop(key)
        self.entries.append([self.phase, "release", bytes_, key])


# The operators by which ZeRO makes blocks.
ZERO_MAKES = {"cat", "clone", "_to_copy", "zeros", "empty"}


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def bytes_of(tensors):
    """Of the storages, each once."""
    storages = {}
    for tensor in tensors:
        storage = local(tensor).untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def shown_bytes(tensors):
    """Of the elements: a part that was loaded on the CPU is a view of what was read."""
    parts = {local(tensor).data_ptr(): local(tensor).nbytes for tensor in tensors}
    return sum(parts.values())


def settle(blocks):
    """Waits for gloo's threads, which hold on to what they have sent for a while and need Python's lock to let go."""
    dist.barrier()
    seen, unchanged = len(blocks.entries), 0
    while unchanged < 5:
        time.sleep(0.01)
        unchanged = unchanged + 1 if len(blocks.entries) == seen else 0
        seen = len(blocks.entries)


def live_bytes(case, model, optimizer, blocks):
    settle(blocks)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    views = {local(g).untyped_storage().data_ptr() for g in gradients}
    states = [s for state in optimizer.state.values() for s in state.values() if s.dim() > 0]
    return {
        "parameters": (shown_bytes if case["method"] in LOADED_IN_PARTS else bytes_of)(
            list(model.parameters()) + list(model.buffers()) + list(scales_of(model))),
        "gradients": bytes_of(gradients),
        "states": bytes_of(states),
        "communication": sum(bytes_ for address, bytes_ in blocks.live.values() if address not in views),
    }


def built(case):
    config = AutoConfig.for_model(**{**json.loads(open(case["config"], encoding="utf-8").read()),
                                     **case.get("config_changes", {})})
    model = AutoModelForCausalLM.from_config(
        config, dtype=getattr(torch, case.get("loaded", "bfloat16")), attn_implementation="eager").train()
    if case.get("checkpointing", "none") != "none":
        model.gradient_checkpointing_enable(
            gradient_checkpointing_kwargs={"use_reentrant": case["checkpointing"] == "reentrant"})
    if case.get("quantize"):
        from quantized import quantize, quantize_in_8_bits

        if case["quantize"] == "int8":
            quantize_in_8_bits(model)
        else:
            quantize(model, case.get("quant_storage", "uint8"))
    if "lora_targets" in case:
        from adapters import adapters_of
        from peft import get_peft_model

        model = get_peft_model(model, adapters_of(case, "CAUSAL_LM"))
    return model, config


def scales_of(model):
    """What weights of 4 bits are unpacked by, or of 8. The map of the maxima's own codes is one for all on a GPU."""
    for module in model.modules():
        if hasattr(getattr(module, "state", None), "SCB"):
            yield module.weight.SCB if module.weight.SCB is not None else module.state.SCB
    states = [p.quant_state for p in model.parameters() if hasattr(p, "quant_state")]
    for state in states:
        yield from (state.absmax, state.code, state.offset, state.state2.absmax)
    if states:
        yield states[0].state2.code


def saved_for_ranks(case, folder):
    """A folder with the model, from which each rank loads its own part."""
    model, _ = built(case)
    path = os.path.join(folder, f"model{len(os.listdir(folder))}")
    model.save_pretrained(path)
    return path


def loaded_in_parts(case):
    """transformers' own tensor and expert parallelism, and FSDP around them."""
    from transformers.distributed import DistributedConfig

    tensor_ranks = case.get("tensor_ranks", 1)
    model = AutoModelForCausalLM.from_pretrained(
        case["path"], dtype=torch.bfloat16, attn_implementation="eager",
        distributed_config=DistributedConfig(tp_size=tensor_ranks, fsdp_size=case["ranks"] // tensor_ranks,
                                             ep_size=case.get("expert_ranks", 1)))
    return model.train(), model.config


def zero_engine(model, case):
    """DeepSpeed's engine, on the CPU."""
    os.environ.update(RANK=str(dist.get_rank()), WORLD_SIZE=str(dist.get_world_size()), LOCAL_RANK="0")
    import deepspeed
    from deepspeed.utils import logger

    logger.setLevel("ERROR")
    configuration = {"train_micro_batch_size_per_gpu": 2,
                     "gradient_accumulation_steps": case.get("accumulation", 1), "gradient_clipping": 1.0,
                     "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
                     "zero_optimization": {"stage": case["stage"], **case.get("arguments", {})}}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], foreach=False)
    if "mixed_precision" in case:
        return engine_of_accelerate(model, optimizer, configuration, case["mixed_precision"])
    configuration["bf16"] = {"enabled": True}
    engine, optimizer, _, _ = deepspeed.initialize(model=model, config=configuration, optimizer=optimizer)
    return engine, optimizer


def engine_of_accelerate(model, optimizer, configuration, mixed_precision):
    """The same, started by accelerate; the configuration says no type."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from accelerate.utils import DeepSpeedPlugin

    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"  # as accelerate launch has it
    AcceleratorState._reset_state(reset_partial_state=True)  # of the case before
    accelerator = Accelerator(mixed_precision=mixed_precision,
                              deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=configuration))
    engine, optimizer = accelerator.prepare(model, optimizer)
    return engine, optimizer.optimizer


def in_host_memory(case, model, optimizer):
    """What an engine with offload keeps there, which is the device's memory here."""
    zero = case["arguments"]
    held = []
    if "offload_optimizer" in zero:
        masters = (optimizer.fp32_partitioned_groups_flat if case["stage"] == 3
                   else optimizer.single_partition_of_fp32_groups)
        held += masters + [master.grad for master in masters if master.grad is not None]
        held += [s for state in optimizer.optimizer.state.values() for s in state.values() if s.dim() > 0]
        if case["stage"] == 3:
            held.append(optimizer.grad_partitions_flat_buffer)
        else:
            held += optimizer.param_buffer_of_bit16_for_cpu_offload_groups
            held += [optimizer.temp_grad_buffer_for_cpu_offload, *optimizer.accumulated_grads_in_cpu.values()]
    if "offload_param" in zero:
        held += optimizer.param_groups_fp16_flat_cpu_memory
        held += [p.ds_tensor for p in model.parameters() if not p.requires_grad and not p.ds_persist]
    return bytes_of(held)


def live_of_stage_3(model, optimizer):
    """Of a rank: its shares, what is whole, the flat gradients, masters and states."""
    parameters = list(model.parameters())
    states = [s for state in optimizer.optimizer.state.values() for s in state.values() if s.dim() > 0]
    return {"parameters": bytes_of(p.ds_tensor for p in parameters) + bytes_of(scales_of(model)),
            "whole": bytes_of(p.data for p in parameters if p.data.numel() > 0),
            "gradients": bytes_of([optimizer.grad_partitions_flat_buffer]),
            "states": bytes_of(states) + bytes_of(optimizer.fp32_partitioned_groups_flat)}


def watch_whole(model, blocks, most):
    """By phase, the most bytes of parameters that are whole at once, as modules begin."""
    from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator as Coordinator

    fetch = Coordinator.fetch_sub_module

    def fetches(itself, *arguments, **options):
        result = fetch(itself, *arguments, **options)
        whole = bytes_of(p.data for p in model.parameters() if p.data.numel() > 0)
        most[blocks.phase] = max(most.get(blocks.phase, 0), whole)
        return result

    Coordinator.fetch_sub_module = fetches
    return lambda: setattr(Coordinator, "fetch_sub_module", fetch)


def train_by_zero(case):
    """As train(), of DeepSpeed's engine."""
    blocks = Blocks()
    blocks.is_zero = True
    model, config = built(case)
    ids = torch.zeros(2, 16, dtype=torch.int64) % config.vocab_size
    live = []
    most_whole = {}
    with blocks:
        engine, optimizer = zero_engine(model, case)
        stop = watch_whole(model, blocks, most_whole) if case["stage"] == 3 else lambda: None

        def note(phase):
            if case["stage"] == 3:
                live.append([phase, live_of_stage_3(model, optimizer)])
                return
            if "offload_optimizer" in case["arguments"]:
                return
            masters = optimizer.single_partition_of_fp32_groups
            states = [s for state in optimizer.optimizer.state.values() for s in state.values() if s.dim() > 0]
            gradients = [g for part in optimizer.averaged_gradients.values() for g in part or ()]
            live.append([phase, {"parameters": bytes_of([*model.parameters(), *scales_of(model)]), "gradients": bytes_of(gradients),
                                 "states": bytes_of(states) + bytes_of(masters)}])

        note("construct")
        micro_batches = case.get("accumulation", 1)
        for _ in range(case.get("steps", 2)):
            for i in range(micro_batches):
                blocks.phase = "forward"
                loss = engine(input_ids=ids, labels=ids, use_cache=False).loss
                blocks.phase = "backward"
                engine.backward(loss)
                del loss
                if i + 1 == micro_batches:
                    note("backward")
                    blocks.phase = "optimizer"
                engine.step()
            note("optimizer")
        stop()
        settle(blocks)
        sums = getattr(optimizer, "accumulated_grads_in_cpu", {}).values()  # the host's
        addresses = {gradient.untyped_storage().data_ptr() for gradient in sums}
        hosts = {key for key, (address, _) in blocks.live.items() if address in addresses}
        entries = [entry for entry in blocks.entries if entry[3] not in hosts]
        host = in_host_memory(case, model, optimizer)
        added_up = getattr(optimizer, "temp_grad_buffer_for_gpu_offload", None)
    return {"live": live, "transfers": entries, "host": host, "most_whole": most_whole,
            "added_up": 0 if added_up is None else bytes_of([added_up])}


def wrapped(model, case):
    if case["method"] in LOADED_IN_PARTS:
        return model
    if case["method"] == "ddp":
        return DistributedDataParallel(model, **case.get("arguments", {}))
    names = ("replicate", "shard")[-len(case["mesh"]):]
    mesh = init_device_mesh("cpu", tuple(case["mesh"]), mesh_dim_names=names)
    classes = {type(m) for m in model.modules() if type(m).__name__ in set(model._no_split_modules)}
    for module in list(model.modules()):
        if type(module) in classes:
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def watch_forward(model, blocks):
    """The model's own blocks are nobody's business here."""
    def begins(*_):
        blocks.is_forward = True

    def ends(*_):
        blocks.is_forward = False

    model.register_forward_pre_hook(begins)
    model.register_forward_hook(ends)


def train(case):
    blocks = Blocks()
    model, config = (loaded_in_parts if case["method"] in LOADED_IN_PARTS else built)(case)
    watch_forward(model, blocks)
    ids = torch.zeros(2, 16, dtype=torch.int64) % config.vocab_size
    live = []
    with blocks:
        module = wrapped(model, case)
        optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], foreach=False)
        live.append(["construct", live_bytes(case, module, optimizer, blocks)])
        micro_batches = case.get("accumulation", 1)
        for _ in range(2):
            for i in range(micro_batches):
                is_last = i + 1 == micro_batches
                no_sync = contextlib.nullcontext() if is_last or case["method"] != "ddp" else module.no_sync()
                with no_sync:
                    blocks.phase = "forward"
                    loss = module(input_ids=ids, labels=ids, use_cache=False).loss
                    blocks.phase = "backward"
                    blocks.is_forward = True  # what operators make in backward
                    loss.backward()
                    blocks.is_forward = False
                    del loss
            live.append(["backward", live_bytes(case, module, optimizer, blocks)])
            blocks.phase = "optimizer"
            blocks.is_forward = True
            optimizer.step()
            live.append(["optimizer", live_bytes(case, module, optimizer, blocks)])
            optimizer.zero_grad()
            blocks.is_forward = False
        entries = list(blocks.entries)
    return {"live": live, "transfers": entries}


def train_in_stages(case):
    """As train(), of a pipeline; its stages send for real."""
    options = types.SimpleNamespace(
        schedule=case["schedule"], stages=case["ranks"], stage=dist.get_rank(), chunks=case.get("chunks", 1),
        accumulation=case["accumulation"], batch=2, seq=16, dtype="bfloat16", keep_outputs=False)
    config = built(case)[1]
    modules = parts_of_rank(lambda: built(case)[0], options).train()
    steps = PipelineSteps(modules, options, config, "cpu")
    ids = torch.zeros(2 * case["accumulation"], 16, dtype=torch.int64) % config.vocab_size
    optimizer = torch.optim.AdamW(modules.parameters(), foreach=False)
    blocks = Blocks()
    live = [["construct", live_bytes(case, modules, optimizer, blocks)]]
    for _ in range(2):
        steps(ids, ids)
        live.append(["backward", live_bytes(case, modules, optimizer, blocks)])
        optimizer.step()
        live.append(["optimizer", live_bytes(case, modules, optimizer, blocks)])
        optimizer.zero_grad()
    return {"live": live, "transfers": []}


def trainer_of(case):
    if case["method"].startswith("zero"):
        return train_by_zero
    return train_in_stages if case["method"] == "pipeline" else train


def rank_of(rank, ranks, cases, meeting, results):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank))
    dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"file://{meeting}")
    done = [trainer_of(case)(case) for case in cases]
    dist.barrier()
    with open(f"{results}.{rank}", "w", encoding="utf-8") as file:
        json.dump(done, file)
    dist.destroy_process_group()


def run_together(ranks, cases, folder):
    """By case, what each rank has seen."""
    meeting, results = os.path.join(folder, f"meeting{ranks}"), os.path.join(folder, f"results{ranks}")
    # Forked: PyTorch and transformers are imported once.
    multiprocessing.start_processes(rank_of, args=(ranks, cases, meeting, results), nprocs=ranks,
                                    start_method="fork")
    by_rank = []
    for rank in range(ranks):
        with open(f"{results}.{rank}", encoding="utf-8") as file:
            by_rank.append(json.load(file))
    return [list(of_case) for of_case in zip(*by_rank)]


def main():
    cases = json.load(sys.stdin)
    if any(case["method"].startswith("zero") for case in cases):
        import deepspeed  # noqa: F401 (once, before processes are forked)
    done = [None] * len(cases)
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            if case["method"] in LOADED_IN_PARTS:
                case["path"] = saved_for_ranks(case, folder)
        for ranks in sorted({case["ranks"] for case in cases}):
            indices = [i for i, case in enumerate(cases) if case["ranks"] == ranks]
            for i, logs in zip(indices, run_together(ranks, [cases[i] for i in indices], folder)):
                done[i] = logs
    json.dump(done, sys.stdout)


if __name__ == "__main__":
    main()
