"""python -m headroom.run.shim: compiles the shim for this Python's PyTorch (docs/run.md).

Exit codes: 0 it is there; 2 usage; 4 it cannot be built here, and the message says what to install.
"""

import argparse
import json
import os
import sys

from headroom.run import shim
from headroom.run.shim import build

NOT_HERE = 4


def _fail(words, as_json):
    if as_json:
        print(json.dumps({"schema": build.SCHEMA, "built": False, "reason": words}, indent=2))
    print(f"headroom: error: the shim was not built: {words}", file=sys.stderr)
    return NOT_HERE


def main(words=None):
    parser = argparse.ArgumentParser(
        prog="python -m headroom.run.shim",
        description="Compiles the shim for this Python's PyTorch: with it `headroom run` serves "
                    "cudnn.benchmark, torch.compile with CUDA graphs, MemPool and the profiler's "
                    "memory events.")
    parser.add_argument("--json", action="store_true", help="the answer as one JSON object")
    options = parser.parse_args(words)
    torch = shim.installed_torch()
    if torch is None:
        return _fail(f"{sys.executable} has no PyTorch", options.json)
    try:
        # Checked before PyTorch is imported, which takes seconds.
        parts = build.parts_for(torch, os.environ)
        import torch as module
        made = build.build(shim.of_module(module), os.environ, parts)
    except build.BuildFailed as failure:
        return _fail(str(failure), options.json)
    if options.json:
        print(json.dumps({"schema": build.SCHEMA, "built": True, "path": made.path,
                          "stamp": made.stamp, "compiler": made.compiler,
                          "cuda_includes": made.cuda_includes, "build_seconds": made.seconds},
                         indent=2))
        return 0
    how = f"compiled in {made.seconds:.1f} s" if made.seconds else "was there already"
    print(f"the shim for PyTorch {torch.version}: {how}; `headroom run` uses it from now on")
    print(f"  {made.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
