"""What torch.optim's kernels read and write, operator by operator, beside what the step model says an update moves.

A kernel reads each tensor that it is given, once where it is given twice, and writes those that it returns or that its
name's underscore says.
"""

import pytest
import step_dump
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM


def tensors_of(argument):
    if isinstance(argument, torch.Tensor):
        return [argument]
    return [t for a in argument for t in tensors_of(a)] if isinstance(argument, (list, tuple)) else []


def bytes_of(argument):
    """Of tensors in the parameters' type; step counts are float32 scalars of the host."""
    return sum({t.data_ptr(): t.nbytes for t in tensors_of(argument) if t.dtype == torch.bfloat16}.values())


class Traffic(TorchDispatchMode):

    def __init__(self):
        super().__init__()
        self.read = self.written = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        name = function._schema.name.split("::")[-1]
        if "zeros" in name or "empty" in name:
            return out
        changed = args[0] if name.endswith("_") else out
        self.read += bytes_of(args)
        self.written += bytes_of(changed)
        return out


def moved_by_pytorch(optimizer, implementation):
    """In the second step: the first makes the states."""
    config = AutoConfig.from_pretrained(step_dump.CONFIGS / "llama.json")
    model = AutoModelForCausalLM.from_config(config).bfloat16()
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    made = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD,
            "sgd:momentum": torch.optim.SGD}[optimizer]
    words = {"momentum": 0.9} if optimizer == "sgd:momentum" else {}
    optimizer = made(parameters, lr=1e-3, foreach=implementation == "foreach", **words)
    optimizer.step()
    with Traffic() as traffic:
        optimizer.step()
    return {"read": traffic.read, "written": traffic.written}


@pytest.mark.parametrize("implementation", ["foreach", "loop"])
@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd", "sgd:momentum"])
def test_an_update_moves_what_pytorchs_kernels_move(optimizer, implementation):
    ours = step_dump.run(step_dump.CONFIGS / "llama.json", batch=1, seq=8, dtype="bfloat16", steps=2,
                         optimizer=optimizer, implementation=implementation, log="traffic")
    assert ours == moved_by_pytorch(optimizer, implementation)
