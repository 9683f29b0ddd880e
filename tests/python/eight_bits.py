"""bitsandbytes' modules of eight bits (LLM.int8) on fake tensors: the library's own Python code for GPUs, whose kernels
are not launched.

Nothing among the activations is an outlier: which columns are is a matter of data.
"""

import contextlib
import importlib.util
import types

import bitsandbytes
import torch
from bitsandbytes.nn import modules
from torch._subclasses.fake_tensor import FakeTensor

THRESHOLD = 6.0  # llm_int8_threshold, as transformers has it


class NoLibrary:
    """In the place of the library of kernels: every function is there, and does nothing."""

    def __getattr__(self, name):
        def launch(*arguments):
            return 0

        return launch


def kernels_of_gpus():
    """By name and backend, what bitsandbytes registers for its operators."""
    from bitsandbytes import _ops, cextension

    found = {}

    def register_kernel(name, backend):
        return lambda function: found.setdefault((name.removeprefix("bitsandbytes::"), backend), function)

    if not hasattr(torch._C, "_cuda_getCurrentRawStream"):  # of builds with CUDA
        torch._C._cuda_getCurrentRawStream = lambda index: 0
    originals = (_ops.register_kernel, cextension.lib)
    _ops.register_kernel, cextension.lib = register_kernel, NoLibrary()
    try:
        for backend in ("default", "cuda"):
            spec = importlib.util.find_spec(f"bitsandbytes.backends.{backend}.ops")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            if backend == "cuda":
                answer_for_the_device(module)
    finally:
        _ops.register_kernel, cextension.lib = originals
    return found


def answer_for_the_device(module):
    module._cuda_device_of = lambda tensor: contextlib.nullcontext()
    module._get_raw_stream = lambda index: 0
    module.CUBLAS_Context = types.SimpleNamespace(
        get_instance=lambda: types.SimpleNamespace(get_context=lambda device: 0))


@contextlib.contextmanager
def nothing_is_true():
    """What these operators ask of a fake tensor: whether anything is an outlier."""
    is_outermost = "__bool__" not in FakeTensor.__dict__
    FakeTensor.__bool__ = lambda tensor: False
    try:
        yield
    finally:
        if is_outermost:
            del FakeTensor.__bool__


def operators():
    """torch.ops.bitsandbytes, of plain functions: those for CUDA, else the ones for every device."""
    kernels = kernels_of_gpus()
    names = {name for name, _ in kernels}

    def operator(name):
        function = kernels.get((name, "cuda")) or kernels[name, "default"]

        def made(*arguments, **named):
            with nothing_is_true():
                return function(*arguments, **named)

        made.default = made
        return made

    return types.SimpleNamespace(**{name: operator(name) for name in names if "." not in name})


def parameter(data, **named):
    """Int8Params as far as modules look at it: fake tensors are of a class already, and take no other."""
    made = torch.nn.Parameter(data, requires_grad=False)
    made.CB = made.SCB = None
    return made


def quantized(value):
    """As Int8Params.to() a GPU."""
    weight = types.SimpleNamespace(data=value.to("cpu"), has_fp16_weights=False)
    bitsandbytes.nn.Int8Params._quantize(weight, value.device)
    made = parameter(weight.CB)
    made.CB, made.SCB = weight.CB, weight.SCB
    return made


@contextlib.contextmanager
def running():
    """While entered, torch.ops.bitsandbytes are functions that run on fake tensors."""
    original = (torch.ops.bitsandbytes, modules.Int8Params)
    torch.ops.bitsandbytes, modules.Int8Params = operators(), parameter
    FakeTensor.data_ptr = lambda tensor: 0
    try:
        yield
    finally:
        torch.ops.bitsandbytes, modules.Int8Params = original
        del FakeTensor.data_ptr


def quantize(model):
    """bitsandbytes' modules in the place of all linear ones but the head, as transformers' Bnb8bitQuantize makes them."""
    head = model.get_output_embeddings()
    for parent in list(model.modules()):
        for name, linear in list(parent.named_children()):
            is_conv1d = type(linear).__name__ == "Conv1D"
            if linear is head or not (is_conv1d or type(linear) is torch.nn.Linear):
                continue
            value = linear.weight.data.T if is_conv1d else linear.weight.data
            made = bitsandbytes.nn.Linear8bitLt(
                value.shape[1], value.shape[0], bias=linear.bias is not None, has_fp16_weights=False,
                threshold=THRESHOLD, device="meta")
            made.weight = quantized(value)
            if linear.bias is not None:
                made.bias = torch.nn.Parameter(linear.bias.data, requires_grad=False)
            setattr(parent, name, made)
    model.is_loaded_in_8bit = True
    return model


def prepare(model):
    """As peft's prepare_model_for_kbit_training() leaves it: what is not quantized in float32."""
    done = {}
    for module in model.modules():
        for name, one in module._parameters.items():
            if one is None or not one.dtype.is_floating_point:
                continue
            if id(one) not in done:
                done[id(one)] = (one, torch.nn.Parameter(one.data.to(torch.float32), requires_grad=False))
            module._parameters[name] = done[id(one)][1]
    return model
