#!/usr/bin/env python3
"""Makes the wheel: the package `headroom`, libheadroom_torch.so in it, and the gate headroom.pth.

It is a PEP 517 build backend with nothing but Python's own library behind it, so `pip wheel .` needs
no network; and a program:

    python3 tools/wheel/headroom_wheel.py --library build/release/src/runtime/libheadroom_torch.so

The library is the one that is named (HEADROOM_LIBRARY, --library), else the newest under build/, else
one that is built now. The same files give the same wheel, byte for byte. The program `headroom`
itself is not in it: `cmake --install` lays that down.
"""

import argparse
import base64
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
LIBRARY = "libheadroom_torch.so"
# One line, run at every start of a Python that has the wheel; it does nothing without the variable
# that `headroom run` sets.
GATE = ('import os; os.environ.get("HEADROOM_RUN_MODE") and '
        '__import__("headroom.run.hook", fromlist=["start"]).start()\n')


def version():
    text = (REPO / "CMakeLists.txt").read_text()
    return re.search(r"project\(headroom VERSION (\d+\.\d+\.\d+)", text).group(1)


def tag():
    machine = os.uname().machine
    return f"py3-none-linux_{machine}"


def built_library():
    named = os.environ.get("HEADROOM_LIBRARY")
    if named:
        return Path(named)
    found = sorted(REPO.glob(f"build/*/src/runtime/{LIBRARY}"), key=os.path.getmtime)
    if found:
        return found[-1]
    for command in (["cmake", "--preset", "release"],
                    ["cmake", "--build", "--preset", "release", "--target", "headroom_torch"]):
        subprocess.run(command, cwd=REPO, check=True, stdout=sys.stderr)
    return REPO / "build" / "release" / "src" / "runtime" / LIBRARY


def package_files():
    """(name in the wheel, content) of the Python package, in order."""
    root = REPO / "python"
    for path in sorted((root / "headroom").rglob("*")):
        if path.is_file() and path.suffix in (".py", ".cpp", ".h") and "__pycache__" not in path.parts:
            yield path.relative_to(root).as_posix(), path.read_bytes()
    # What the shim is compiled with, beside it.
    yield "headroom/run/shim/runtime/abi.h", (REPO / "src/runtime/abi.h").read_bytes()


def metadata():
    return (f"Metadata-Version: 2.1\nName: headroom\nVersion: {version()}\n"
            "Summary: How much more your GPUs can hold: the planned allocator inside PyTorch\n"
            "License: Apache-2.0\nRequires-Python: >=3.8\n")


def dist_info():
    return f"headroom-{version()}.dist-info"


def info_files():
    yield f"{dist_info()}/METADATA", metadata().encode()
    yield (f"{dist_info()}/WHEEL",
           f"Wheel-Version: 1.0\nGenerator: headroom\nRoot-Is-Purelib: false\nTag: {tag()}\n".encode())
    yield f"{dist_info()}/LICENSE", (REPO / "LICENSE").read_bytes()


def write(folder, library):
    """The wheel's file name."""
    files = [*package_files(), (f"headroom/{LIBRARY}", Path(library).read_bytes()),
             ("headroom.pth", GATE.encode()), *info_files()]
    record = ""
    name = f"headroom-{version()}-{tag()}.whl"
    with zipfile.ZipFile(Path(folder) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        def add(path, content):
            entry = zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if path.endswith(".so") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
        for path, content in files:
            add(path, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            record += f"{path},sha256={digest.decode()},{len(content)}\n"
        record += f"{dist_info()}/RECORD,,\n"
        add(f"{dist_info()}/RECORD", record.encode())
    return name


# What pip asks a backend for.

def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = Path(metadata_directory) / dist_info()
    folder.mkdir()
    for path, content in info_files():
        (Path(metadata_directory) / path).write_bytes(content)
    return dist_info()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return write(wheel_directory, built_library())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default="", help=LIBRARY)
    parser.add_argument("--out", default=".", help="folder of the wheel")
    words = parser.parse_args()
    Path(words.out).mkdir(parents=True, exist_ok=True)
    name = write(words.out, words.library or built_library())
    print(Path(words.out) / name)


if __name__ == "__main__":
    main()
