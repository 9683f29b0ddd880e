"""The oracle on a model with Liger-Kernel's patches, as a program of its own (test_kernels.py).

`liger_oracle.py WHAT [arguments of headroom.memory_oracle]`, where WHAT is a comma-separated list of
what to patch: rope, rms_norm, swiglu, geglu, cross_entropy, fused_linear_cross_entropy, and
accum_float32, which has the fused loss accumulate in float32. Kernels are not run (triton_stub.py); the
numbers that Liger reads back from the device (how many targets count) are taken to be one.
"""

import contextlib
import functools
import sys
import types

import triton_stub

from headroom import memory_oracle

SWITCHES = ("rope", "rms_norm", "swiglu", "geglu", "cross_entropy", "fused_linear_cross_entropy")


MULTIPROCESSORS = 132


def answer_for_the_device(torch):
    """Fake tensors have no values; Liger asks for some, and for nothing that decides a size."""
    torch.cuda.device = contextlib.nullcontext
    torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(
        multi_processor_count=MULTIPROCESSORS)
    torch.Tensor.item = lambda tensor: 1
    torch.Tensor.__bool__ = lambda tensor: True
    torch.equal = lambda first, second: True


def patch(model_type, wanted):
    """Applies Liger's function for the architecture, with these switches on and all others off."""
    import inspect

    from liger_kernel.transformers import monkey_patch
    apply = monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN[model_type]
    known = [name for name in SWITCHES if name in inspect.signature(apply).parameters]
    apply(**{name: name in wanted for name in known})
    if "accum_float32" in wanted:
        import torch
        from liger_kernel.transformers.model import loss_utils
        plain = loss_utils.F.liger_fused_linear_cross_entropy
        fused = functools.wraps(plain)(
            lambda *arguments, **named: plain(*arguments, **{**named,
                                                             "accum_dtype": torch.float32}))
        loss_utils.F.liger_fused_linear_cross_entropy = fused


def main():
    wanted, arguments = set(sys.argv[1].split(",")), sys.argv[2:]
    triton_stub.install()
    torch = memory_oracle.import_torch()
    config = memory_oracle.read_config(arguments[arguments.index("--config") + 1])
    patch(config.model_type, wanted)
    answer_for_the_device(torch)
    sys.argv = [sys.argv[0], *arguments]
    return memory_oracle.main()


if __name__ == "__main__":
    sys.exit(main())
