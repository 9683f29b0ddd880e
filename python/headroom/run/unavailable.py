"""What an allocator behind PyTorch's C interface cannot serve says so where it is used.

PyTorch would raise from C++ in the midst of a training step, or, with the profiler, say nothing.
Here the reason comes with the call that needs it, and where the run can go on without, it does.
The shim serves most of it, and then this is not used.
"""

import functools
import warnings

from headroom.run.needs import SERVED, WHY

_OFF = "; `headroom run --off` runs it with PyTorch's own allocator"
_SHIM = ", `headroom run --build-shim` compiles what serves it"


def _raising(need):
    def refuse(*_, **__):
        way = _OFF + (_SHIM if need in SERVED else "")
        raise RuntimeError(f"not available under headroom run: {WHY[need]}{way}")
    return refuse


def _keep_benchmark_off(torch, notes):
    """cudnn.benchmark stays False; the first attempt to set it is told."""
    set_flag = torch._C._set_cudnn_benchmark

    def stay_off(value):
        if value and not stay_off.is_told:
            stay_off.is_told = True
            notes.append("cudnn.benchmark stays off: cuDNN would ask what our allocator cannot "
                         "answer")
            warnings.warn(f"cudnn.benchmark stays off under headroom run: "
                          f"{WHY['cudnn-benchmark']}{_OFF}{_SHIM}", stacklevel=3)
        set_flag(False)
    stay_off.is_told = False
    set_flag(False)
    torch._C._set_cudnn_benchmark = stay_off
    # The property of torch.backends.cudnn holds the function itself.
    prop = vars(type(torch.backends.cudnn)).get("benchmark")
    if hasattr(prop, "setter"):
        prop.setter = stay_off


def _tell_the_profiler(torch, notes):
    profile = torch.autograd.profiler.profile
    begin = profile.__init__

    @functools.wraps(begin)
    def tell(self, *arguments, **options):
        if options.get("profile_memory"):
            notes.append("the profiler shows no device memory")
            warnings.warn(f"under headroom run {WHY['profiler-memory']}{_OFF}{_SHIM}",
                          stacklevel=3)
        begin(self, *arguments, **options)
    profile.__init__ = tell


def name_what_is_not_there(torch, notes):
    """Once, after the swap. What this version of PyTorch has not is left out."""
    for name in ("_cuda_getCheckpointState", "_cuda_setCheckpointPoolState",
                 "_cuda_checkPoolLiveAllocations"):
        if hasattr(torch._C, name):
            setattr(torch._C, name, _raising("cuda-graph-trees"))
    if hasattr(torch.cuda, "MemPool"):
        torch.cuda.MemPool.__init__ = _raising("mempool")
    storage = getattr(torch, "UntypedStorage", None)
    if storage is not None:
        storage._share_cuda_ = _raising("cuda-ipc")
        storage._new_shared_cuda = staticmethod(_raising("cuda-ipc"))
    if hasattr(torch._C, "_set_cudnn_benchmark"):
        _keep_benchmark_off(torch, notes)
    _tell_the_profiler(torch, notes)
