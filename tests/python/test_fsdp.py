"""FSDP: what a rank gathers, lets go and reduces, in order, against the real one, both versions.

Sizes to the byte (padding and alignment are in them), two steps, every way of checkpointing.
"""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import step_dump

TARGETS = ["q_proj", "v_proj"]
RUNS = {
    **{f"{family}-{ranks}-{checkpointing}": {
        "family": family, "ranks": ranks, "checkpointing": checkpointing}
       for family in ("llama", "gpt2", "opt")
       for ranks, checkpointing in ((2, "none"), (3, "reentrant"), (4, "non_reentrant"))},
    "llama_tied-2": {"family": "llama_tied", "ranks": 2, "checkpointing": "none"},
    "mixtral-2": {"family": "mixtral", "ranks": 2, "checkpointing": "none"},
    "lora-2-reentrant": {"family": "llama", "ranks": 2, "checkpointing": "reentrant",
                         "lora_rank": 4, "lora_targets": TARGETS},
    "lora-3-none": {"family": "llama", "ranks": 3, "checkpointing": "none",
                    "lora_rank": 4, "lora_targets": TARGETS},
    "bf16-of-float32": {"family": "llama", "ranks": 2, "checkpointing": "none",
                        "fsdp_compute": "bf16"},
}
HYBRID = {
    "hybrid-2x2": {"family": "llama", "ranks": 2, "replicas": 2, "checkpointing": "none"},
    "hybrid-2x3-bf16-of-float32": {"family": "llama", "ranks": 3, "replicas": 2, "checkpointing": "none",
                                   "fsdp_compute": "bf16"},
}
CASES = {f"{version}-{name}": {"version": version, **run}
         for version in (1, 2) for name, run in RUNS.items()}
CASES |= {f"2-{name}": {"version": 2, **run} for name, run in HYBRID.items()}
CASES["2-bf16-of-float32-reduced-in-it"] = {"version": 2, "fsdp_reduce": "fp32", **RUNS["bf16-of-float32"]}


@functools.lru_cache
def real_logs():
    cases = [{**case, "steps": 2, "config": str(step_dump.CONFIGS / f"{case['family']}.json")}
             for case in CASES.values()]
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("fsdp_log.py"))],
                          input=json.dumps(cases), capture_output=True, text=True, timeout=600,
                          check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(CASES, json.loads(done.stdout)))


@pytest.mark.parametrize("name", CASES)
def test_gathers_and_reduces_what_fsdp_does(name):
    case = CASES[name]
    words = {"fsdp": case["version"], "ranks": case["ranks"], "checkpointing": case["checkpointing"], "dtype": "bf16",
             "batch": 2, "seq": 16, "steps": 2, "attention": "eager", "log": "gathers"}
    for key in ("lora_rank", "fsdp_compute", "fsdp_reduce", "replicas"):
        if key in case:
            words[key] = case[key]
    if "lora_rank" in case:
        words["lora_targets"] = ",".join(case["lora_targets"])
    if "fsdp_compute" in case:
        words["dtype"] = "f32"
    ours = step_dump.run(step_dump.CONFIGS / f"{case['family']}.json", **words)
    if "fsdp_compute" in case and "fsdp_reduce" not in case and "replicas" not in case:
        # Each share is cast to the shard's type, which the real log does not listen to.
        casts = [i for i in range(1, len(ours)) if ours[i][1] == ours[i - 1][1] == "reduce"]
        assert all(ours[i][2] == 2 * ours[i - 1][2] for i in casts) and len(casts) == 6
        ours = [entry for i, entry in enumerate(ours) if i not in casts]
    if case["version"] == 2:
        names = {"gather": "alloc", "release": "free", "reduce": "reduce"}
        ours = [[phase, names[kind], size] for phase, kind, size in ours]
    assert ours == real_logs()[name]
