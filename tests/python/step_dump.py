"""The symbolic step for tests: runs tests/tools/step_dump.cpp's program and reads its JSON.

The program is $HEADROOM_STEP_DUMP, or the newest headroom_step_dump under build/.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

REPO = Path(os.environ.get("HEADROOM_SOURCE_DIR", Path(__file__).resolve().parents[2]))
CONFIGS = Path(__file__).with_name("configs")


def program():
    """The path of the built program; skips the test where there is none."""
    named = os.environ.get("HEADROOM_STEP_DUMP")
    if named:
        return named
    built = sorted(REPO.glob("build/*/tests/headroom_step_dump"), key=lambda p: p.stat().st_mtime)
    if not built:
        pytest.skip("headroom_step_dump is not built (build/*/tests/headroom_step_dump)")
    return str(built[-1])


def run(config, **words):
    """What the program prints for a config.json and its key=value words, or an AssertionError."""
    command = [program(), str(config), *(f"{key}={value}" for key, value in words.items())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}: {done.stderr}"
    return json.loads(done.stdout)
