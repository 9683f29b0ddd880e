"""The swap: PyTorch's CUDA allocator becomes ours, or a Refused says why it does not.

Two ways: by the shim, where one was built for this PyTorch (shim/__init__.py), which answers all of
PyTorch's questions; else by PyTorch's C interface for other allocators, with the questions that
Python asks answered in Python, and what is left named where it is used.

Everything is checked first, and the swap is the last thing that can fail; it is final, as PyTorch
lets an allocator be changed only until CUDA is used, and a second time never. Nothing here makes a
CUDA call. The setters and what PyTorch calls through them: docs/run.md, "Versions of PyTorch".
"""

from headroom.run import needs, shim, statistics, unavailable

# Setter of torch._C._CUDAPluggableAllocator: function of the library.
SETTERS = (
    ("set_init_fn", "headroom_init"),
    ("set_reset_fn", "headroom_reset"),
    ("set_memory_fraction_fn", "headroom_set_memory_fraction"),
    ("set_base_alloc_fn", "headroom_get_base_allocation"),
    ("set_record_stream_fn", "headroom_record_stream"),
    ("set_begin_allocate_to_pool", "headroom_begin_allocate_to_pool"),
    ("set_end_allocate_to_pool_fn", "headroom_end_allocate_to_pool"),
    ("set_release_pool", "headroom_release_pool"),
)
_NEEDED = ("_cuda_customAllocator", "_cuda_changeCurrentAllocator", "_cuda_init",
           "_cuda_memoryStats")
THROWER = "headroom_throw_torch_out_of_memory"


class Refused(RuntimeError):
    """Our allocator was not put in; the message says why, and PyTorch's own goes on."""


def has_cuda(torch):
    """Whether this PyTorch was built with CUDA (or ROCm, which looks the same)."""
    return hasattr(torch._C, "_cuda_getDeviceCount")


def _check(torch):
    if getattr(torch.version, "hip", None):
        raise Refused("this PyTorch is built for ROCm, where Headroom has not been tried")
    missing = [name for name in _NEEDED if not hasattr(torch._C, name)]
    if missing:
        raise Refused(f"PyTorch {torch.__version__} has no {missing[0]}")
    if torch.cuda.is_initialized():
        raise Refused("CUDA was used before Headroom was asked: it has to come right after "
                      "`import torch`")
    backend = getattr(torch._C, "_cuda_getAllocatorBackend", lambda: "native")()
    if backend != "native":
        raise Refused(f"PyTorch's allocator is already another one ({backend})")


def _new_allocator(torch, library):
    allocator = torch._C._cuda_customAllocator(library.address("headroom_malloc"),
                                               library.address("headroom_free"))
    for setter, function in SETTERS:
        if not hasattr(allocator, setter):
            raise Refused(f"PyTorch {torch.__version__} has no {setter}: a later one is needed "
                          "(docs/run.md)")
        getattr(allocator, setter)(library.address(function))
    return allocator


def install(torch, library, notes, environment):
    """Puts the library in; True where by the shim. Raises Refused, and then nothing was changed."""
    _check(torch)
    path = shim.find(shim.of_module(torch), environment)
    if path:
        try:
            _install_shim(torch, library, path)
            return True
        except shim.ShimUnavailable as reason:
            notes.append(f"the shim is not used: {reason}")
    _refuse_what_was_left_to_the_shim()
    _install_functions(torch, library, notes)
    return False


def _refuse_what_was_left_to_the_shim():
    """Else the script would fail in its midst, at what it was let start with."""
    left = needs.left_to_the_shim()
    if left:
        raise Refused(f"the script needs the shim ({left[0].place}: {left[0].why}), which is not "
                      "used; `--no-shim` says so before it starts")


def _install_shim(torch, library, path):
    answers = statistics.history_answers(torch, library)
    shim.exchange(torch, library, path)
    _replace(torch, answers)
    statistics.keep_peaks_of_torch(torch)


def _replace(torch, answers):
    for name, function in answers.items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)


def _install_functions(torch, library, notes):
    try:
        if library.handle.headroom_torch_errors_missing() != 0:
            raise Refused(f"PyTorch {torch.__version__} does not export its OutOfMemoryError")
        thrower = library.address(THROWER)
        allocator = _new_allocator(torch, library)
    except AttributeError as error:
        raise Refused(f"{library.path} is another version: {error}") from None
    answers = statistics.answers(torch, library)
    library.handle.headroom_on_out_of_memory(thrower, None)
    try:
        torch._C._cuda_changeCurrentAllocator(allocator)
    except RuntimeError as error:
        raise Refused(f"PyTorch refused it: {str(error).splitlines()[0]}") from None
    _replace(torch, answers)
    unavailable.name_what_is_not_there(torch, notes)
