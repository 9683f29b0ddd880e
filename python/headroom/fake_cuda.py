"""Lets a CPU-only PyTorch run forward and backward on fake tensors that claim to be on "cuda:0".

When to use: call `install()` before the first `import torch` of the process. Cost: one compilation
of a small file (about 3 s), cached by torch version in $HEADROOM_CACHE or ~/.cache/headroom; later
processes only load it. Not thread-safe; idempotent. On a build of torch that has CUDA it does
nothing.
"""

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_SHIM_SOURCE = Path(__file__).with_name("fake_cuda_shim.cpp")
_loaded = None


class FakeCudaUnavailable(RuntimeError):
    """No shim could be built or it came too late; the message says what to do."""


def _torch_root():
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise FakeCudaUnavailable("PyTorch is not installed for " + sys.executable)
    return Path(spec.submodule_search_locations[0])


def _cache_folder():
    root = os.environ.get("HEADROOM_CACHE")
    folder = Path(root) if root else Path.home() / ".cache" / "headroom"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _build(root, target):
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        raise FakeCudaUnavailable("no C++ compiler found: install g++, or set CXX")
    handle, scratch = tempfile.mkstemp(suffix=".so", dir=target.parent)
    os.close(handle)
    command = [compiler, "-std=c++20", "-O0", "-fPIC", "-shared", str(_SHIM_SOURCE),
               f"-I{root / 'include'}", f"-L{root / 'lib'}", "-lc10", "-ltorch_cpu",
               f"-Wl,-rpath,{root / 'lib'}", "-o", scratch]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        os.unlink(scratch)
        raise FakeCudaUnavailable(f"{compiler} could not build {_SHIM_SOURCE}:\n{outcome.stderr}")
    # A rename is atomic: processes that build at the same moment end with one good file.
    os.replace(scratch, target)


def install():
    """Makes "cuda:0" usable under FakeTensorMode. Raises FakeCudaUnavailable with a remedy."""
    global _loaded
    if _loaded is not None:
        return
    root = _torch_root()
    if (root / "lib" / "libtorch_cuda.so").exists():
        _loaded = "native"
        return
    if "torch" in sys.modules:
        raise FakeCudaUnavailable(
            "torch was imported before headroom.fake_cuda.install(); call install() first")
    version = importlib.metadata.version("torch")
    key = hashlib.sha256(f"{version} {root} {_SHIM_SOURCE.read_text()}".encode()).hexdigest()[:16]
    target = _cache_folder() / f"fake_cuda-{key}.so"
    if not target.exists():
        _build(root, target)
    _loaded = ctypes.CDLL(str(target), mode=ctypes.RTLD_GLOBAL)
