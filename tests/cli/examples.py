#!/usr/bin/env python3
"""Runs every example of `headroom help`, so that none of them rots.

An example may say yes (0), not a plain yes (1), or that something is not here (4: a GPU).
A usage error, a complaint about input, a crash or silence on stdout fails.
Usage: examples.py PATH_OF_THE_BINARY
"""

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WELCOME = (0, 1, 4)
TRAIN = Path(__file__).resolve().parents[2] / "docs" / "examples" / "traced" / "train.py"
DATA = Path(__file__).resolve().parent.parent / "data"
GOLDEN = DATA.parent / "golden"
# The files that examples speak of.
FILES = {"snapshot.pickle": (DATA / "snapshot_whole.pickle").read_bytes(),
         "earlier.pickle": (DATA / "snapshot_ring.pickle").read_bytes(),
         "rank0.pickle": (DATA / "snapshot_whole.pickle").read_bytes(),
         "rank1.pickle": (DATA / "snapshot_ring.pickle").read_bytes(),
         "memory.json.gz": gzip.compress((DATA / "profiler_memory_cpu.json").read_bytes()),
         "trace.json.gz": gzip.compress((DATA / "trace_gpu.json").read_bytes()),
         "trace.et": (GOLDEN / "ops_chakra" / "trace.et").read_bytes(),
         "onnxruntime_profile.json": gzip.decompress((DATA / "onnx_int8.json.gz").read_bytes()),
         "report.sqlite": (DATA / "nsight_systems.sqlite").read_bytes(),
         "ncu.csv": (DATA / "ncu.csv").read_bytes(),
         "before.json.gz": gzip.compress((DATA / "trace_gpu.json").read_bytes()),
         "after.json.gz": gzip.compress((DATA / "trace_gpu_slow.json").read_bytes()),
         **{f"rank{i}.json.gz": (DATA / "ranks" / f"rank{i}.json.gz").read_bytes()
            for i in range(3)},
         "mine.json": b'{"schema": "headroom.operator_rules/1", "operators": '
                      b'[{"group": "elementwise", "names": ["my_library::scan"]}]}',
         "error.log": b"CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; "
                      b"781.59 MiB already allocated; 3.03 GiB free; 1.24 GiB reserved in total by PyTorch)",
         "instance.csv": b"id,lower,upper,size\na,0,4,100\nb,1,3,7\nc,3,9,50\n",
         "sweep.csv": b"batch,throughput_tokens_per_second,itl_ms\n1,270,3.7\n64,6200,9.7\n"
                      b"512,9100,45.8\n",
         "ds_config.json": b'{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, '
                           b'"gradient_accumulation_steps": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
         "sft.yaml": (GOLDEN / "fit_from_trainer" / "sft.yaml").read_bytes(),
         "pretrain_gpt.sh": (GOLDEN / "fit_megatron" / "pretrain_gpt.sh").read_bytes(),
         "decode.json.gz": gzip.compress((GOLDEN / "ops_capture" / "run.json").read_bytes()),
         "capture.json.gz": gzip.compress((GOLDEN / "ops_capture" / "capture.json").read_bytes()),
         "model.onnx": (GOLDEN / "ops_model_onnx" / "block.onnx").read_bytes(),
         "step.plan": b""}
RESULTS = GOLDEN / "batch_points_results" / "results"  # the folder that examples speak of
# The commands that `headroom run` is shown with; what they would do is not looked at here.
COMMANDS = ("python", "torchrun")


def run(binary, words, folder):
    environment = {**os.environ, "PATH": f"{folder}/commands:{os.environ['PATH']}"}
    # These take minutes; tests/python/test_bench_device.py, test_bench_nongemm.py and test_bench_decode.py measure.
    if words[:2] in (["bench", "device"], ["bench", "nongemm"], ["bench", "decode"]):
        environment["HEADROOM_PYTHON"] = "no-python-here"
    return subprocess.run([binary, *words], cwd=folder, capture_output=True, text=True, timeout=300,
                          stdin=subprocess.DEVNULL, check=False, env=environment)


def examples_of(binary, verb, folder):
    """The lines under "Examples" that begin with the program's name."""
    shown = run(binary, ["help", verb], folder)
    block = re.search(r"^Examples\n(.*?)^Usage$", shown.stdout, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^  headroom (.+)$", block.group(1), re.MULTILINE) if block else []
    return [shlex.split(line) for line in lines]


def main():
    binary = str(Path(sys.argv[1]).resolve())
    failed, count = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(TRAIN, folder)  # the module of the reader's own
        shutil.copytree(RESULTS, Path(folder) / "results")
        for name, content in FILES.items():
            (Path(folder) / name).write_bytes(content)
        (Path(folder) / "commands").mkdir()
        for name in COMMANDS:
            command = Path(folder) / "commands" / name
            command.write_text('#!/bin/sh\necho "$0" "$@"\n')
            command.chmod(0o755)
        verbs_block = run(binary, ["help"], folder).stdout.split("\nVerbs\n")[1].split("\n\n")[0]
        verbs = re.findall(r"^  (?!help)(\w+)", verbs_block, re.MULTILINE)
        for verb in verbs:
            examples = examples_of(binary, verb, folder)
            if not examples:
                failed += 1
                print(f"FAILED help {verb} opens without examples")
            for words in examples:
                count += 1
                done = run(binary, words, folder)
                silent = done.returncode != 4 and "-o" not in words and not done.stdout
                if done.returncode not in WELCOME or silent:
                    failed += 1
                    print(f"FAILED headroom {shlex.join(words)}: exit {done.returncode}")
                    print(done.stderr)
    print(f"examples: {count} of {len(verbs)} verbs, {failed} failed")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
