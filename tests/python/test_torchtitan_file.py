"""What `fit --emit torchtitan` writes: run by a shell, and read by torchtitan's own parser."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

QUESTION = ["--device", "h100-sxm-80gb", "--search", "false", "--json"]
CASES = {
    "sharded": (["meta-llama/Llama-3.1-8B", "--method", "fsdp2:8", "--batch", "2", "--seq", "4096", "--mixed-precision",
                 "bf16", "--checkpointing", "selective-every-2", "--optimizer", "adamw-fused", "--clip", "0.5",
                 "--reduce-dtype", "fp32", "--loss", "chunked-head", "--attention", "sdpa", "--global-batch", "64"],
                {"flavor": "8B", "batch": 2, "global_batch": 64, "seq": 4096, "dtype": "float32", "param": "bfloat16",
                 "reduce": "float32", "norm": 0.5, "cuda_graphs": False, "replicas": 1, "shards": 8, "tensor": 1,
                 "loop": "fused", "chunks": 8, "checkpointing": "SelectiveAC", "compile": False, "offload": False}),
    "hybrid": (["Qwen/Qwen3-0.6B", "--method", "fsdp2:4,replicate:2", "--seq", "2048", "--dtype", "bf16",
                "--checkpointing", "full", "--optimizer", "adamw-foreach", "--clip", "1", "--reduce-dtype", "fp32",
                "--loss", "hf", "--attention", "sdpa"],
               {"flavor": "0.6B", "batch": 1, "global_batch": 8, "seq": 2048, "dtype": "bfloat16", "param": "bfloat16",
                "reduce": "float32", "norm": 1.0, "cuda_graphs": False, "replicas": 2, "shards": 4, "tensor": 1,
                "loop": "foreach", "chunks": 1, "checkpointing": "FullAC", "compile": False, "offload": False}),
    "kept": (["meta-llama/Llama-3.1-70B", "--method", "fsdp2:8", "--seq", "8192", "--dtype", "fp32", "--checkpointing",
              "none", "--optimizer", "adamw-loop", "--clip", "1", "--reduce-dtype", "fp32", "--loss", "hf",
              "--attention", "sdpa"],
             {"flavor": "70B", "batch": 1, "global_batch": 8, "seq": 8192, "dtype": "float32", "param": "float32",
              "reduce": "float32", "norm": 1.0, "cuda_graphs": False, "replicas": 1, "shards": 8, "tensor": 1,
              "loop": "for-loop", "chunks": 1, "checkpointing": None, "compile": False, "offload": False}),
    "offloaded": (["Qwen/Qwen3-14B", "--method", "fsdp2:8", "--seq", "4096", "--mixed-precision", "bf16",
                   "--checkpointing", "full", "--optimizer", "adamw-fused", "--clip", "1", "--reduce-dtype", "fp32",
                   "--loss", "hf", "--attention", "sdpa", "--offload", "parameters"],
                  {"flavor": "14B", "batch": 1, "global_batch": 8, "seq": 4096, "dtype": "float32", "param": "bfloat16",
                   "reduce": "float32", "norm": 1.0, "cuda_graphs": False, "replicas": 1, "shards": 8, "tensor": 1,
                   "loop": "fused", "chunks": 1, "checkpointing": "FullAC", "compile": False, "offload": True}),
}


# What all of them say of how products and layers are divided, but where they say otherwise.
UNDIVIDED = {"context": 1, "stages": 1, "schedule": "1F1B", "parts": 1, "micro_batch": 1, "sequence_parallel": True}
for _, expected in CASES.values():
    expected |= UNDIVIDED
CASES["divided"] = (
    ["meta-llama/Llama-3.1-70B", "--method", "fsdp2:2,tp:2,pp:2", "--sequence-parallel", "true", "--batch", "2",
     "--grad-accum", "4", "--seq", "8192", "--mixed-precision", "bf16", "--checkpointing", "full", "--optimizer",
     "adamw-fused", "--clip", "1", "--reduce-dtype", "fp32", "--loss", "hf", "--attention", "sdpa"],
    {**UNDIVIDED, "flavor": "70B", "batch": 8, "global_batch": 16, "seq": 8192, "dtype": "float32", "param": "bfloat16",
     "reduce": "float32", "norm": 1.0, "cuda_graphs": False, "replicas": 1, "shards": 2, "tensor": 2, "stages": 2, "parts": 2,
     "micro_batch": 2, "loop": "fused", "chunks": 1, "checkpointing": "FullAC", "compile": False, "offload": False})
CASES["two parts a rank"] = (
    [CASES["divided"][0][0], "--method", "fsdp2:2,tp:2,pp:2,vpp:2", *CASES["divided"][0][3:]],
    {**CASES["divided"][1], "schedule": "Interleaved1F1B", "parts": 4})
CASES["three parts a rank"] = (
    [CASES["divided"][0][0], "--method", "fsdp2:2,tp:2,pp:2,vpp:3", *CASES["divided"][0][3:]],
    {**CASES["divided"][1], "schedule": "Interleaved1F1B", "parts": 6})
CASES["nothing shared out"] = (
    [CASES["divided"][0][0], "--method", "fsdp2:1,tp:2,pp:4", *CASES["divided"][0][3:]],
    {**CASES["divided"][1], "global_batch": 8, "shards": 1, "stages": 4, "parts": 4})
PIPELINES = ["divided", "two parts a rank", "three parts a rank", "nothing shared out"]
# Split backward passes go with neither checkpoints nor compiled layers.
MIRRORED = ["none" if flag == "full" else flag for flag in CASES["divided"][0]]
for schedule, name in (("zbv", "ZBVZeroBubble"), ("dualpipev", "DualPipeV")):
    CASES[name] = ([*MIRRORED, "--pipeline-schedule", schedule],
                   {**CASES["divided"][1], "schedule": name, "parts": 4, "checkpointing": None})
    PIPELINES.append(name)
CASES["shared sequences"] = (
    ["meta-llama/Llama-3.1-8B", "--method", "fsdp2:4,cp:2", "--seq", "65536", "--mixed-precision", "bf16",
     "--checkpointing", "full", "--optimizer", "adamw-fused", "--clip", "1", "--reduce-dtype", "fp32", "--loss", "hf",
     "--attention", "sdpa"],
    {**UNDIVIDED, "flavor": "8B", "batch": 1, "global_batch": 4, "seq": 65536, "dtype": "float32", "param": "bfloat16",
     "reduce": "float32", "norm": 1.0, "cuda_graphs": False, "replicas": 1, "shards": 4, "tensor": 1, "context": 2,
     "loop": "fused", "chunks": 1, "checkpointing": "FullAC", "compile": False, "offload": False})
for name, (flags, _) in CASES.items():
    if name not in PIPELINES:  # else torchtitan shards the embedding, and the head, by themselves
        flags.extend(["--shard-ends", "true"])


def fit(*words):
    done = subprocess.run([os.environ["HEADROOM_BINARY"], "fit", *words, *QUESTION], capture_output=True, text=True,
                          check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def emitted(tmp_path, case):
    """The answer, the file, and what torchrun is started with by it."""
    written = tmp_path / "torchtitan.sh"
    answer = fit(*CASES[case][0], "--emit", f"torchtitan={written}")
    assert answer["emitted"]["command"] == f"bash {written}"
    assert answer["emitted"]["by_hand"] == []
    stand_in = tmp_path / "torchrun"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stand_in.chmod(0o755)
    done = subprocess.run(["bash", str(written), "--training.steps", "3"], capture_output=True, text=True, check=True,
                          env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    return answer, written, done.stdout.splitlines()


@pytest.mark.parametrize("case", CASES)
def test_a_shell_runs_it_and_it_reads_back_the_same(case, tmp_path):
    answer, written, started = emitted(tmp_path, case)
    assert started[:4] == ["--nproc_per_node", "8", "-m", "torchtitan.train"]
    assert started[-3:-1] == ["--training.steps", "3"]
    again = fit("--from", str(written))
    assert again["model"] == answer["model"]
    assert again["memory"] == answer["memory"]
    assert again.get("time") == answer.get("time")  # of what is offloaded there is none


@pytest.fixture(scope="module")
def parsed(tmp_path_factory):
    """By case, what torchtitan's parser makes of the file; asked once, since that takes seconds."""
    if importlib.util.find_spec("torchtitan") is None:
        pytest.skip("torchtitan is not installed, its parser was not asked: ./test installs it")
    started = [emitted(tmp_path_factory.mktemp("case"), case)[2] for case in CASES]
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("torchtitan_arguments.py"))], capture_output=True,
                          input=json.dumps([words[4:] for words in started]), text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_torchtitan_s_own_parser_reads_it(case, parsed):
    assert parsed[case] == CASES[case][1]
