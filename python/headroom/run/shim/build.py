"""Compiles the shim for the PyTorch of this Python, into the cache folder.

It needs a C++20 compiler, PyTorch's headers (they come with it) and CUDA's of PyTorch's major version:
a toolkit's, or those of two packages, the first of which PyTorch's own wheels bring.
A class of allocators that asks otherwise, or has a new question without an answer of its own, does not
compile. One whose new questions have default answers would, and what it answers would not know of
ours: so only the PyTorch that the shim was tried with is taken
(headroom_shim.cpp), unless HEADROOM_SHIM_ANY_TORCH in the environment takes the risk.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import namedtuple

from headroom.run import shim

SCHEMA = "headroom.run.shim/1"
MOST_SECONDS = 600

# What is compiled with; a test names its own.
Parts = namedtuple("Parts", "compiler cuda_includes torch_library more_includes flags",
                   defaults=("", (), ()))
Built = namedtuple("Built", "path stamp compiler cuda_includes seconds")


class BuildFailed(RuntimeError):
    """There is no shim; the message says what is missing and how to get it."""


def find_compiler(environment):
    named = environment.get("CXX", "").split()
    for words in [named] if named else [["c++"], ["g++"], ["clang++"]]:
        if shutil.which(words[0]):
            return words
    raise BuildFailed(f"no C++ compiler ({' '.join(named) or 'c++, g++, clang++'}): install g++ 11 "
                      "or later (apt install g++, dnf install gcc-c++), or name one in CXX")


def _cuda_folders(environment):
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if environment.get(name):
            yield os.path.join(environment[name], "include")
    for root in sys.path:  # nvidia-cuda-runtime and its like
        yield from sorted(glob.glob(os.path.join(root, "nvidia", "*", "include")))
    nvcc = shutil.which("nvcc")
    if nvcc:
        yield os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))), "include")
    yield "/usr/local/cuda/include"
    yield from sorted(glob.glob("/usr/local/cuda-*/include"), reverse=True)
    yield "/usr/include"


def cuda_version(include):
    """(major, minor) of the headers in a folder; None where they are not there."""
    try:
        with open(os.path.join(include, "cuda_runtime_api.h"), encoding="utf-8",
                  errors="replace") as file:
            found = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", file.read())
    except OSError:
        return None
    return (int(found.group(1)) // 1000, int(found.group(1)) % 1000 // 10) if found else None


def _with_crt(folder):
    """The folder, and the one beside it that has crt/, which CUDA's packages bring apart."""
    beside = sorted(glob.glob(os.path.join(folder, os.pardir, os.pardir, "*", "include")))
    for place in [folder, *beside]:
        if os.path.isfile(os.path.join(place, "crt", "host_config.h")):
            return tuple(dict.fromkeys((folder, os.path.normpath(place))))
    return ()


def packages_of(major):
    """The packages that have the headers, as pip takes them; read in CUDA 12.9's and 13.5's."""
    if int(major) >= 13:
        return f"'nvidia-cuda-runtime=={major}.*' 'nvidia-cuda-crt=={major}.*'"
    return f"nvidia-cuda-runtime-cu{major} nvidia-cuda-nvcc-cu{major}"


def find_cuda(wanted, environment):
    """Include folders with CUDA's headers of the major version that PyTorch was built with."""
    major = wanted.split(".")[0]
    seen = []
    for folder in _cuda_folders(environment):
        version = cuda_version(folder)
        if version is None:
            continue
        if str(version[0]) != major:
            seen.append(f"{folder} is of CUDA {version[0]}.{version[1]}")
        elif _with_crt(folder):
            return _with_crt(folder)
        else:
            seen.append(f"{folder} lacks crt/host_config.h")
    other = f" ({'; '.join(dict.fromkeys(seen))})" if seen else ""
    raise BuildFailed(f"CUDA {major}'s headers (cuda_runtime_api.h, crt/host_config.h) are not "
                      f"found{other}: pip install {packages_of(major)}, or install CUDA toolkit "
                      f"{major}, or name one in CUDA_HOME")


def parts_for(torch, environment):
    if not torch.cuda:
        raise BuildFailed(f"PyTorch {torch.version} is built without CUDA (or for ROCm): there is no "
                          "allocator of CUDA memory to stand in for")
    compiler = find_compiler(environment)
    return Parts(compiler, find_cuda(torch.cuda, environment), os.path.join(torch.folder, "lib"))


def _version_of(compiler):
    done = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False)
    return (done.stdout.splitlines() or [" ".join(compiler)])[0]


def _command(torch, parts, stamp, takes_any, out):
    include = os.path.join(torch.folder, "include")
    major, minor = (torch.version.split(".") + ["0", "0"])[:2]
    return [*parts.compiler, "-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", *parts.flags,
            f"-D_GLIBCXX_USE_CXX11_ABI={torch.abi}",
            f"-DHEADROOM_TORCH_MAJOR={major}", f"-DHEADROOM_TORCH_MINOR={minor}",
            f'-DHEADROOM_SHIM_STAMP="{stamp}"',
            *(["-DHEADROOM_SHIM_ANY_TORCH"] if takes_any else []),
            *[f"-I{folder}" for folder in parts.more_includes], f"-I{shim.include_folder()}",
            "-isystem", include,
            "-isystem", os.path.join(include, "torch", "csrc", "api", "include"),
            *[word for folder in parts.cuda_includes for word in ("-isystem", folder)],
            os.path.join(shim.HERE, "headroom_shim.cpp"), "-o", out,
            f"-L{parts.torch_library}", f"-L{os.path.join(torch.folder, 'lib')}",
            "-lc10_cuda", "-lc10", "-Wl,-z,now", "-Wl,-z,nodelete"]


def _compile(torch, command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS,
                              stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"the compiler took more than {MOST_SECONDS} s") from None
    if done.returncode == 0:
        return
    lines = [line for line in done.stderr.splitlines() if "error" in line] or \
        done.stderr.splitlines()
    raise BuildFailed(f"it does not compile against PyTorch {torch.version}, whose class of "
                      "allocators may not be the one that this version of Headroom knows (2.13's):"
                      "\n  " + "\n  ".join(lines[:5]))


def _is_there(folder, stamp, compiler):
    try:
        with open(os.path.join(folder, "stamp.json"), encoding="utf-8") as file:
            told = json.load(file)
    except (OSError, ValueError):
        return None
    path = os.path.join(folder, shim.NAME)
    if told.get("stamp") != stamp or told.get("compiler") != compiler or not os.path.isfile(path):
        return None
    return Built(path, stamp, compiler, told.get("cuda_includes", []), 0.0)


def build(torch, environment, parts=None):
    """Built, now or before (then `seconds` is 0). Raises BuildFailed. REQUIRES: torch.abi."""
    try:
        folder = shim.folder_for(torch, environment)
    except OSError as error:
        raise BuildFailed(f"{error.filename} cannot be read ({error.strerror}): install Headroom "
                          "anew") from None
    if not folder:
        raise BuildFailed("there is no folder to keep it in: set HOME or HEADROOM_CACHE")
    parts = parts or parts_for(torch, environment)
    compiler = _version_of(parts.compiler)
    stamp = shim.stamp_of(torch)
    before = _is_there(folder, stamp, compiler)
    if before is not None:
        return before
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        scratch = tempfile.mkdtemp(prefix="build-", dir=folder)
    except OSError as error:
        raise BuildFailed(f"{folder} cannot be written: {error.strerror}") from None
    try:
        began = time.monotonic()
        made = os.path.join(scratch, shim.NAME)
        takes_any = environment.get("HEADROOM_SHIM_ANY_TORCH", "") not in ("", "0")
        _compile(torch, _command(torch, parts, stamp, takes_any, made))
        os.chmod(made, 0o700)
        seconds = time.monotonic() - began
        told = os.path.join(scratch, "stamp.json")
        with open(told, "w", encoding="utf-8") as file:
            json.dump({"schema": SCHEMA, "stamp": stamp, "compiler": compiler,
                       "cuda_includes": parts.cuda_includes}, file, indent=1)
        # The library last: with it in its place, all is there.
        os.replace(told, os.path.join(folder, "stamp.json"))
        os.replace(made, os.path.join(folder, shim.NAME))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Built(os.path.join(folder, shim.NAME), stamp, compiler, parts.cuda_includes, seconds)
