"""FSDP: what a rank gathers, lets go and reduces, in order, against the real one, both versions.

Sizes to the byte (padding and alignment are in them), two steps, every way of checkpointing.
"""

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import step_dump

from headroom.pipeline_ranks import MIRRORED

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
# Of a step of several micro-batches: whole gradients until the last, as accelerate has it, or each reduced.
ACCUMULATED = {
    f"{family}-{how}": {"family": family, "ranks": ranks, "checkpointing": checkpointing, "accumulation": 3,
                        "no_sync": how == "no-sync"}
    for family, ranks, checkpointing in (("llama", 2, "none"), ("gpt2", 4, "non_reentrant"))
    for how in ("no-sync", "accumulated")
}
RUNS |= ACCUMULATED
CASES = {f"{version}-{name}": {"version": version, **run}
         for version in (1, 2) for name, run in RUNS.items()}
CASES |= {f"2-{name}": {"version": 2, **run} for name, run in HYBRID.items()}
CASES["2-bf16-of-float32-reduced-in-it"] = {"version": 2, "fsdp_reduce": "fp32", **RUNS["bf16-of-float32"]}
CASES["2-no-sync-reduced-in-float32"] = {**CASES["2-bf16-of-float32-reduced-in-it"], "accumulation": 3,
                                         "no_sync": True}

# The embedding, and the final norm with the head, as units of their own.
CASES |= {f"2-ends-{checkpointing}": {"version": 2, "family": "llama", "ranks": 3, "checkpointing": checkpointing,
                                      "ends": True} for checkpointing in ("none", "reentrant", "non_reentrant")}
CASES["2-ends-accumulated"] = {**CASES["2-ends-none"], "accumulation": 3}
CASES |= {f"2-reshards-{which}": {**CASES["2-llama-3-reentrant"], "reshards": which} for which in ("none", "but-last")}
CASES["2-ends-but-last-accumulated"] = {**CASES["2-ends-accumulated"], "reshards": "but-last"}
CASES["2-ends-bf16-of-float32"] = {**CASES["2-bf16-of-float32-reduced-in-it"], "ends": True}

# Adapters before checkpoints have the embedding's answer want a gradient.
CASES |= {f"2-ends-lora-{checkpointing}": {**CASES[f"2-ends-{checkpointing}"], "lora_rank": 4, "lora_targets": TARGETS}
          for checkpointing in ("none", "reentrant", "non_reentrant")}
# DoRA reads its matrices outside of their modules, which the first version lets go of there: peft ends with an error.
CASES |= {f"2-dora-{ranks}-{checkpointing}": {"version": 2, "family": "llama", "ranks": ranks, "checkpointing": checkpointing,
                                              "lora_rank": 4, "lora_targets": TARGETS, "dora": True}
          for ranks, checkpointing in ((2, "none"), (3, "reentrant"), (4, "non_reentrant"))}
VECTORS = {"ia3": True, "lora_targets": ["k_proj", "v_proj", "down_proj"]}
CASES |= {f"2-ia3-{checkpointing}": {"version": 2, "family": "llama", "ranks": 2, "checkpointing": checkpointing, **VECTORS}
          for checkpointing in ("none", "reentrant")}
# The first version puts a layer's vectors together with its weights, which have to be of one type.
CASES["1-ia3-bf16-of-float32"] = {**CASES["1-bf16-of-float32"], **VECTORS}
# Weights of four bits, as elements of the model's type.
CASES |= {f"2-qlora-{ranks}-{checkpointing}": {
    "version": 2, "family": "llama", "ranks": ranks, "checkpointing": checkpointing, "lora_rank": 4,
    "lora_targets": TARGETS, "quantize": "nf4_double", "quant_storage": "bfloat16"}
          for ranks, checkpointing in ((2, "none"), (3, "reentrant"), (4, "non_reentrant"))}

# Layers that take over keys and values of others.
CASES |= {f"2-gemma4-{checkpointing}": {"version": 2, "family": "gemma4_text_shared", "ranks": 2, "checkpointing": checkpointing}
          for checkpointing in ("none", "non_reentrant")}

# Experts shared out as transformers has it: a unit of their own, of as many ranks as have the same ones.
CASES |= {f"2-experts-{ranks}-{expert_ranks}-{checkpointing}": {
    "version": 2, "family": "mixtral", "changes": (("num_local_experts", 4),), "ranks": ranks, "expert_ranks": expert_ranks, "ends": True,
    "checkpointing": checkpointing} for ranks, expert_ranks, checkpointing in (
        (2, 2, "none"), (4, 2, "none"), (2, 2, "non_reentrant"), (4, 2, "reentrant"), (8, 4, "non_reentrant"))}
CASES["2-experts-shared"] = {**CASES["2-experts-4-2-none"], "family": "deepseek_v3", "changes": (("n_routed_experts", 4),)}
CASES["2-experts-accumulated"] = {**CASES["2-experts-4-2-none"], "accumulation": 2}
CASES["2-experts-shared-reentrant"] = {**CASES["2-experts-shared"], "checkpointing": "reentrant"}
CASES["2-experts-no-sync"] = {**CASES["2-experts-accumulated"], "no_sync": True}
# Replicas reduce among them behind the last micro-batch, in shares until then.
CASES["2-experts-deferred"] = {**CASES["2-experts-accumulated"], "replicas": 2, "accumulation": 3, "defers_replicas": True}
CASES |= {f"2-experts-mixed-{family}": {**CASES["2-experts-4-2-none"], "family": family, "changes": ((key, 4),),
                                       "fsdp_compute": "bf16", "fsdp_reduce": "fp32"}
          for family, key in (("mixtral", "num_local_experts"), ("deepseek_v3", "n_routed_experts"), ("qwen2_moe", "num_experts"))}
CASES["2-experts-mixed-2-2"] = {**CASES["2-experts-mixed-mixtral"], "ranks": 2}
CASES["2-experts-replicas"] = {**CASES["2-experts-4-2-none"], "replicas": 2}

# Stages of a pipeline.
CASES |= {f"2-{schedule}-stage{stage}": {
    "version": 2, "family": "llama", "ranks": 2, "checkpointing": "none", "accumulation": 4, "schedule": schedule,
    "stages": 2, "stage": stage} for schedule in ("1f1b", "gpipe") for stage in (0, 1)}
CASES["2-1f1b-non_reentrant"] = {**CASES["2-1f1b-stage0"], "checkpointing": "non_reentrant"}
CASES |= {f"{name}-lora": {**CASES[name], "lora_rank": 4, "lora_targets": ["q_proj", "v_proj"]}
          for name in ("2-1f1b-stage0", "2-1f1b-stage1", "2-gpipe-stage0", "2-1f1b-non_reentrant")}
CASES |= {f"2-1f1b-stage{stage}-qlora": {**CASES[f"2-1f1b-stage{stage}-lora"], "quantize": "nf4_double", "quant_storage": "bfloat16"}
          for stage in (0, 1)}
CASES["2-1f1b-stage1-dora"] = {**CASES["2-1f1b-stage1-lora"], "dora": True}
CASES["2-1f1b-stage0-ia3"] = {**CASES["2-1f1b-stage0"], **VECTORS}
CASES["2-1f1b-reduced-in-float32"] = {**CASES["2-1f1b-stage1"], "fsdp_compute": "bf16", "fsdp_reduce": "fp32"}
# Several chunks a rank, which the schedule gathers, lets go of and reduces one by one: all of two, three of five at a time.
CASES |= {f"2-interleaved-{chunks}-stage{stage}": {**CASES["2-1f1b-stage0"], "stage": stage, "chunks": chunks, "layers": layers}
          for chunks, layers in ((2, 6), (5, 10)) for stage in (0, 1)}
CASES |= {f"2-zero-bubble-{chunks}-stage{stage}": {
    **CASES[f"2-interleaved-{max(2, chunks)}-stage{stage}"], "schedule": "zero-bubble", "chunks": chunks}
          for chunks in (1, 2, 5) for stage in (0, 1)}
CASES |= {f"2-{schedule}-stage{stage}": {**CASES[f"2-interleaved-2-stage{stage}"], "schedule": schedule}
          for schedule in ("zbv", "dualpipev") for stage in (0, 1)}
CASES["2-interleaved-lora"] = {**CASES["2-interleaved-2-stage1"], "lora_rank": 4, "lora_targets": ["q_proj", "v_proj"]}
CASES["2-interleaved-non_reentrant"] = {**CASES["2-interleaved-2-stage0"], "checkpointing": "non_reentrant"}
CASES["2-interleaved-reduced-in-float32"] = {**CASES["2-interleaved-5-stage1"], "fsdp_compute": "bf16", "fsdp_reduce": "fp32"}
# One rank alone in a stage copies its own, as torchtitan's pipelines have it that shard nothing.
CASES |= {f"{name}-alone": {**CASES[name], "ranks": 1}
          for name in ("2-1f1b-stage0", "2-1f1b-reduced-in-float32", "2-interleaved-2-stage1", "2-zbv-stage0", "2-interleaved-non_reentrant")}


@functools.lru_cache
def changed_config(family, changes):
    path = step_dump.CONFIGS / f"{family}.json"
    if not changes:
        return path
    changed = Path(tempfile.mkdtemp()) / "config.json"
    changed.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **dict(changes)}))
    return changed


def config_of(case):
    layers = (("num_hidden_layers", case["layers"]),) if "layers" in case else ()
    return changed_config(case["family"], case.get("changes", ()) + layers)


@functools.lru_cache
def real_logs():
    cases = [{**case, "steps": 2, "config": str(config_of(case))} for case in CASES.values()]
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("fsdp_log.py"))],
                          input=json.dumps(cases), capture_output=True, text=True, timeout=600,
                          check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(CASES, json.loads(done.stdout)))


def ours(case, log):
    words = {"fsdp": case["version"], "ranks": case["ranks"], "checkpointing": case["checkpointing"], "dtype": "bf16",
             "batch": 2, "seq": 16, "steps": 2, "attention": "eager", "log": log,
             "no_sync": int(case.get("no_sync", False) or "defers_replicas" in case),
             "defers_replicas": int(case.get("defers_replicas", False))}
    for key in ("lora_rank", "fsdp_compute", "fsdp_reduce", "replicas", "accumulation", "schedule", "stages", "stage", "chunks", "expert_ranks"):
        if key in case:
            words[key] = case[key]
    words |= {"fsdp_ends": int(case.get("ends", False)), "fsdp_reshards": case.get("reshards", "layers")}
    if "lora_targets" in case:
        words |= {"lora_targets": ",".join(case["lora_targets"]), "dora": int(case.get("dora", False)), "ia3": int(case.get("ia3", False))}
    if "quantize" in case:
        words |= {"quantize": case["quantize"], "quant_storage": "bf16"}
    if "fsdp_compute" in case:
        words["dtype"] = "f32"
    return step_dump.run(config_of(case), **words)


@pytest.mark.parametrize("name", CASES)
def test_gathers_and_reduces_what_fsdp_does(name):
    case = CASES[name]
    made = ours(case, "gathers")
    if "fsdp_compute" in case and "fsdp_reduce" not in case and "replicas" not in case:
        # Each share is cast to the shard's type, which the real log does not listen to.
        casts = [i for i in range(1, len(made)) if made[i][1] == made[i - 1][1] == "reduce"]
        trained_units = 2 + ("lora_targets" not in case)  # of layers, and of the rest, which is frozen beside adapters
        assert all(made[i][2] == 2 * made[i - 1][2] for i in casts) and len(casts) == 2 * trained_units
        made = [entry for i, entry in enumerate(made) if i not in casts]
    buffers = {tuple(entry[1:]) for entry in made if entry[0] == "input"}  # what stages receive into
    made = [entry for entry in made if entry[0] != "input"]
    if case.get("schedule") in MIRRORED:  # what a stage hands to itself takes their place
        made = [entry for entry in made if entry[1] != "release" or ("gather", entry[2]) not in buffers]
    if case["version"] == 2:
        names = {"gather": "alloc", "release": "free", "reduce": "reduce"}
        made = [[phase, names[kind], size] for phase, kind, size in made]
    real = [entry for entry in real_logs()[name] if entry[1] != "whole"]
    if "chunks" in case:  # between passes, where the log has no phase
        made, real = ([entry[1:] for entry in entries] for entries in (made, real))
    assert made == real


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.get("no_sync")])
def test_gradients_are_whole_until_the_last_micro_batch(name):
    real = [bytes_ for _, kind, bytes_ in real_logs()[name] if kind == "whole"]
    held = [categories.get("gradient", 0) + categories.get("lm_head_gradient", 0)
            for phase, categories in ours(CASES[name], "live") if phase == "backward"]
    steps = 2
    micro_batches = len(held) // steps
    assert [bytes_ for i, bytes_ in enumerate(held) if (i + 1) % micro_batches] == real
