"""Puts the package on the path and the fake CUDA device in place before anything imports torch."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT / "python", ROOT / "tests" / "python"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from headroom import fake_cuda  # noqa: E402  (the path has to be set first)

fake_cuda.install()
