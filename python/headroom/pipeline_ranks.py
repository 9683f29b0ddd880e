"""One rank of a pipeline of stages, for the oracle: PyTorch's own stages and schedules, nothing sent.

The group of processes is PyTorch's fake one. What a request to send or receive holds is held as NCCL's
does (its work has the tensor). Stages are told of their inputs, so that no pass is run to find out.
"""

import contextlib

SCHEDULES = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B", "interleaved": "ScheduleInterleaved1F1B",
             "zero-bubble": "ScheduleInterleavedZeroBubble", "zbv": "ScheduleZBVZeroBubble",
             "dualpipev": "ScheduleDualPipeV"}
MIRRORED = ("zbv", "dualpipev")


def class_of(schedule, chunks):
    """PyTorch's class for a word of `--pipeline-schedule` and so many stages a rank."""
    from torch.distributed.pipelining import schedules
    word = "interleaved" if schedule == "1f1b" and chunks > 1 else schedule
    return getattr(schedules, SCHEDULES[word])


def stages_of_rank(schedule, ranks, rank, chunks):
    """Which of all parts of the model a rank has."""
    if schedule in MIRRORED:
        return [rank, 2 * ranks - 1 - rank]
    return list(range(rank, ranks * chunks, ranks))


@contextlib.contextmanager
def group_of(ranks, rank):
    """A group in which nothing is sent. To be entered before FakeTensorMode is."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


class Request:
    """Of sending or receiving: done at once, and it has the tensor for as long as somebody has it."""

    def __init__(self, operation):
        self.tensor = operation.tensor

    def wait(self):
        pass


@contextlib.contextmanager
def nothing_sent():
    """Schedules make requests that hold what they would send, and ask nobody which metadata comes."""
    import torch
    from torch.distributed.pipelining import schedules
    requests = schedules._batch_p2p
    fork = torch.random.fork_rng
    schedules._batch_p2p = lambda operations, desc=None: [Request(one) for one in operations]
    torch.random.fork_rng = lambda *_, **__: contextlib.nullcontext()  # there is no device to ask
    try:
        with _metadata_told():
            yield
    finally:
        schedules._batch_p2p = requests
        torch.random.fork_rng = fork


@contextlib.contextmanager
def _metadata_told():
    """PyTorch 2.11 asks nobody where a stage was told of its inputs; later ones ask in a pass of their own."""
    from torch.distributed.pipelining import schedules, stage
    warm_up = getattr(schedules._PipelineSchedule, "_warmup_p2p", None)
    if warm_up is None:
        yield
        return

    def told(self, stages, has_backward, p2p_done):
        for one in stages:
            one._inference_mode = stage.InferenceMode.STATIC

    schedules._PipelineSchedule._warmup_p2p = told
    try:
        yield
    finally:
        schedules._PipelineSchedule._warmup_p2p = warm_up


def parts_of(layers, stages, counts=()):
    """By stage, its layers, so many each or as torchtitan shares them out: embedding and head count as one each."""
    if stages == 1:
        return [range(layers)]
    if not counts:
        each, more = divmod(layers + 2, stages)
        counts = [each + (i < more) - (i in (0, stages - 1)) for i in range(stages)]
    ends = [sum(counts[:i + 1]) for i in range(stages)]
    return [range(end - count, end) for count, end in zip(counts, ends)]


def cut(model, layers, is_first, is_last):
    """A module of a causal language model's part: token ids or hidden states to hidden states or logits."""
    import torch

    class Part(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.lm_head = model.model, model.lm_head if is_last else None
            text = getattr(self.model, "language_model", self.model)
            if not is_first:
                self.model = text  # the tower beside it is the first part's
            text.layers = torch.nn.ModuleList([text.layers[i] for i in layers])
            text.config.num_hidden_layers = len(layers)
            if not is_first:
                text.embed_tokens = None
            if not is_last:
                text.norm = torch.nn.Identity()

        def forward(self, x):
            name = "input_ids" if is_first else "inputs_embeds"
            hidden = self.model(**{name: x}, use_cache=False).last_hidden_state
            return self.lm_head(hidden[:, slice(0, None), :]) if is_last else hidden

    return Part()


def parts_of_rank(make_model, options, layers=()):
    """The rank's parts, of a model each, since a stage's modules are its own; of so many layers, where that is said."""
    import torch
    models = [make_model() for _ in range(options.chunks)]
    parts = parts_of(models[0].config.get_text_config().num_hidden_layers, options.stages * options.chunks,
                     layers)
    own = stages_of_rank(options.schedule, options.stages, options.stage, options.chunks)
    loss = models[0].loss_function
    vocabulary = models[0].config.get_text_config().vocab_size
    modules = torch.nn.ModuleList(
        cut(model, parts[i], i == 0, i == len(parts) - 1) for model, i in zip(models, own))
    modules.config = models[0].config  # peft asks it which layers to adapt
    modules.loss = lambda logits, labels: loss(logits=logits, labels=labels, vocab_size=vocabulary)
    return modules


class PipelineSteps:
    """What a rank does in a step."""

    def __init__(self, modules, options, config, device, group=None):
        import torch
        from torch.distributed.pipelining import PipelineStage
        count = options.stages * options.chunks
        type_ = getattr(torch, options.dtype)
        size = (options.batch, options.seq, config.get_text_config().hidden_size)
        stages = []
        own = stages_of_rank(options.schedule, options.stages, options.stage, options.chunks)
        for index, module in zip(own, modules):
            hidden = torch.empty(size, dtype=type_, device="meta", requires_grad=True)
            ids = torch.empty(size[:2], dtype=torch.int64, device="meta")
            logits = torch.empty((*size[:2], config.get_text_config().vocab_size), dtype=type_, device="meta")
            stages.append(PipelineStage(
                module, index, count, torch.device(device), input_args=hidden if index else ids,
                output_args=hidden if index + 1 < count else logits, group=group))
        schedule = class_of(options.schedule, options.chunks)
        single = schedule.__name__ in ("ScheduleGPipe", "Schedule1F1B")
        self.schedule = schedule(stages[0] if single else stages, options.accumulation, loss_fn=modules.loss)
        self.options = options
        self.is_first = own[0] == 0
        self.is_last = own[-1] + 1 == count

    def __call__(self, ids, labels):
        """One step of all micro-batches."""
        target = {"target": labels} if self.is_last else {}
        return self.schedule.step(*([ids] if self.is_first else []), **target,
                                  return_outputs=self.options.keep_outputs)
