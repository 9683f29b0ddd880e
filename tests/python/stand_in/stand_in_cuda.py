"""What torch._C of a CUDA build has for allocators, in Python: the shapes and the refusals of
torch/csrc/cuda/Module.cpp and CUDAPluggableAllocator.cpp in PyTorch 2.13, over function pointers.

It keeps what an allocator may rely on: functions are called by address with PyTorch's signatures,
init_fn when CUDA is initialised, a swap only before that and once, statistics refused by an
allocator that is not PyTorch's. Memory is what the allocator gives; there are no CUDA tensors.
STAND_IN (the environment): words for variants, "no-release-setter", "other-backend", "hip".
STAND_IN_C10_CUDA: a libc10_cuda.so to ask in place of all that (tests/shim), by stand_in_c10.py.
"""

import ctypes
import os
from types import SimpleNamespace

_MALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
_INIT = ctypes.CFUNCTYPE(None, ctypes.c_int)
_RESET = ctypes.CFUNCTYPE(None)
_FRACTION = ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_int)
_RECORD = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

VARIANTS = os.environ.get("STAND_IN", "").split()
DEVICES = int(os.environ.get("STAND_IN_DEVICES", "1"))
TOTAL = 4 << 30


def _unsupported(name):
    def refuse(*_):
        raise RuntimeError(f"CUDAPluggableAllocator does not yet support {name}. If you need it, "
                           "please file an issue describing your use case.")
    return refuse


class Pluggable:
    """torch._C._CUDAPluggableAllocator."""

    def __init__(self, malloc, free):
        self.malloc, self.free = _MALLOC(malloc), _FREE(free)
        self.functions = {}
        self.blocks = {}

    def __getattr__(self, name):
        known = ("set_init_fn", "set_reset_fn", "set_memory_fraction_fn", "set_base_alloc_fn",
                 "set_record_stream_fn", "set_begin_allocate_to_pool",
                 "set_end_allocate_to_pool_fn", "set_release_pool")
        if name not in known or ("no-release-setter" in VARIANTS and name == "set_release_pool"):
            raise AttributeError(name)

        def keep(address):
            assert isinstance(address, int) and address > 0
            self.functions[name] = address
        return keep

    def call(self, setter, prototype, *arguments):
        if setter in self.functions:
            prototype(self.functions[setter])(*arguments)

    def raw_alloc(self, size, stream):
        pointer = self.malloc(size, state.device, stream or None)
        if pointer:
            self.blocks[pointer] = (size, state.device, stream)
        return pointer or 0

    def raw_delete(self, pointer):
        size, device, stream = self.blocks.pop(pointer)
        self.free(pointer, size, device, stream or None)


class Native:
    """PyTorch's own allocator, as far as its statistics are asked for: it never uses anything."""

    def stats(self, _):
        figure = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
        return {name: {"all": dict(figure)} for name in ("allocated_bytes", "reserved_bytes")}


state = SimpleNamespace(allocator=None, device=0, is_initialised=False, initialisations=0)


def _change(allocator):
    if state.is_initialised or state.allocator is not None:
        raise RuntimeError("Can't swap an already initialized allocator")
    state.allocator = allocator


def _init():
    assert not state.is_initialised
    state.is_initialised = True
    state.initialisations += 1
    if state.allocator is not None:
        state.allocator.call("set_init_fn", _INIT, DEVICES)


def _stats(device):
    if state.allocator is not None:
        _unsupported("getDeviceStats")()
    return Native().stats(device)


def _set_device(device):
    state.device = device


class Stream:
    """torch.cuda.Stream: one of PyTorch's own, numbered as those are."""

    device_index = 0

    def __init__(self, number=0):
        self.stream_id = 2 * number + 1 if number else 0
        self.cuda_stream = 0x1000 * number

    def wait_event(self, event):
        event.wait(self)

    def wait_stream(self, stream):
        self.wait_event(stream.record_event())

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event


class Event:
    """torch.cuda.Event, whose work is the fake driver's."""

    cuda_event = property(lambda self: 0x77)

    @classmethod
    def from_ipc_handle(cls, device, handle):
        return cls()

    def record(self, stream=None):
        self.happens = _driver().headroom_fake_record(ctypes.c_void_p(stream.cuda_stream))

    def wait(self, stream=None):
        _driver().headroom_fake_wait(ctypes.c_void_p(stream.cuda_stream),
                                     ctypes.c_int64(self.happens))


def _driver():
    driver = ctypes.CDLL(os.environ["HEADROOM_CUDA_DRIVER"])
    driver.headroom_fake_record.restype = ctypes.c_int64
    return driver


def install(torch):
    properties = SimpleNamespace(name=os.environ.get("STAND_IN_NAME", "Stand-in GPU"), total_memory=TOTAL, major=9, minor=0)
    functions = {
        "_cuda_getDeviceCount": lambda: DEVICES,
        "_cuda_getDevice": lambda: state.device,
        "_cuda_setDevice": _set_device,
        "_cuda_init": _init,
        "_cuda_isInBadFork": lambda: False,
        "_cuda_getCurrentRawStream": lambda device: 0,
        "_cuda_customAllocator": Pluggable,
        "_cuda_changeCurrentAllocator": _change,
        "_cuda_getAllocator": lambda: state.allocator,
        "_cuda_getAllocatorBackend": lambda: "cudaMallocAsync" if "other-backend" in VARIANTS else
        "pluggable" if state.allocator else "native",
        "_cuda_memoryStats": _stats,
        "_cuda_resetPeakMemoryStats": _unsupported("resetPeakStats"),
        "_cuda_resetAccumulatedMemoryStats": _unsupported("resetAccumulatedStats"),
        "_cuda_memorySnapshot": _unsupported("snapshot"),
        "_cuda_record_memory_history": _unsupported("recordHistory"),
        "_cuda_isHistoryEnabled": _unsupported("recordHistory"),
        "_cuda_getMemoryFraction": _unsupported("getMemoryFraction"),
        "_cuda_setMemoryFraction": lambda fraction, device: state.allocator.call(
            "set_memory_fraction_fn", _FRACTION, fraction, device),
        "_cuda_emptyCache": lambda: state.allocator.call("set_reset_fn", _RESET),
        "_cuda_getCheckpointState": _unsupported("getCheckpointState"),
        "_cuda_cudaCachingAllocator_raw_alloc": lambda size, stream: state.allocator.raw_alloc(
            size, stream),
        "_cuda_cudaCachingAllocator_raw_delete": lambda pointer: state.allocator.raw_delete(
            pointer),
        "_accelerator_getDeviceIndex": lambda: state.device,
        "_accelerator_isAllocatorInitialized": lambda: False,
        "_accelerator_getDeviceStats": _unsupported("getDeviceStats"),
        "_accelerator_emptyCache": lambda: None,
        "_get_accelerator": lambda check=False: SimpleNamespace(type="cuda", index=None),
    }
    for name, function in functions.items():
        setattr(torch._C, name, function)
    torch.cuda.Stream, torch.cuda.Event = Stream, Event
    torch.cuda.current_stream = lambda device=None: Stream()
    torch.cuda._get_device_properties = lambda device: properties
    torch.cuda._cudart = SimpleNamespace(cudaMemGetInfo=lambda device: (TOTAL // 2, TOTAL))
    torch.cuda.device_count = lambda: DEVICES
    torch.cuda.is_available = lambda: True
    torch.cuda.current_device = lambda: state.device
    torch.cuda.mem_get_info = lambda device=None: (TOTAL // 2, TOTAL)
    if "STAND_IN_C10_CUDA" in os.environ:
        import stand_in_c10
        stand_in_c10.install(torch, state, DEVICES)
    if "hip" in VARIANTS:
        torch.version.hip = "6.2"
