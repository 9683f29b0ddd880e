"""What a compiled layer's generated code holds at most, of PyTorch's on a CPU and of ours.

    python inductor.py PATH-OF-headroom_step_dump > inductor.csv

PyTorch's comes from the code that torch.compile generates: what it allocates, reuses and deletes,
in order, without what backward is given. Ours are the layer's events of the symbolic step.
"""

import csv
import json
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import transformers
from torch._inductor.utils import run_and_get_code

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "python"))
from test_compile import BATCH, CHECKPOINTS, MODELS, SEQUENCE, checkpointed, first_layer  # noqa: E402

SIZES = {"bfloat16": 2, "float32": 4, "int64": 8, "bool": 1, "uint8": 1}


def bytes_of(shape, dtype):
    count = 1
    for size in re.findall(r"\d+", shape):
        count *= int(size)
    return count * SIZES[dtype]


def peak_of(code, inputs):
    """Bytes at most beyond what was given, `inputs` of which end with their last use."""
    body = code[code.index("def call("):]
    shapes = dict(re.findall(r"assert_size_stride\((\w+), \(([^)]*)\)", body))
    live, held, most = {}, 0, 0
    for line in map(str.strip, body.split("\n")):
        if made := re.match(r"(\w+) = empty_strided_cpu\(\(([^)]*)\), \([^)]*\), torch\.(\w+)\)", line):
            live[made[1]] = bytes_of(made[2], made[3])
            held += live[made[1]]
            most = max(most, held)
        elif reused := re.match(r"(\w+) = (?:reinterpret_tensor\()?(\w+)[;,].*# reuse", line):
            live[reused[1]] = live.pop(reused[2], 0)
        elif (part := re.match(r"(buf\d+) = buf\d+\[\d+\]", line)) and part[1] in shapes:
            kind = "float32" if shapes[part[1]].count(",") == 2 else "bfloat16"
            live[part[1]] = bytes_of(shapes[part[1]], kind)
            held += live[part[1]]
            most = max(most, held)
        elif gone := re.match(r"del (\w+(?:, \w+)*)", line):
            for name in gone[1].split(", "):
                if name in live:
                    held -= live.pop(name)
                elif name in shapes and name in inputs:
                    kind = "float32" if name.startswith("getitem") and shapes[name].count(",") == 2 else "bfloat16"
                    held -= bytes_of(shapes[name], kind)
    return most


def theirs(config, kind):
    torch._dynamo.reset()
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config), attn_implementation="sdpa").to(torch.bfloat16)
    layer, args, kwargs = first_layer(model)
    compiled = torch.compile(checkpointed(layer, kind), fullgraph=True)

    def run():
        outputs = compiled(*args, **kwargs)
        (outputs[0] if isinstance(outputs, tuple) else outputs).sum().backward()

    codes = run_and_get_code(run)[1]
    kept = set(re.findall(r"assert_size_stride\((\w+),", codes[1]))
    hidden = next(name for name, shape in re.findall(r"assert_size_stride\((\w+), \(([^)]*)\)", codes[0])
                  if shape == f"{BATCH}, {SEQUENCE}, {args[0].shape[-1]}")
    ends = {name for name in kept if not name.startswith(("primals", "tangents"))} | {hidden}
    return [peak_of(codes[0], set()), peak_of(codes[1], ends)]


def ours(program, config, kind):
    layers = "n_layer" if "n_embd" in config else "num_hidden_layers"
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({**config, layers: 4}, file)
        file.flush()
        events = json.loads(subprocess.run(
            [program, file.name, f"batch={BATCH}", f"seq={SEQUENCE}", "dtype=bfloat16", "attention=sdpa",
             "sdpa=flash", "compile=layers", f"checkpointing={CHECKPOINTS[kind]}"],
            capture_output=True, text=True, check=True).stdout)["events"]
    peaks = []
    for phase in ("forward", "backward"):
        at = [i for i, event in enumerate(events)
              if event["phase"] == phase and event["step"] == 1 and event["module"].endswith(".1")]
        before = events[at[0] - 1]["live"]
        peaks.append(max(events[i]["live"] + sum(events[i]["frees"]) for i in at) - before)
    return peaks


def main():
    warnings.simplefilter("ignore")
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["model", "checkpoint", "pass", "pytorch_bytes", "ours_bytes", "difference_pct"])
    for name, config in MODELS.items():
        for kind in CHECKPOINTS:
            for which, (real, made) in zip(("forward", "backward"),
                                           zip(theirs(config, kind), ours(sys.argv[1], config, kind))):
                out.writerow([name, kind, which, real, made, f"{100 * (made - real) / real:.1f}"])
                sys.stdout.flush()


if __name__ == "__main__":
    main()
