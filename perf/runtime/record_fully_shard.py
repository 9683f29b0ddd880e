"""Recordings of trainings that PyTorch's fully_shard divides: who asks for what on which stream, and
what the streams are told to wait for, as PyTorch's own code does it. Without a GPU.

    python record_fully_shard.py FOLDER [NAME ...]

One rank of a group of processes that is not there; nothing is sent. Tensors are the CPU's, so that
operators' scratch memory is a CPU's; streams and events are Python objects in the place of
torch.cpu's, which remember what is done to them. Files are those of `headroom run --record`
(docs/formats/recording.md), for headroom_runtime_efficiency.
"""

import contextlib
import os
import struct
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
from headroom.allocation_recorder import AllocationRecorder  # noqa: E402 (from this tree)

RANKS = 4
ITERATIONS = 4
MODELS = {
    "gpt2-fully-shard": ("gpt2", {"n_embd": 768, "n_layer": 6, "n_head": 12, "vocab_size": 16384},
                         2, 512, False),
    "llama-fully-shard": ("llama", {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8,
                                    "num_attention_heads": 16, "vocab_size": 16384}, 2, 512, False),
    "llama-fully-shard-checkpoints": ("llama", {"hidden_size": 1024, "intermediate_size": 2816,
                                                "num_hidden_layers": 8, "num_attention_heads": 16,
                                                "vocab_size": 16384}, 4, 512, True),
    "mixtral-fully-shard": ("mixtral", {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 6,
                                        "num_attention_heads": 8, "num_key_value_heads": 4,
                                        "num_local_experts": 8, "vocab_size": 16384}, 2, 512, False),
}


class Recording:
    """docs/formats/recording.md, written slot by slot."""

    ALLOC, FREE, FREE_DONE, RECORD, WAIT, ITERATION, END = 2, 3, 4, 11, 12, 15, 17

    def __init__(self, path):
        self.file = open(path, "wb")  # noqa: SIM115 (closed by close())
        self.file.write(b"\x89HDRMREC" + struct.pack("<IIqiiiIqqq", 1, 32, 0, 0, 0, RANKS, 0, 0, 0, 0))
        self.streams = {}
        self.time = 0

    def slot(self, kind, stream=0, address=0, size=0):
        self.time += 1000
        self.file.write(struct.pack("<BBHIqqq", kind, 0, stream, 0, address, size, self.time))

    def event(self, kind, stream, address=0, size=0):
        if stream not in self.streams:
            self.streams[stream] = len(self.streams)
            self.slot(1, self.streams[stream], stream)
        self.slot(kind, self.streams[stream], address, size)

    def close(self):
        self.slot(self.END)
        self.file.close()


class Stream:
    current = None
    recording = None
    made = 0

    def __init__(self, device=None, priority=0):
        self.handle = 0x1000 * Stream.made
        Stream.made += 1

    def wait_event(self, event):
        event.wait(self)

    def wait_stream(self, stream):
        self.wait_event(stream.record_event())

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event


class Event:
    made = 0

    def __init__(self, *_, **__):
        Event.made += 1
        self.handle = Event.made

    def record(self, stream=None):
        Stream.recording.event(Recording.RECORD, (stream or Stream.current).handle, self.handle)
        return self

    def wait(self, stream=None):
        Stream.recording.event(Recording.WAIT, (stream or Stream.current).handle, self.handle)

    def synchronize(self):
        pass


@contextlib.contextmanager
def on_stream(stream):
    before, Stream.current = Stream.current, stream
    try:
        yield
    finally:
        Stream.current = before


class Blocks(AllocationRecorder):
    """Writes each storage's beginning and end, on the stream that is current when it begins."""

    now = None

    def __init__(self, recording):
        super().__init__("cpu")
        self.recording = recording
        self.next_address = 1 << 20
        self.at = {}  # by storage: address and stream

    def begin(self, key, size):
        if size == 0:
            return
        self.at[key] = self.next_address, Stream.current.handle
        self.recording.event(Recording.ALLOC, Stream.current.handle, self.next_address, size)
        self.next_address += -(-size // 512) * 512

    def end(self, key):
        if key not in self.at or self.recording.file.closed:  # the process ends
            return
        address, stream = self.at.pop(key)
        self.recording.event(Recording.FREE, stream, address)
        self.recording.event(Recording.FREE_DONE, stream, address)

    def adopt(self, tensor, event=None):
        size = super().adopt(tensor, event)
        if size is not None:
            self.begin(tensor.untyped_storage()._cdata, size)
        return size

    def _on_release(self, key):
        super()._on_release(key)
        self.end(key)


def listen_to_fully_shard(blocks):
    """It gives the storages of whole parameters their bytes, and takes them, without an operator."""
    allocate, free = _fsdp_param.alloc_storage, _fsdp_param.free_storage

    def allocates(tensor):
        storage = tensor.untyped_storage()
        was = storage.size()
        allocate(tensor)
        if was == 0:
            blocks().begin(storage._cdata, storage.size())

    def frees(tensor):
        storage = tensor.untyped_storage()
        if storage.size() > 0:
            blocks().end(storage._cdata)
        free(tensor)

    _fsdp_param.alloc_storage, _fsdp_param.free_storage = allocates, frees


def model_of(name):
    kind, sizes, batch, sequence, checkpoints = MODELS[name]
    config = AutoConfig.for_model(kind, max_position_embeddings=sequence, use_cache=False, **sizes) \
        if kind != "gpt2" else AutoConfig.for_model(kind, n_positions=sequence, use_cache=False, **sizes)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").train()
    if checkpoints:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model, batch, sequence


def record(name, folder):
    recording = Recording(os.path.join(folder, name + ".hrec"))
    Stream.recording, Stream.made = recording, 0
    Stream.current = main = Stream()
    Blocks.now = blocks = Blocks(recording)
    model, batch, sequence = model_of(name)
    mesh = init_device_mesh("cpu", (RANKS,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    layers = model.transformer.h if hasattr(model, "transformer") else model.model.layers
    for unit in [*layers, model]:
        fully_shard(unit, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    with blocks:
        for parameter in model.parameters():
            blocks.adopt(parameter.to_local().detach())
        for iteration in range(ITERATIONS):
            recording.event(Recording.ITERATION, main.handle, iteration)
            tokens = torch.randint(model.config.vocab_size, (batch, sequence))
            model(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(name, iteration, f"{blocks.live_bytes / 2**20:.0f} MiB", file=sys.stderr)
    recording.close()


def main(folder, *names):
    torch.cpu.Stream, torch.cpu.Event = Stream, Event
    torch.cpu.stream, torch.cpu.current_stream = on_stream, lambda device=None: Stream.current
    torch.accelerator.current_stream = torch.cpu.current_stream
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    listen_to_fully_shard(lambda: Blocks.now)
    for name in names or MODELS:
        record(name, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
