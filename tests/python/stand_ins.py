"""Stand-ins for modules that are not installed, of which a parser needs nothing but that they can be imported.

For a process of its own, since nothing takes them back.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys


class Anything:
    """A name that nobody asks anything of; as a decorator it leaves the function."""

    def __init__(self, *arguments, **named):
        pass

    def __call__(self, *arguments, **named):
        return arguments[0] if arguments and callable(arguments[0]) else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(self, key):
        return self


def _attribute(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (Anything,), {}) if name[0].isupper() else Anything()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Every module at and under the names exists."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        stands_in = any(name == known or name.startswith(f"{known}.") for known in self.names)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if stands_in else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__version__ = "3.4.0"
        module.__getattr__ = _attribute


def install(*names):
    """From here on each of the names that is not installed can be imported."""
    import torch._dynamo  # noqa: F401  (before the stand-ins: it asks whether Triton is there)
    import torch.utils._triton

    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if "triton" in missing:
        torch.utils._triton.has_triton_package = lambda: False
    if "tensorboard" in missing:
        missing.append("torch.utils.tensorboard")
    sys.meta_path.insert(0, _Finder(missing))
