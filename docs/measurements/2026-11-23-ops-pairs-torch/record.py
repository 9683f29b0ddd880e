#!/usr/bin/env python3
"""Holds the horizon of `headroom ops` against changes that were really made, in PyTorch on a CPU: stacks of
transformer layers eager and compiled, in float32 and with linear layers in dynamic int8.

Each stack has random weights. It is profiled before and after the change, some steps of each in turns, on one thread; of
many steps the fastest counts on either side, since other work on the machine makes steps slower, never faster.

The horizon sees the profile before alone. How many times faster a group of operators becomes (--faster) is given to it
in two ways:
  own     as the pair itself has it: what is judged is the replay, that is whether a step follows from its parts;
  others  the middle of what the other stacks' pairs have: what is judged is the prediction.
What is more after the change (a group that was not there, or is slower) is added, from the pair or from the others, by
the float that goes into a linear layer. What int8 gives is asked in a third way, too:
  rates   the horizon's own line for linear layers in int8, with the rates that the other stacks' linear layers reached
          here, their middle, as --device cpu,fp32=..,int8=..
  calibrated  that line by --calibration FILE, which `headroom bench device --threads 1` wrote on this machine: it
          knows no stack

Usage: record.py --binary PATH [--rounds 8] [--calibration FILE] [--keep FOLDER]   (with torch and a C++ compiler)
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import warnings
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

STACKS = {  # layers, width, heads, tokens
    "small": (4, 256, 4, 128),
    "wide": (2, 1024, 16, 64),
    "long": (3, 384, 6, 384),
    "middle": (3, 640, 10, 160),
}
STEPS = 12  # of a round


class Layer(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.behind = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (torch.nn.Linear(width, width) for _ in range(4))
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x):
        normed = self.before(x)
        query, key, value = (self.split(one(normed)) for one in (self.query, self.key, self.value))
        scores = query @ key.transpose(2, 3) / (x.shape[-1] / self.heads) ** 0.5
        mixed = (torch.softmax(scores, -1) @ value).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        return x + self.down(torch.nn.functional.gelu(self.up(self.behind(x))))


def steps_of(module, x, path):
    """The fastest of some steps, as a trace at `path`; its milliseconds."""
    for _ in range(2):
        module(x)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(STEPS):
            with torch.profiler.record_function("step_of_pair"):
                module(x)
    profiler.export_chrome_trace(str(path))
    spans = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"]
    best = min((event for event in spans if event["name"] == "step_of_pair"), key=lambda event: event["dur"])
    begin, end = best["ts"], best["ts"] + best["dur"]
    kept = [event for event in spans if begin <= event["ts"] and event["ts"] + event["dur"] <= end]
    kept = [{**event, "name": "ProfilerStep#0"} if event is best else event for event in kept]
    path.write_text(json.dumps({"traceEvents": kept}))
    return best["dur"] / 1e3


def record_pair(before, after, x, rounds, folder, name):
    """Both in turns; the traces of their fastest steps, and what these took."""
    paths = [folder / f"{name}_{side}.json" for side in ("before", "after")]
    took = [float("inf")] * 2
    for _ in range(rounds):
        for side, module in enumerate((before, after)):
            scratch = folder / "round.json"
            ms = steps_of(module, x, scratch)
            if ms < took[side]:
                took[side] = ms
                scratch.replace(paths[side])
    return paths, took


def ops(binary, path, *flags):
    return json.loads(subprocess.run([binary, "ops", str(path), "--json", *flags], capture_output=True, text=True,
                                     check=True).stdout)


def group_ms(answer):
    return {group["name"]: group["ms"] for group in answer["wall_time"]["groups"]}


def changes_of(before, after, floats):
    """By group how many times faster, 1 where it is slower; and what is more than before, in ms a million floats into
    linear layers."""
    factors = {name: min(max(ms / after[name], 1), 1e6) if after.get(name, 0) > 0 else 1e6
               for name, ms in before.items() if ms > 0}
    more = sum(max(0, ms - before.get(name, 0)) for name, ms in after.items() if name != "idle")
    return factors, more / floats * 1e6


def predicted(binary, path, factors, new_ms):
    words = ",".join(f"{name}={factor:.6f}" for name, factor in factors.items() if name != "idle")
    answer = ops(binary, path, "--faster", words)
    speedup = next(one for one in answer["horizon"] if one["change"].startswith("faster:"))["speedup"]
    wall = answer["wall_time"]["total_ms"]
    return wall / (wall / speedup + new_ms)


def linear_ms(path):
    names = ("aten::linear", "quantized::linear_dynamic")
    return sum(event["dur"] for event in json.loads(path.read_text())["traceEvents"] if event["name"] in names) / 1e3


def by_rates(binary, path, rates):
    """The horizon's speedup with linear layers in int8; rates in GFLOP/s."""
    fp32, int8 = (statistics.median(one) for one in zip(*rates))
    return int8_line(binary, path, "--device", f"cpu,fp32={fp32:.1f}GFLOPS,int8={int8:.1f}GFLOPS,bandwidth=20GB/s")


def int8_line(binary, path, *flags):
    answer = ops(binary, path, *flags)
    return next((one["speedup"] for one in answer["horizon"] if one["change"] == "gemm_int8_fused"), float("nan"))


def middle(changes, groups):
    """Of several pairs: the middle factor of each group that the stack has."""
    found = {name: statistics.median(factors[name] for factors, _ in changes if name in factors)
             for name in groups if any(name in factors for factors, _ in changes)}
    return found, statistics.median(new for _, new in changes)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--calibration")
    parser.add_argument("--keep", type=Path)
    words = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch._inductor.config.cpp.enable_kernel_profile = True
    pairs, reached = {}, {}
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        folder = words.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name, (layers, width, heads, tokens) in STACKS.items():
            plain = torch.nn.Sequential(*(Layer(width, heads) for _ in range(layers))).eval()
            quantized = torch.ao.quantization.quantize_dynamic(plain, {torch.nn.Linear}, dtype=torch.qint8)
            x = torch.rand(1, tokens, width)
            floats = layers * tokens * width * 9
            for change, after in (("compiled", torch.compile(plain)), ("int8", quantized)):
                paths, took = record_pair(plain, after, x, words.rounds, folder, f"{name}_{change}")
                groups = [group_ms(ops(words.binary, path)) for path in paths]
                pairs[change, name] = paths[0], took, groups[0], changes_of(*groups, floats), floats
                if change == "int8":
                    gigaflops = layers * 2 * tokens * 12 * width * width / 1e9
                    reached[name] = [gigaflops / linear_ms(path) * 1e3 for path in paths]
        print("change,stack,before_ms,after_ms,measured,own,own_error_pct,others,others_error_pct,rates,rates_error_pct,"
              "calibrated,calibrated_error_pct")
        for (change, name), (path, took, groups, own, floats) in pairs.items():
            measured = took[0] / took[1]
            others = middle([pair[3] for (kind, other), pair in pairs.items() if kind == change and other != name],
                            [group for group, ms in groups.items() if ms > 0])
            line = [change, name, f"{took[0]:.3f}", f"{took[1]:.3f}", f"{measured:.3f}"]
            said = [predicted(words.binary, path, factors, new * floats / 1e6) for factors, new in (own, others)]
            if change == "int8":
                said.append(by_rates(words.binary, path, [rates for other, rates in reached.items() if other != name]))
                if words.calibration:
                    said.append(int8_line(words.binary, path, "--calibration", words.calibration))
            for speedup in said:
                line += [f"{speedup:.3f}", f"{100 * (speedup / measured - 1):+.1f}"]
            print(",".join(line), flush=True)


if __name__ == "__main__":
    main()
