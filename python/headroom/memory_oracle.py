"""The oracle: what eager PyTorch allocates in a training step, without a GPU.

Builds a small transformers model from a config on fake tensors of "cuda:0" (or on real CPU tensors,
`backend="cpu"`, for models whose shapes depend on data), runs training steps under an
AllocationRecorder, and gives the events of construction and of each step, the bytes saved for
backward, and the model's parameters. What is exact and what is not: docs/oracle.md.

Use: `python -m headroom.memory_oracle --config config.json --batch 2 --seq 16 --out trace.json`.
Cost: 1 to 20 s a run, most of it importing. Not thread-safe.
"""

import argparse
import contextlib
import copy
import dataclasses
import gc
import importlib.metadata
import json
import sys
from pathlib import Path

from headroom import fake_cuda

SCHEMA = "headroom.oracle/1"

# What code that asks the device is told: grouped_mm for experts needs 8.0 or later.
COMPUTE_CAPABILITY = (9, 0)


@dataclasses.dataclass
class Options:
    """One setting of a run; the names are those of the command line."""

    batch: int = 2
    seq: int = 16
    steps: int = 2
    task: str = "train"
    head: str = "causal_lm"
    dtype: str = "bfloat16"
    autocast: str = ""
    attention: str = "eager"
    sdpa: str = "auto"
    experts: str = ""
    optimizer: str = "adamw"
    implementation: str = "foreach"
    optimizer_in_backward: bool = False
    offload: str = "none"
    freeze: tuple = ()
    clip: float = 0.0
    checkpointing: str = "none"
    lora_rank: int = 0
    lora_targets: tuple = ()
    lora_dropout: float = 0.0
    dora: bool = False
    ia3: bool = False
    keep_outputs: bool = False
    use_cache: bool = False
    attention_mask: bool = False
    eval_mode: bool = False
    accumulation: int = 1
    tensor_ranks: int = 1
    sequence_parallel: bool = False
    expert_ranks: int = 1
    loss: str = "hf"
    schedule: str = ""
    stages: int = 1
    stage: int = 0
    chunks: int = 1
    stage_layers: tuple = ()
    backend: str = "fake"
    construct: str = "cpu_then_move"
    all_events: bool = False


def import_torch():
    """torch, with a CUDA device to pretend. Everything here gets torch from it."""
    fake_cuda.install()
    import torch
    return torch


def read_config(path):
    """A transformers config object from a config.json; an unknown model_type is a ValueError."""
    import_torch()
    from transformers import AutoConfig
    values = json.loads(Path(path).read_text(encoding="utf-8"))
    kind = values.pop("model_type", None)
    if kind is None:
        raise ValueError(f"{path}: no \"model_type\"")
    return AutoConfig.for_model(kind, **values)


CHUNKS = 4  # of a sequence, where the head and its loss go chunk by chunk

HEADS = {
    "causal_lm": "AutoModelForCausalLM",
    "image_text": "AutoModelForImageTextToText",
    "masked_lm": "AutoModelForMaskedLM",
    "seq2seq_lm": "AutoModelForSeq2SeqLM",
    "image_classification": "AutoModelForImageClassification",
    "sequence_classification": "AutoModelForSequenceClassification",
}


MASKED_LM = ("bert", "camembert", "deberta-v2", "distilbert", "electra", "modernbert", "mpnet", "roberta",
             "xlm-roberta")
# Models of text and images that are no causal language models to transformers; trained on text alone.
IMAGE_TEXT = ("mistral3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl")


def head_of(config):
    """The head that a family is trained with by default."""
    if config.model_type in ("t5", "mt5", "umt5"):
        return "seq2seq_lm"
    if config.model_type in MASKED_LM:
        return "masked_lm"
    if config.model_type in ("vit", "deit"):
        return "image_classification"
    if config.model_type in IMAGE_TEXT:
        return "image_text"
    return "causal_lm"


def make_model(config, options, device):
    """A model with random weights, on the device, in the option's dtype. Weights are never read."""
    torch = import_torch()
    import transformers
    from transformers.initialization import no_init_weights
    for part in (config, config.get_text_config()):
        with contextlib.suppress(Exception):
            part.use_cache = options.use_cache
    kind = getattr(transformers, HEADS[options.head])
    arguments = {"dtype": getattr(torch, options.dtype), "attn_implementation": options.attention}
    if options.experts:
        arguments["experts_implementation"] = options.experts
    with no_init_weights() if options.backend == "fake" else contextlib.nullcontext():
        on_device = options.construct == "on_device"
        with torch.device(device) if on_device else contextlib.nullcontext():
            if options.schedule:
                from headroom.pipeline_ranks import parts_of_rank
                return parts_of_rank(lambda: kind.from_config(copy.deepcopy(config), **arguments),
                                     options, options.stage_layers).to(device)
            model = kind.from_config(config, **arguments)
    # no_init_weights leaves out all that follows construction, the tying of weights too.
    model.tie_weights()
    # Gemma 4 goes through a set of words, whose order changes from one process to the next.
    for module in model.modules():
        if hasattr(module, "unique_layer_types"):
            module.unique_layer_types = sorted(module.unique_layer_types)
    return model if on_device else model.to(device)


@contextlib.contextmanager
def made_without_data():
    """Lets modules be made of fake tensors where their making looks at values. trunc_normal_ draws
    again until none lies too far out (torch 2.13 spares tensors on "meta" alone): it leaves fakes
    as they are. Rates of stochastic depth are torch.linspace(...), one by one as numbers: what
    linspace makes of numbers on the CPU stays real, and so does what is made of it alone."""
    torch = import_torch()
    from torch._subclasses.fake_tensor import FakeTensor
    draw = torch.nn.init._no_grad_trunc_normal_

    def draw_none(tensor, *arguments, **named):
        return tensor if isinstance(tensor, FakeTensor) else draw(tensor, *arguments, **named)

    torch.nn.init._no_grad_trunc_normal_ = draw_none
    try:
        with _real_linspace():
            yield
    finally:
        torch.nn.init._no_grad_trunc_normal_ = draw


def _real_linspace():
    torch = import_torch()
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.weak import WeakIdKeyDictionary

    def tensors_in(tree):
        return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]

    class RealLinspace(TorchFunctionMode):
        real = WeakIdKeyDictionary()

        def _stays_real(self, func, tensors, named):
            if func is torch.linspace and not tensors:
                device = named.get("device") or torch.get_default_device()
                return torch.device(device).type == "cpu"
            moves = func in (torch.Tensor.to, torch.Tensor.cuda)
            return bool(tensors) and not moves and all(one in self.real for one in tensors)

        def __torch_function__(self, func, types, args=(), kwargs=None):
            named = kwargs or {}
            if not self._stays_real(func, tensors_in((args, named)), named):
                return func(*args, **named)
            with unset_fake_temporarily():
                made = func(*args, **named)
            for tensor in tensors_in(made):
                self.real[tensor] = True
            return made

    return RealLinspace()


@contextlib.contextmanager
def attention_in_parts():
    """nn.MultiheadAttention and nn.TransformerEncoderLayer in eval() are one operator each, which
    says nothing of the products within. While entered they run the operators of training."""
    torch = import_torch()
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def module_apply_for_fakes():
    """Module._apply (behind .to, .cuda, .half) swaps tensors in place, which fake ones cannot.
    While entered it makes new parameters instead, in its own order (children, own parameters,
    own buffers) and one for all uses of a tied parameter: it allocates what it would."""
    torch = import_torch()
    original, done = torch.nn.Module._apply, []

    def apply(module, convert, recurse=True):
        done.append({}) if not done else done.append(done[-1])
        try:
            if recurse:
                for child in module.children():
                    apply(child, convert)
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    module._parameters[name] = _converted(parameter, convert, done[-1])
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = convert(buffer)
        finally:
            done.pop()
        return module

    torch.nn.Module._apply = apply
    try:
        yield
    finally:
        torch.nn.Module._apply = original


def _converted(parameter, convert, done):
    """The converted parameter. The old one is kept in `done`, so that no other takes its id."""
    torch = import_torch()
    if id(parameter) not in done:
        with torch.no_grad():
            there = convert(parameter)
        fresh = parameter if there is parameter else torch.nn.Parameter(
            there, parameter.requires_grad)
        done[id(parameter)] = (parameter, fresh)
    return done[id(parameter)][1]


def has_adapter(options):
    return options.lora_rank > 0 or options.ia3


def add_adapter(model, options):
    """peft's LoRA (or DoRA), or IA3, on the wanted Linear layers (peft's own choice where none is
    named)."""
    from peft import IA3Config, LoraConfig, get_peft_model
    targets = list(options.lora_targets) or None
    if targets == ["all-linear"]:
        targets = "all-linear"
    if options.ia3:
        adapted = get_peft_model(model, IA3Config(target_modules=targets))
        return adapted.get_base_model() if options.schedule else adapted
    task = "SEQ_CLS" if options.head == "sequence_classification" else None  # trains a copy of the head, too
    settings = LoraConfig(r=options.lora_rank, lora_alpha=2 * options.lora_rank,
                          lora_dropout=options.lora_dropout, target_modules=targets,
                          use_dora=options.dora, task_type=task)
    adapted = get_peft_model(model, settings)
    # A pipeline's stages are asked for one by one; adapters are in them, and peft's own module is not needed.
    return adapted.get_base_model() if options.schedule else adapted


def make_inputs(config, options, device):
    """One batch as a data loader would hand it over, moved to the device."""
    torch = import_torch()

    def tokens(limit, *shape):
        if options.backend == "fake":
            return torch.zeros(shape, dtype=torch.int64).to(device)
        return torch.randint(3, limit, shape).to(device)

    shape = (options.batch, options.seq)
    if options.head == "image_classification":
        size = (options.batch, config.num_channels, config.image_size, config.image_size)
        pixels = torch.zeros(size, dtype=getattr(torch, options.dtype)).to(device)
        return {"pixel_values": pixels, "labels": tokens(config.num_labels, options.batch)}
    vocabulary = config.get_text_config().vocab_size
    batch = {"input_ids": tokens(vocabulary, *shape)}
    if options.attention_mask:
        batch["attention_mask"] = torch.ones(shape, dtype=torch.int64).to(device)
    if options.head == "sequence_classification":
        batch["labels"] = tokens(config.num_labels, options.batch)
    else:
        batch["labels"] = tokens(vocabulary, *shape)
    return batch


def make_optimizer(parameters, options):
    """The optimizer by name and implementation. Foreach is named, never left to the default choice:
    that looks for plain tensors and would take the loop for fake ones."""
    torch = import_torch()
    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD,
             "adafactor": torch.optim.Adafactor, "rmsprop": torch.optim.RMSprop,
             "adagrad": torch.optim.Adagrad, "nadam": torch.optim.NAdam}
    name, _, variant = options.optimizer.partition(":")
    arguments = {"lr": 1e-3}
    if options.implementation == "fused":
        arguments["fused"] = True
    else:
        arguments["foreach"] = options.implementation == "foreach"
    if variant == "momentum":
        arguments["momentum"] = 0.9
    return kinds[name](parameters, **arguments)


def make_stepper(parameters, options):
    """What steps: one optimizer over all, or as the options say."""
    from headroom.training_loops import OptimizerOnCpu, StepInBackward
    if options.optimizer_in_backward:
        return StepInBackward(parameters, lambda some: make_optimizer(some, options))
    if options.offload == "optimizer":
        on_device = options
        if options.optimizer == "adamw":
            on_device = dataclasses.replace(options, implementation="fused")
        return OptimizerOnCpu(parameters, lambda some: make_optimizer(some, on_device))
    return make_optimizer(parameters, options)


class TrainingRun:
    """A model, its optimizer and a recorder; `step()` runs one training step and marks its
    phases."""

    def __init__(self, config, options, mesh=None):
        torch = import_torch()
        from headroom.allocation_recorder import AllocationRecorder, BalancedExperts, ModulePaths
        self.options = options
        self.device = "cuda:0" if options.backend == "fake" else "cpu"
        self.paths = ModulePaths()
        self.recorder = AllocationRecorder(self.device.split(":")[0], self.paths)
        self.recorder.phase = "construct"
        with self.recorder:
            model = make_model(config, options, self.device)
            if mesh is not None:
                from headroom import expert_ranks, tensor_ranks
                self.recorder.passed_on = tensor_ranks.passed_on()
                divide = (expert_ranks.divide if options.expert_ranks > 1 else
                          tensor_ranks.divide_sequences if options.sequence_parallel else tensor_ranks.divide)
                model = divide(model, mesh)
            if has_adapter(options):
                model = add_adapter(model, options)
                if mesh is not None:
                    tensor_ranks.tell_whole_sizes(model)
            if options.freeze:
                from headroom.training_loops import freeze
                freeze(model, options.freeze)
        self.model = model
        self.config = config
        self.paths.learn(model)
        self._prepare()
        self.recorder.answers = BalancedExperts(
            {name: module.num_experts for name, module in model.named_modules()
             if hasattr(module, "gate_up_proj") and hasattr(module, "num_experts")})
        self.trainable = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = None
        if options.task == "train":
            self.optimizer = make_stepper(self.trainable, options)
        self._outputs = None
        self._pipeline = None
        if options.schedule:
            from headroom.pipeline_ranks import PipelineSteps
            self._pipeline = PipelineSteps(model, options, config, self.device)
        gc.collect()
        self.static_bytes = self.recorder.live_bytes
        self._torch = torch

    def _prepare(self):
        if self.options.checkpointing != "none":
            reentrant = self.options.checkpointing == "reentrant"
            settings = {"use_reentrant": reentrant}
            if self.options.checkpointing.startswith("selective"):
                from headroom.training_loops import selective_contexts
                settings["context_fn"] = selective_contexts(self.options.checkpointing)
            for model in [part.model for part in self.model] if self.options.schedule else [self.model]:
                model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)
            if self.options.checkpointing.startswith("every-"):
                self._checkpoint_every(int(self.options.checkpointing.removeprefix("every-")))
            if reentrant and has_adapter(self.options):
                self.model.enable_input_require_grads()
        self.model.train(not self.options.eval_mode)

    def _checkpoint_every(self, count):
        """Of the layers that would be checkpointed, the first and every `count`-th after it."""
        from transformers.modeling_layers import GradientCheckpointingLayer
        layers = [module for module in self.model.modules()
                  if isinstance(module, GradientCheckpointingLayer)]
        for index, layer in enumerate(layers):
            layer.gradient_checkpointing = index % count == 0

    def _autocast(self):
        if not self.options.autocast:
            return contextlib.nullcontext()
        torch = self._torch
        return torch.autocast(self.device.split(":")[0],
                              dtype=getattr(torch, self.options.autocast))

    def forward(self, batch):
        """The loss, with the outputs kept or dropped as the option says (Trainer drops them)."""
        if self.options.loss == "head-in-chunks":
            from headroom.training_loops import head_in_chunks
            hidden = self.model.model(**{name: it for name, it in batch.items() if name != "labels"}).last_hidden_state
            return head_in_chunks(self.model.lm_head, hidden, batch["labels"], CHUNKS)
        with self._autocast():
            outputs = self.model(**batch)
        loss = outputs.loss
        if self.options.keep_outputs:
            self._outputs = outputs
        return loss

    def measure_saved(self):
        """A forward pass of its own under saved-tensor hooks; its graph is dropped afterwards."""
        from headroom.allocation_recorder import SavedForBackward
        keep, self.options.keep_outputs = self.options.keep_outputs, False
        events = len(self.recorder.events)
        before = self.recorder.live_bytes
        with self.paths, self.recorder:
            batch = make_inputs(self.config, self.options, self.device)
            # Buffers, too, are there anyway: GPT-Neo's layers keep a part of their own mask.
            own = [*self.model.parameters(), *self.model.buffers()]
            counter = SavedForBackward(self.recorder, own, self.paths)
            self.recorder.phase = "saved"
            with counter:
                loss = self.forward(batch)
            del loss, batch
        self.options.keep_outputs = keep
        if self.recorder.live_bytes != before:
            raise RuntimeError(f"a dropped graph left {self.recorder.live_bytes - before} bytes")
        del self.recorder.events[events:]
        return {"saved_for_backward_bytes": counter.bytes_excluding_parameters,
                "saved_for_backward_with_parameters_bytes": counter.bytes_including_parameters,
                "saved_by_module_bytes": dict(sorted(counter.by_module.items()))}

    def step(self):
        """One step; returns its events and marks. Peak figures are of this step alone."""
        recorder, options = self.recorder, self.options
        recorder.events = []
        recorder.peak_bytes, recorder.peak_event = recorder.live_bytes, -1
        start = recorder.live_bytes
        marks = {}
        with self.paths, recorder:
            if self._pipeline:
                self._run_pipeline()
            for index in range(0 if self._pipeline else options.accumulation):
                recorder.phase = "data"
                batch = make_inputs(self.config, options, self.device)
                recorder.phase = "forward"
                before = recorder.live_bytes
                loss = self.forward(batch)
                marks["held_by_forward_bytes"] = recorder.live_bytes - before
                marks["after_forward_bytes"] = recorder.live_bytes
                if options.task == "train":
                    recorder.phase = "backward"
                    (loss / options.accumulation if options.accumulation > 1 else loss).backward()
                    marks["after_backward_bytes"] = recorder.live_bytes
                del batch
            if options.task == "train":
                self._update(marks)
            recorder.phase = "end"
            loss = None
            recorder.mark("end_of_step")
        return self._summary(start, marks)

    def _run_pipeline(self):
        """All micro-batches, each a part of one batch that the loop has until they are done."""
        torch, options = self._torch, self.options
        self.recorder.phase = "data"
        shape = (options.batch * options.accumulation, options.seq)
        ids, labels = (torch.zeros(shape, dtype=torch.int64).to(self.device) if is_read else None
                       for is_read in (self._pipeline.is_first, self._pipeline.is_last))
        self.recorder.phase = "forward"
        self._outputs = self._pipeline(ids, labels)

    def _update(self, marks):
        recorder, options, torch = self.recorder, self.options, self._torch
        recorder.phase = "clip"
        if options.clip > 0.0:
            torch.nn.utils.clip_grad_norm_(self.trainable, options.clip, foreach=True)
        recorder.phase = "optimizer"
        self.optimizer.step()
        marks["after_optimizer_bytes"] = recorder.live_bytes
        recorder.phase = "zero_grad"
        self.optimizer.zero_grad(set_to_none=True)

    def _summary(self, start, marks):
        recorder = self.recorder
        if recorder._peak_pending:
            recorder._take_peak()
        peak = {"bytes": recorder.peak_bytes, "event": recorder.peak_event}
        if 0 <= recorder.peak_event < len(recorder.events):
            peak.update({k: recorder.events[recorder.peak_event][k]
                         for k in ("op", "module", "phase")})
        return {"live_at_start_bytes": start, "live_at_end_bytes": recorder.live_bytes,
                "peak": peak, "marks": marks,
                "events": compact(recorder.events, self.options.all_events)}


def compact(events, everything=False):
    """Folds an operator that allocates nothing (a view, an in-place one) into the one before it in
    the same phase, with what is released after it; unless all are wanted. "index" is the position
    in the full dispatch order. No total and no order of allocations and releases changes by it."""
    chosen = []
    for index, event in enumerate(events):
        kept = {"index": index, **event, "frees": list(event["frees"]),
                "free_ids": list(event["free_ids"])}
        foldable = chosen and chosen[-1]["phase"] == event["phase"]
        if everything or event["allocs"] or event["op"] == "end_of_step" or not foldable:
            if everything or event["allocs"] or event["frees"] or event["op"] == "end_of_step":
                chosen.append(kept)
        else:
            chosen[-1]["frees"] += kept["frees"]
            chosen[-1]["free_ids"] += kept["free_ids"]
    return chosen


def describe_parameters(model):
    """Every parameter and buffer with its shape; `tied_to` names the first name of a shared one."""
    first = {}
    parameters = []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        entry = {"name": name, "shape": list(parameter.shape),
                 "dtype": str(parameter.dtype).removeprefix("torch."),
                 "requires_grad": parameter.requires_grad}
        if id(parameter) in first:
            entry["tied_to"] = first[id(parameter)]
        else:
            first[id(parameter)] = name
        parameters.append(entry)
    buffers = [{"name": name, "shape": list(buffer.shape),
                "dtype": str(buffer.dtype).removeprefix("torch."),
                "persistent": name in model.state_dict()}
               for name, buffer in model.named_buffers(remove_duplicate=False)]
    return {"parameters": parameters, "buffers": buffers}


def versions():
    """Of what is installed; None for what is not."""
    found = {}
    for name in ("torch", "transformers", "peft"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def run_oracle(config, options, count_saved=True):
    """The whole trace as a JSON-ready dict. `config` is a transformers config object. What a forward
    pass saves is counted in one of its own, a fifth of the whole time: left out where nobody asks."""
    torch = import_torch()
    from torch._subclasses.fake_tensor import FakeTensorMode
    from headroom.attention_backends import force_sdpa
    from headroom.plain_tensor_rules import register_kernels
    register_kernels()
    torch.autograd.set_multithreading_enabled(False)
    fake = FakeTensorMode(allow_non_fake_inputs=True) if options.backend == "fake" else None
    with (_stages_of(options), _loss_of(options), _mesh_of(options) as mesh, fake or contextlib.nullcontext(), force_sdpa(options.sdpa), _gradients(options),
          as_on_a_gpu(), module_apply_for_fakes()):
        run = TrainingRun(config, options, mesh)
        construct = {"live_bytes": run.static_bytes, "peak_bytes": run.recorder.peak_bytes,
                     "events": compact(run.recorder.events, options.all_events)}
        count_saved = count_saved and options.task == "train" and not options.schedule
        saved = run.measure_saved() if count_saved else {}
        steps = [run.step() for _ in range(options.steps)]
        return {"schema": SCHEMA, "versions": versions(), "options": dataclasses.asdict(options),
                "model_type": config.model_type, "construct": construct, **saved, "steps": steps,
                "data_answers": answers_given(run.recorder.answers),
                **describe_parameters(run.model)}


def _mesh_of(options):
    from headroom import expert_ranks, tensor_ranks
    if options.expert_ranks > 1:
        return expert_ranks.mesh_of(options.expert_ranks)
    return tensor_ranks.mesh_of(options.tensor_ranks)


def _loss_of(options):
    """The loss of logits that lie in parts, where they do."""
    if not options.sequence_parallel:
        return contextlib.nullcontext()
    from headroom.tensor_ranks import loss_of_parts
    return loss_of_parts()


@contextlib.contextmanager
def _stages_of(options):
    if not options.schedule:
        yield
        return
    from headroom.pipeline_ranks import group_of, nothing_sent
    with group_of(options.stages, options.stage), nothing_sent():
        yield


def _one_hot(tensor, num_classes):
    """one_hot as it runs on plain CUDA tensors; for fake ones ATen takes a path through comparisons."""
    torch = import_torch()
    hot = torch.zeros(*tensor.shape, num_classes, dtype=torch.int64, device=tensor.device)
    return hot.scatter_(-1, tensor.unsqueeze(-1), 1)


@contextlib.contextmanager
def as_on_a_gpu():
    """Python code that asks what is there, and would take another path here, is told of a GPU.

    transformers asks whether a tensor is fake and then skips checks of values (all tokens
    attended to, no packed sequences) that on a real run drop the attention mask: the recorder
    answers those checks instead (enter this after transformers was imported). torch.autocast asks whether CUDA is available and else disables
    itself with a warning.
    """
    torch = import_torch()
    answers = [(torch.cuda, "get_device_capability", lambda device=None: COMPUTE_CAPABILITY),
               (torch.cuda, "is_bf16_supported", lambda including_emulation=True: True),
               (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
               (torch.nn.functional, "one_hot", _one_hot)]
    import_utils = sys.modules.get("transformers.utils.import_utils")
    if hasattr(import_utils, "is_fake_tensor"):
        answers.append((import_utils, "is_fake_tensor", lambda _: False))
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in answers]
    for owner, name, answer in answers:
        setattr(owner, name, answer)
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


@contextlib.contextmanager
def _gradients(options):
    torch = import_torch()
    with torch.set_grad_enabled(options.task == "train"):
        yield


def answers_given(answers):
    return [{"asked": k[0], "module": k[1], "dtype": k[2], "answer": k[3], "times": n}
            for k, n in sorted(answers.given.items())]


def _parser():
    parser = argparse.ArgumentParser(prog="python -m headroom.memory_oracle",
                                     description=__doc__.split("\n\n", maxsplit=1)[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", help="a config.json")
    source.add_argument("--family", help="a name under tests/python/configs")
    parser.add_argument("--out", default="-", help="where the JSON goes; - is stdout")
    parser.add_argument("--dump", default="", help="also write one line per operator to this file")
    defaults = Options()
    for field in dataclasses.fields(Options):
        flag = "--" + field.name.replace("_", "-")
        value = getattr(defaults, field.name)
        if isinstance(value, bool):
            parser.add_argument(flag, action="store_true")
        elif isinstance(value, tuple):
            parser.add_argument(flag, default="")
        elif field.name == "head":
            parser.add_argument(flag, default="", choices=["", *HEADS])
        else:
            parser.add_argument(flag, type=type(value), default=value)
    return parser


def _options_from(arguments, config):
    values = {f.name: getattr(arguments, f.name) for f in dataclasses.fields(Options)}
    for name in ("lora_targets", "freeze"):
        values[name] = tuple(t for t in getattr(arguments, name).split(",") if t)
    values["stage_layers"] = tuple(int(n) for n in arguments.stage_layers.split(",") if n)
    values["head"] = arguments.head or head_of(config)
    return Options(**values)


def main(argv=None):
    arguments = _parser().parse_args(argv)
    path = arguments.config
    if arguments.family:
        root = Path(__file__).resolve().parents[2]
        path = root / "tests" / "python" / "configs" / f"{arguments.family}.json"
    config = read_config(path)
    trace = run_oracle(config, _options_from(arguments, config))
    text = json.dumps(trace, indent=None)
    if arguments.out == "-":
        print(text)
    else:
        Path(arguments.out).write_text(text + "\n", encoding="utf-8")
    if arguments.dump:
        from headroom.trace_compare import dump_text
        Path(arguments.dump).write_text(dump_text(trace), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
