"""Page faults of a forward pass as `bench nongemm` makes it: faults.py MODEL [keep], from the root of the repository."""

import resource
import sys

sys.path[:0] = ["python", "docs/measurements/2026-11-22-nongemm-predicted"]

import torch

import models
from headroom import kept_memory, nongemm_models

if "keep" in sys.argv:
    kept_memory.keep_freed_memory()
recipe = nongemm_models.Recipe(torch, models.entry_of(sys.argv[1]))
module = recipe.make(None, torch.float32)
args, named = recipe.inputs(module, 1, torch.float32, "cpu")
faults = []
with torch.inference_mode():
    for _ in range(6):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        module(*([] if named else args), **named)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(sys.argv[1], faults)
