"""torch._C's functions of allocators, asked of whatever allocator lies in the libc10_cuda.so of
tests/shim, which has PyTorch's own C++ class: so that what a shim answers reaches Python.
"""

import ctypes
import os


def _load():
    c10 = ctypes.CDLL(os.environ["STAND_IN_C10_CUDA"], mode=ctypes.RTLD_GLOBAL)
    c10.stand_in_alloc.restype = ctypes.c_void_p
    c10.stand_in_alloc.argtypes = [ctypes.c_size_t, ctypes.c_void_p]
    c10.stand_in_delete.argtypes = [ctypes.c_void_p]
    c10.stand_in_native_owns.argtypes = [ctypes.c_void_p]
    c10.stand_in_set_memory_fraction.argtypes = [ctypes.c_double, ctypes.c_int]
    for name in ("stand_in_backend", "stand_in_refusal"):
        getattr(c10, name).restype = ctypes.c_char_p
    return c10


def install(torch, state, devices):
    c10 = _load()

    def statistics(device):
        figures = (ctypes.c_int64 * 4)()
        c10.stand_in_statistics(device, figures)
        allocated, reserved = figures[:2], figures[2:]
        return {name: {"all": {"current": values[0], "peak": values[1], "allocated": 0, "freed": 0}}
                for name, values in (("allocated_bytes", allocated), ("reserved_bytes", reserved))}

    def alloc(size, stream):
        c10.stand_in_set_device(state.device)
        pointer = c10.stand_in_alloc(size, stream or None)
        if not pointer and size:
            raise torch.OutOfMemoryError(c10.stand_in_refusal().decode())
        return pointer or 0

    def init():
        state.is_initialised = True
        c10.stand_in_init(devices)

    def backend():
        name = c10.stand_in_backend().decode()
        return "pluggable" if state.allocator is not None else name

    through_a_function = {name: getattr(torch._C, name) for name in (
        "_cuda_cudaCachingAllocator_raw_alloc", "_cuda_cudaCachingAllocator_raw_delete",
        "_cuda_init", "_cuda_memoryStats")}

    def unless_pluggable(name, function):
        # Where the C interface was taken after all, the stand-in in Python goes on.
        def answer(*arguments):
            chosen = through_a_function[name] if state.allocator is not None else function
            return chosen(*arguments)
        return answer

    for name, function in {
            "_cuda_cudaCachingAllocator_raw_alloc": alloc,
            "_cuda_cudaCachingAllocator_raw_delete": lambda pointer: c10.stand_in_delete(pointer),
            "_cuda_init": init, "_cuda_memoryStats": statistics}.items():
        setattr(torch._C, name, unless_pluggable(name, function))
    # Not ctypes' own functions, which have no hash: torch._dynamo looks them up in a table.
    torch._C._cuda_resetPeakMemoryStats = lambda device: c10.stand_in_reset_peak(device)
    torch._C._cuda_emptyCache = lambda: c10.stand_in_empty_cache()
    torch._C._cuda_getAllocatorBackend = backend
    torch._C._stand_in_pool = lambda device, is_begun: c10.stand_in_pool(device, is_begun)
    torch._C._stand_in_native_owns = lambda pointer: bool(c10.stand_in_native_owns(pointer))
