"""How much of a PyTorch run is Python between operators: the same operators with Python (eager) and without (torch.jit.trace).

    python3 docs/measurements/2026-11-24-nongemm-host/host.py MODEL... >host.csv      # from the root

Each run by PyTorch's profiler, in turns; the quickest of RUNS of each. `covered`: the part of the run in which an operator ran.
`plain`: the quickest run of the same without a profiler.
"""

import contextlib
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python")]
from test_bench_models import recipe_of  # noqa: E402

from headroom import nongemm_quantize  # noqa: E402

RUNS = 15


def profiled_run(call):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler, \
            torch.profiler.record_function("step"):
        call()
    events = list(profiler.events())
    step = next(event for event in events if event.name == "step").time_range
    spans = sorted((event.time_range.start, event.time_range.end) for event in events
                   if event.name.startswith(("aten::", "quantized::")))
    covered, reached, outer = 0, step.start, 0
    for start, end in spans:
        outer += start >= reached
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return step.end - step.start, covered, outer


class Tensors(torch.nn.Module):
    """What comes out of a model, as tracing takes it."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *values):
        return tuple(value for value in self.module(*values).to_tuple() if isinstance(value, torch.Tensor))


def plain_run(call):
    start = time.perf_counter()
    call()
    return 1e6 * (time.perf_counter() - start)


def main(names):
    print("model,quantize,how,plain_ms,profiled_ms,operators_ms,covered_pct,outer_operators,us_between", flush=True)
    for name in names:
        for quantize in ("none", "int8"):
            recipe = recipe_of(name)
            module = recipe.make(None, torch.float32).eval().requires_grad_(False)
            if quantize == "int8":
                module, _ = nongemm_quantize.int8(module)
            args, named = recipe.inputs(module, 1, torch.float32, torch.device("cpu"))
            values = tuple(args) or tuple(named.values())
            with torch.no_grad(), contextlib.redirect_stdout(sys.stderr):
                traced = torch.jit.trace(Tensors(module), values, check_trace=False, strict=False)
            ways = {"eager": lambda: module(*values), "traced": lambda: traced(*values)}
            best = {}
            with torch.no_grad():
                for way in ways.values():
                    for _ in range(3):
                        way()
                for _ in range(RUNS):
                    for how, way in ways.items():
                        plain = plain_run(way)
                        wall, covered, outer = profiled_run(way)
                        known = best.setdefault(how, [plain, wall, covered, outer])
                        known[0] = min(known[0], plain)
                        if wall < known[1]:
                            known[1:] = [wall, covered, outer]
            for how, (plain, wall, covered, outer) in best.items():
                print(f"{name},{quantize},{how},{plain / 1e3:.2f},{wall / 1e3:.2f},{covered / 1e3:.2f},{100 * covered / wall:.1f},"
                      f"{outer},{(wall - covered) / max(1, outer):.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
