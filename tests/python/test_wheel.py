"""The wheel: made by pip without a network, installed into an empty environment, and inert there."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


def said(command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, timeout=300, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def library():
    if "HEADROOM_BINARY" not in os.environ:
        pytest.skip("HEADROOM_BINARY names no program")
    path = Path(os.environ["HEADROOM_BINARY"]).resolve().parents[1] / "runtime"
    path /= "libheadroom_torch.so"
    if not path.exists():
        pytest.skip(f"{path} is not built")
    return path


@pytest.fixture(scope="module")
def wheel(repo, library, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    said([sys.executable, "-m", "pip", "wheel", repo, "--no-deps", "--no-index", "-q", "-w", folder],
         env={**os.environ, "HEADROOM_LIBRARY": str(library), "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    found, = folder.glob("headroom-*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("venv")
    said([sys.executable, "-m", "venv", "--without-pip", folder])
    python = folder / "bin" / "python"
    said([sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps",
          "--no-index", wheel], env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    return python


def clean(**more):
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TMPDIR")}
    return {**kept, **more}


def test_it_holds_the_package_the_library_and_the_gate(wheel, library):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"headroom/__init__.py", "headroom/run/hook.py", "headroom/run/start/sitecustomize.py",
            "headroom/libheadroom_torch.so", "headroom.pth", "headroom/run/shim/headroom_shim.cpp",
            "headroom/run/shim/allocator.h", "headroom/run/shim/runtime/abi.h"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or "test" in name]
    assert zipfile.ZipFile(wheel).read("headroom/libheadroom_torch.so") == library.read_bytes()


def test_the_same_files_give_the_same_wheel(wheel, library, tool, tmp_path):
    maker = tool("tools/wheel/headroom_wheel.py")
    again = tmp_path / maker.write(tmp_path, library)
    assert again.name == wheel.name and again.read_bytes() == wheel.read_bytes()


def test_it_imports_and_finds_its_library(environment, tmp_path):
    out = said([environment, "-c",
                "import sys, headroom; from headroom.run import library as l; "
                "print(headroom.enable.__name__, l.Library(l.find()).path, 'torch' in sys.modules)"],
               env=clean(), cwd=tmp_path)
    name, path, has_torch = out.split()
    assert name == "enable" and path.endswith("/headroom/libheadroom_torch.so")
    assert "site-packages" in path and has_torch == "False"


def test_the_gate_opens_for_headroom_run_alone(environment, tmp_path):
    look = [environment, "-c", "import sys; print('headroom.run.hook' in sys.modules, "
            "any(type(f).__module__ == 'headroom.run.hook' for f in sys.meta_path))"]
    assert said(look, env=clean(), cwd=tmp_path) == "False False\n"
    assert said(look, env=clean(HEADROOM_RUN_MODE="off"), cwd=tmp_path) == "True True\n"
    # Also where the environment's PYTHONPATH is not looked at.
    assert said([look[0], "-E", *look[1:]], env=clean(HEADROOM_RUN_MODE="off"),
                cwd=tmp_path) == "True True\n"
