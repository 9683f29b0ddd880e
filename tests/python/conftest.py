"""What the tests under tests/python share: the repo, and the tools in it that are not packages."""

import gc
import importlib.util
import os
import sys
from pathlib import Path

import pytest

REPO = Path(os.environ.get("HEADROOM_SOURCE_DIR", Path(__file__).resolve().parents[2]))
sys.dont_write_bytecode = True  # a __pycache__ beside the sources would look like a change to them

# Our own packages, and the CUDA device that fake tensors pretend to have: it has to be in place
# before the first test imports torch. Where torch or a compiler is missing, the tests that need
# them say so.
sys.path[:0] = [str(REPO / "python"), str(REPO / "tests" / "python")]

from headroom import fake_cuda  # noqa: E402  (the path has to be set first)

try:
    fake_cuda.install()
except fake_cuda.FakeCudaUnavailable as unavailable:
    print(f"conftest: {unavailable}", file=sys.stderr)


def pytest_configure(config):
    import matrix

    matrix.is_whole = "not full" not in config.option.markexpr


def load_tool(path):
    """A script of the repo as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, REPO / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# What is there before a test (PyTorch and transformers are a million objects) is none of its
# garbage: collections in it then cost a tenth.
@pytest.fixture(autouse=True)
def only_its_own_garbage():
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def repo():
    return REPO


@pytest.fixture(scope="session")
def tool():
    return load_tool


@pytest.fixture(scope="session")
def headroom_binary():
    named = os.environ.get("HEADROOM_BINARY")
    if not named:
        pytest.skip("headroom is not built; set HEADROOM_BINARY")
    return os.path.abspath(named)
