"""A `triton` package without Triton: kernels that can be launched and do nothing.

Libraries of Triton kernels (Liger-Kernel) make their tensors in Python, around the launch. With this in
the place of Triton their autograd functions run on fake tensors, and what they allocate can be
recorded without a GPU. install() has to come before the library is imported; it is for a process of
its own, since nothing takes it back.
"""

import importlib.abc
import importlib.machinery
import sys
import types


class Anything:
    """What stands for a name that nobody asks anything of: any attribute, call or index gives it."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments, **named):
        return self

    def __getitem__(self, key):
        return self


class Kernel:
    """A function under @triton.jit: kernel[grid](...) launches nothing."""

    def __init__(self, function):
        self.__name__ = getattr(function, "__name__", "kernel")

    def __getitem__(self, grid):
        return lambda *arguments, **named: None


def _decorator(*arguments, **named):
    if len(arguments) == 1 and callable(arguments[0]) and not named:
        return Kernel(arguments[0])
    return lambda function: function if isinstance(function, Kernel) else Kernel(function)


def _next_power_of_2(number):
    return 1 << max(int(number) - 1, 0).bit_length()


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Every module under `triton` exists."""

    def find_spec(self, name, path=None, target=None):
        if name != "triton" and not name.startswith("triton."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = _Module(spec.name)
        if spec.name == "triton":
            module.__version__ = "3.5.0"
            module.jit = module.autotune = module.heuristics = _decorator
            module.cdiv = lambda number, divisor: -(-number // divisor)
            module.next_power_of_2 = _next_power_of_2
        return module

    def exec_module(self, module):
        pass


def install():
    """From here on `import triton` finds this."""
    sys.meta_path.insert(0, _Finder())
