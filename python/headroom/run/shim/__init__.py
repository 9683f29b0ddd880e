"""The shim: libheadroom_torch.so behind PyTorch's own C++ interface of allocators.

PyTorch's C interface for other allocators refuses some of its C++ callers (docs/run.md). A class that
is compiled against the installed PyTorch can answer them: headroom_shim.cpp and its headers here.
`headroom run --build-shim` (or `python -m headroom.run.shim`) compiles it once for each PyTorch;
`headroom run` uses the one that was built for the very PyTorch that runs, and goes on without it
where there is none. This module finds it, and imports neither torch nor a compiler.
"""

import ctypes
import errno
import hashlib
import os
import re
import stat
import sys
from collections import namedtuple
from importlib.machinery import PathFinder

NAME = "headroom_shim.so"
HERE = os.path.dirname(os.path.abspath(__file__))
OFF = ("off", "0", "no")

# `abi`: of std::string, "1" the newer one; "" where nobody has asked the PyTorch itself.
Torch = namedtuple("Torch", "folder version git cuda abi", defaults=("",))


class ShimUnavailable(RuntimeError):
    """The shim cannot be used; the message says why, and PyTorch's C interface is taken instead."""


def installed_torch():
    """The PyTorch that `import torch` would find, by its version file; None where there is none."""
    spec = PathFinder.find_spec("torch")
    found = list(spec.submodule_search_locations or []) if spec else []
    for folder in found + [os.path.join(entry, "torch") for entry in sys.path]:
        try:
            with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
                text = file.read(1 << 16)
        except OSError:
            continue
        said = {name: re.search(rf"^{name}\b[^=\n]*= *'([^'\n]*)'", text, re.M)
                for name in ("__version__", "git_version", "cuda")}
        values = {name: match.group(1) if match else "" for name, match in said.items()}
        return Torch(folder, values["__version__"], values["git_version"], values["cuda"])
    return None


def torch_has_no_gpu():
    """Whether the PyTorch that `import torch` would find is built for no GPU, by its version file.
    What is not known is False."""
    spec = PathFinder.find_spec("torch")
    for folder in list(spec.submodule_search_locations or [])[:1] if spec else []:
        try:
            with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
                text = file.read(1 << 16)
        except OSError:
            return False
        said = re.findall(r"^(cuda|hip)\b[^=\n]*= *(\S+)", text, re.M)
        return len(said) == 2 and all(value == "None" for _, value in said)
    return False


def of_module(torch):
    """The same of a PyTorch that is imported."""
    return Torch(os.path.dirname(torch.__file__), str(torch.__version__),
                 str(torch.version.git_version), str(torch.version.cuda or ""),
                 str(int(torch.compiled_with_cxx11_abi())))


def include_folder():
    """Where "runtime/abi.h" is: beside this file where it is installed, else in the checkout."""
    for folder in (HERE, os.path.join(HERE, *[os.pardir] * 4, "src")):
        if os.path.isfile(os.path.join(folder, "runtime", "abi.h")):
            return os.path.normpath(folder)
    return ""


def source_hash():
    files = [os.path.join(HERE, name) for name in sorted(os.listdir(HERE))
             if name.endswith((".h", ".cpp"))]
    digest = hashlib.sha256()
    for path in [*files, os.path.join(include_folder(), "runtime", "abi.h")]:
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:16]


def cache_folder(environment):
    """As the program has it; "" where nothing can be kept."""
    if environment.get("HEADROOM_CACHE"):
        return os.path.abspath(environment["HEADROOM_CACHE"])
    if environment.get("XDG_CACHE_HOME"):
        return os.path.join(os.path.abspath(environment["XDG_CACHE_HOME"]), "headroom")
    home = environment.get("HOME")
    return os.path.join(home, ".cache", "headroom") if home else ""


def folder_for(torch, environment):
    """Of one PyTorch and one source; the compiler is told in stamp.json, and not part of the name,
    so that a run need not ask it. REQUIRES: torch.abi."""
    root = cache_folder(environment)
    key = "\n".join((torch.version, torch.git, torch.cuda, torch.abi, source_hash(),
                     os.uname().machine))
    name = hashlib.sha256(key.encode()).hexdigest()[:24]
    return os.path.join(root, "shims", name) if root else ""


def stamp_of(torch):
    """What is compiled in, and compared before anything is exchanged. REQUIRES: torch.abi."""
    return (f"torch {torch.version} git {torch.git} cuda {torch.cuda or 'none'} "
            f"cxx11-abi {torch.abi} source {source_hash()}")


def _open_of_ours_alone(name, flags, folder=None):
    """A file that another user could have put there is an OSError. What is open stays what it is,
    whatever its name becomes meanwhile; a link is not followed."""
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | flags, dir_fd=folder)
    found = os.fstat(file)
    if found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return file
    os.close(file)
    raise PermissionError(errno.EPERM, "another user could have written it", name)


def _open(path):
    """The library, looked up in a folder that is open itself."""
    folder = _open_of_ours_alone(os.path.dirname(path), os.O_DIRECTORY)
    try:
        return _open_of_ours_alone(os.path.basename(path), 0, folder)
    finally:
        os.close(folder)


def _is_ours_alone(path):
    try:
        os.close(_open(path))
    except OSError:
        return False
    return True


def find(torch, environment):
    """The file of the shim for this PyTorch; "" where it is not to be used. Of one that is not
    imported, what was built for either form of std::string."""
    if torch is None or environment.get("HEADROOM_RUN_SHIM", "").lower() in OFF:
        return ""
    for abi in [torch.abi] if torch.abi else ["1", "0"]:
        try:
            folder = folder_for(torch._replace(abi=abi), environment)
        except OSError:  # a source of ours is missing: then nothing can be of it
            return ""
        path = os.path.join(folder, NAME)
        if folder and _is_ours_alone(path):
            return path
    return ""


def exchange(torch, library, path):
    """Puts the shim in PyTorch's allocator's place. Raises ShimUnavailable, and then nothing was
    changed. Final, and without a CUDA call."""
    try:
        # Left open: the loader knows libraries by their names, and the number is this one's name.
        shim = ctypes.CDLL(f"/proc/self/fd/{_open(path)}")
        shim.headroom_shim_install.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        shim.headroom_shim_error.restype = ctypes.c_char_p
    except (OSError, AttributeError) as error:
        raise ShimUnavailable(f"{path} cannot be loaded: {error}") from None
    stamp = stamp_of(of_module(torch))
    if shim.headroom_shim_install(library.path.encode(), stamp.encode()) != 0:
        raise ShimUnavailable(shim.headroom_shim_error().decode(errors="replace"))
    return shim
