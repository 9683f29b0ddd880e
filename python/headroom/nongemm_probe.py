"""Runs one model with random weights in several settings, for its time and a profile of it.

    python -m headroom.nongemm_probe --spec SPEC.json

The runner behind `headroom bench nongemm` and `headroom bench decode`. SPEC (headroom.nongemm_spec/1) names the model, the
device, the settings, the seconds for each, and a folder for traces. Of each setting: warm-up, some runs
under the profiler, of which the quickest one's trace is kept and a typical one composed (typical_run.py), then runs
without it until the median is sure or the time is up; what a trace says is read by the caller. A run that takes longer
than all of the time is made once, under the profiler. A model too big for the machine is measured with few layers, twice.
A setting with a `context` is a decode step with so many tokens in the cache of each sequence (decode_step.py): the model
then has as many layers as fit, and what the machine reaches at its best is measured beside it.

Prints on stderr, a line each: `headroom: machine {...}` once, `headroom: measured {...}` for each
measurement or refusal. A refusal is a result. Exit codes: 0, 2 (usage), 3 (the spec), 4 (no PyTorch,
no such device).
"""

import argparse
import ctypes
import gc
import importlib.metadata
import json
import math
import os
import re
import signal
import statistics
import sys
import tempfile
import time

from headroom import decode_step, energy, trace_module, typical_run
from headroom.device_probe import LEAST_OF_A_SAMPLE, Machine, available_host_bytes, peak_rates, say
from headroom.nongemm_models import DTYPES, Recipe, Refused
from headroom.nongemm_onnx import OnnxRuntime
from headroom.waiting import Turns

EXIT_BAD_INPUT, EXIT_UNAVAILABLE = 3, 4
SPEC_SCHEMA = "headroom.nongemm_spec/1"
SURE = 0.02              # half width of the median's interval, of the median
LEAST_SAMPLES, MOST_SAMPLES = 3, 200
ROOM_OF_MEMORY = 0.6     # of what is free: what the weights of a whole model may take
MOST_DECODE_PROFILED = 2.0  # seconds: of `bench decode` the quickest run alone is read
MOST_REASON = 300
STEP, WORK = "ProfilerStep#0", ("cpu_op", "user_annotation")
LEAST_TICK = 1e-3        # of a profile's microseconds


def report(kind, members):
    say(f"{kind} {json.dumps(members)}")


def first_line(error):
    """What an engine says of its failure: the first line that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"[:MOST_REASON]


def die_with_parent():
    """A benchmark must not go on once nobody waits for it. Linux only; elsewhere nothing happens."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    except (OSError, AttributeError):
        pass


# ---- measuring ----------------------------------------------------------------------------------

class Stopwatch:
    """The seconds of single calls, of the device's work too."""

    def __init__(self, machine):
        self.machine, self.undisturbed = machine, []

    def once(self, call):
        self.settle()
        waited, start = self.machine.waiting.seconds(), time.perf_counter()
        call()
        self.settle()
        taken = time.perf_counter() - start
        self.undisturbed.append(max(taken - (self.machine.waiting.seconds() - waited), LEAST_OF_A_SAMPLE * taken))
        return taken

    def undisturbed_seconds(self):
        """The median of the runs so far, less what other programs took; None where the system does not say."""
        is_known = self.machine.waiting.is_known and not self.machine.is_cuda
        return statistics.median(self.undisturbed) if is_known else None

    def settle(self):
        if self.machine.is_cuda:
            self.machine.torch.cuda.synchronize(self.machine.device)

    def samples(self, call, seconds):
        """Single runs, until their median is sure or the time is up; and how sure it is."""
        samples, deadline = [], time.perf_counter() + seconds
        while True:
            samples.append(self.once(call))
            if self.undisturbed[-len(samples)] > seconds:  # a run that takes all of the time is not made three times
                return samples, None
            if len(samples) < LEAST_SAMPLES:
                continue
            half = half_width(samples)
            if half <= SURE or time.perf_counter() >= deadline or len(samples) >= MOST_SAMPLES:
                return samples, half


def half_width(samples):
    """Of the median's interval, as a part of it: 1.57 interquartile ranges over the root of the count
    (McGill, Tukey and Larsen 1978)."""
    low, middle, high = statistics.quantiles(samples, n=4)
    return 1.57 * (high - low) / math.sqrt(len(samples)) / middle


class Profiler:
    """Runs under PyTorch's profiler, and their traces, which are written and read where they are asked for."""

    def __init__(self, machine):
        self.machine, self.stopwatch, self.profiles, self.turns = machine, Stopwatch(machine), [], Turns()
        kinds = machine.torch.profiler.ProfilerActivity
        self.activities = [kinds.CPU, kinds.CUDA] if machine.is_cuda else [kinds.CPU]

    def once(self, call):
        """Seconds of a run, and those of them that are its own."""
        profiler = self.machine.torch.profiler
        with profiler.profile(activities=self.activities) as profiled:
            with profiler.record_function(STEP):
                taken = self.stopwatch.once(call)
        self.profiles.append(profiled)
        return taken, self.stopwatch.undisturbed[-1]

    def trace(self, place):
        """Of a run, once: it is held no longer."""
        profiled, self.profiles[place] = self.profiles[place], None
        with tempfile.TemporaryDirectory() as folder:
            plain = os.path.join(folder, "trace.json")
            profiled.export_chrome_trace(plain)
            with open(plain, encoding="utf-8") as trace:
                return json.load(trace)

    def keep(self, runs, file):
        """`runs` as once() gave them; where several threads had operators, the quickest one's trace alone."""
        turn_us = self.turns.mean_us()
        return typical_run.keep(runs, typical_run.Reading(self.trace, marks_of_step, with_events), self.machine, turn_us, file)


def marks_of_step(trace):
    return typical_run.marks_of(typical_run.tree_by_time(events_of_step(trace)))


def with_events(trace, events):
    return dict(trace, traceEvents=[event for event in trace["traceEvents"] if event.get("ph") == "M"] + events)


def events_of_step(trace):
    """What the thread of the step did in it; nothing where other threads had operators of their own."""
    spans = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    step = max((event for event in spans if event["name"] == STEP), key=lambda event: event["dur"], default=None)
    work = [event for event in spans if event.get("cat") in WORK]
    if step is None or any(event["tid"] != step["tid"] for event in work):
        return []
    return [event for event in work
            if step["ts"] <= event["ts"] and typical_run.end_of(event) <= typical_run.end_of(step) + LEAST_TICK]


# ---- engines ------------------------------------------------------------------------------------

class Routing:
    """How many tokens each expert of a mixture got: what chooses its work, and random weights chose it."""

    def __init__(self, torch, module):
        self.torch, self.chosen = torch, []
        self.hooks = [part.register_forward_hook(self._note) for part in module.modules()
                      if re.search(r"Router$|Gate$", type(part).__name__)]

    def _note(self, module, _, output):
        experts = getattr(module, "num_experts", None)
        for value in output if isinstance(output, tuple) else ():
            if isinstance(value, self.torch.Tensor) and value.dtype == self.torch.int64 and experts:
                self.chosen.append((value, experts))  # to be counted later: this run may be profiled

    def words(self):
        for hook in self.hooks:
            hook.remove()
        self.counts = [self.torch.bincount(value.flatten().cpu(), minlength=experts) for value, experts in self.chosen]
        if not self.counts:
            return []
        total = sum(counts.sum() for counts in self.counts).item()
        shares = sorted(100 * count.item() * len(counts) * len(self.counts) / total
                        for counts in self.counts for count in counts)
        return [f"routing by random weights: an expert gets {shares[0]:.0f} to {shares[-1]:.0f} % of its even share"]


def is_finite(torch, output):
    from torch.utils import _pytree
    values = output.to_tuple() if hasattr(output, "to_tuple") else output
    return all(bool(torch.isfinite(leaf).all()) for leaf in _pytree.tree_leaves(values)
               if isinstance(leaf, torch.Tensor) and leaf.is_floating_point())


class Eager:
    """PyTorch as it is, operator by operator."""

    patience = 1  # times the seconds of a setting: as long may its run take that is made several times

    def __init__(self, machine, recipe, layers, setting):
        torch = machine.torch
        if "onnx" in recipe.entry:
            raise Refused("a file of ONNX is run by ONNX Runtime alone")
        if setting["fusion"] != "none":
            raise Refused("PyTorch's eager mode fuses nothing")
        dtype = getattr(torch, DTYPES[setting["dtype"]])
        if setting["quantize"] != "none" and machine.is_cuda:
            raise Refused("PyTorch's own quantization is for the CPU")
        if setting["quantize"] == "int8" and dtype != torch.float32:
            raise Refused("PyTorch's dynamic int8 is for fp32")
        if setting["quantize"] == "int4" and dtype != torch.bfloat16:  # elsewhere it has a plain loop, 80 times as long
            raise Refused("PyTorch's kernel for weights of four bits is for bf16 (--dtype bfloat16)")
        self.machine, self.recipe, self.dtype, self.notes = machine, recipe, dtype, []
        module = recipe.make(layers, dtype)
        self.parameters = sum(parameter.numel() for parameter in module.parameters())
        if setting["quantize"] != "none":
            from headroom import nongemm_quantize
            module, self.notes = nongemm_quantize.KINDS[setting["quantize"]](module)
        self.module = module.to(machine.device)

    def prepare(self, setting):
        """A function to be measured, and what is to be said of it."""
        self.cache_bytes = 0
        if setting.get("context"):
            call, self.cache_bytes = decode_step.make_step(self.machine, self.module, self.dtype, setting["batch"],
                                                           setting["context"], available_bytes(self.machine))
            return self._checked(call)
        args, named = self.recipe.inputs(self.module, setting["batch"], self.dtype, self.machine.device)
        if setting["phase"] == "decode":
            call = self._decode(named)
        else:
            def call():
                return self.forward(*args, **named)
        return self._checked(call)

    def forward(self, *args, **named):
        return self.module(*args, **named)

    def _checked(self, call):
        routing, outputs = Routing(self.machine.torch, self.module), []
        self.first = self._first_run(lambda: outputs.append(call()))
        notes = routing.words()
        for words in ("stated", "remarks"):  # of our own modules
            notes += getattr(self.module, words, list)()
        if not is_finite(self.machine.torch, outputs.pop()):
            notes.append("its output is not finite")
        return call, notes

    def _first_run(self, call):
        """It warms up. Where it takes very long it is all that there is: its profiler and what that says."""
        profiler = Profiler(self.machine)
        return profiler, profiler.once(call)

    def profile(self, call, seconds, file):
        profiler, first = self.first or (None, None)
        self.first = None
        if first and typical_run.is_all(first, seconds):
            return profiler.keep([first], file)
        profiler = Profiler(self.machine)
        return profiler.keep(typical_run.repeat(lambda: profiler.once(call), seconds * self.patience), file)

    def leave_profiler(self):
        """Nothing of it is left."""

    def _decode(self, named):
        """One token for each sequence, whose cache holds all of the tokens before."""
        words = named.get("input_ids")
        if words is None or len(named) > 1 or not getattr(self.module, "can_generate", bool)():
            raise Refused("it does not decode: no language model with a cache")
        cache = self.module(words, use_cache=True).past_key_values
        if not hasattr(cache, "crop"):
            raise Refused("its cache cannot be taken back by a token")
        token = words[:, -1:].contiguous()

        def call():
            output = self.forward(token, past_key_values=cache, use_cache=True)
            cache.crop(-1)
            return output.logits
        return call


class Compiled(Eager):
    """PyTorch's Inductor: chains of operators as one kernel each, products left to the library."""

    def __init__(self, machine, recipe, layers, setting):
        if setting["quantize"] != "none":
            raise Refused("PyTorch's own quantization is not compiled")
        super().__init__(machine, recipe, layers, dict(setting, fusion="none"))
        torch = machine.torch
        import torch._dynamo
        import torch._inductor.config
        torch._dynamo.reset()
        torch._inductor.config.cpp.enable_kernel_profile = True  # else a profile does not name fused kernels
        self.compiled = torch.compile(self.module)
        self.notes = self.notes + ["compiled by Inductor; what compiling takes is not in the time"]

    def forward(self, *args, **named):
        return self.compiled(*args, **named)

    def _first_run(self, call):
        call()  # it compiles


ENGINES = {"pytorch": Eager, "compiled": Compiled, "onnxruntime": OnnxRuntime}


# ---- settings -----------------------------------------------------------------------------------

class Session:
    """One model, its settings in turn. A failure ends one setting, not the rest."""

    def __init__(self, machine, spec):
        self.machine, self.spec, self.engine, self.built = machine, spec, None, None
        self.decode_layers, self.peaks = spec.get("layers"), None
        self.recipe = Recipe(machine.torch, spec["model"])
        self.whole = self.recipe.parameters()

    def depths(self, setting):
        """None for the whole, or two numbers of layers of which it is composed."""
        if setting.get("context"):
            return (self.decode_depth(setting),)
        if self.spec.get("composed"):
            return self.recipe.few_layers()
        if self.whole is None:
            return (None,)
        itemsize = getattr(self.machine.torch, DTYPES[setting["dtype"]]).itemsize
        held = self.built_bytes()
        if self.whole * itemsize <= ROOM_OF_MEMORY * (available_bytes(self.machine) + held):
            return (None,)
        return self.recipe.few_layers()

    def decode_depth(self, setting):
        """One for all batches: that which was asked for, or what fits; None for the whole."""
        if self.whole is None:
            raise Refused("a decode step needs a configuration, whose layers are known")
        if self.built is None and self.decode_layers is None:
            itemsize = getattr(self.machine.torch, DTYPES[setting["dtype"]]).itemsize
            self.decode_layers = decode_step.layers_that_fit(self.recipe, setting["context"], itemsize,
                                                             available_bytes(self.machine))
        if self.decode_layers is not None and self.decode_layers > (self.recipe.layers or 0):
            raise Refused(f"it has {self.recipe.layers or 0} layers alike, not {self.decode_layers}")
        return self.decode_layers

    def built_bytes(self):
        """Of the engine that would make way."""
        return 0 if self.engine is None else self.engine.parameters * self.engine.dtype.itemsize

    def run(self):
        ended = set()
        for setting, layers in self.jobs(ended):
            if setting["id"] in ended:
                continue
            try:
                self.report(setting, layers, self.measure(setting, layers))
            except Exception as error:  # noqa: BLE001  an engine may raise anything, and the rest goes on
                ended.add(setting["id"])
                self.drop()
                self.report_failure(setting, layers, error)

    def report_failure(self, setting, layers, error):
        if isinstance(error, (Refused, trace_module.TraceError)):
            self.report(setting, None, {"status": "refused", "reason": str(error)[:MOST_REASON]})
        else:
            self.report(setting, layers, {"status": "failed", "reason": first_line(error)})

    def jobs(self, ended):
        """Settings with their layers, those next to each other that share a graph of ONNX Runtime; refuses the rest."""
        jobs, first_of = [], {}
        for place, setting in enumerate(self.spec["settings"]):
            try:
                depths = self.depths(setting)
            except Exception as error:  # noqa: BLE001  a configuration may be anything
                ended.add(setting["id"])
                self.report_failure(setting, None, error)
                continue
            graph = (setting["batch"], setting["dtype"]) if setting["engine"] == "onnxruntime" else place
            group = first_of.setdefault(graph, place)
            jobs += [((group, depth, place), setting, layers) for depth, layers in enumerate(depths)]
        return [(setting, layers) for _, setting, layers in sorted(jobs, key=lambda job: job[0])]

    def report(self, setting, layers, members):
        report("measured", {"id": setting["id"], "layers": layers, **members})

    def drop(self):
        self.engine, self.built = None, None
        gc.collect()

    def engine_for(self, setting, layers):
        key = (setting["engine"], setting["quantize"], setting["fusion"], setting["dtype"], layers)
        if setting["engine"] == "onnxruntime":
            key += (setting["batch"],)  # its graph has the shapes of one
        if self.built != key:
            self.drop()
            self.engine = ENGINES[setting["engine"]](self.machine, self.recipe, layers, setting)
            self.built = key
        return self.engine

    def measure(self, setting, layers):
        if setting.get("context") and self.peaks is None:  # before the model fills the memory
            self.peaks = peak_rates(self.machine, getattr(self.machine.torch, DTYPES[setting["dtype"]]))
        engine = self.engine_for(setting, layers)
        call, notes = engine.prepare(setting)
        notes += engine.notes
        depth = "whole" if layers is None else f"{layers}-layers"
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{setting['id']}-{depth}").lstrip(".-") + ".trace.json.gz"
        seconds = min(self.spec["seconds"], MOST_DECODE_PROFILED) if setting.get("context") else self.spec["seconds"]
        if layers is not None and not setting.get("context"):  # a difference of two is multiplied by all layers
            engine.patience = typical_run.MUCH_TOO_LONG
        profiled = engine.profile(call, seconds, os.path.join(self.spec["traces"], name))
        stopwatch, joules = Stopwatch(self.machine), None
        if profiled.own_seconds <= self.spec["seconds"] or setting.get("context"):
            engine.leave_profiler()
            meter = energy.meter_of(self.machine)
            samples, half = stopwatch.samples(call, self.spec["seconds"])
            joules = meter.joules()
        else:
            samples = profiled.all_seconds
            half = half_width(samples) if len(samples) >= LEAST_SAMPLES else None
            notes.append(typical_run.UNDER_PROFILER)
        median = statistics.median(samples)
        decode = None if not setting.get("context") else {
            "quickest_seconds": min(stopwatch.undisturbed), "profiled_waited_seconds": profiled.seconds - profiled.own_seconds,
            "undisturbed_seconds": stopwatch.undisturbed_seconds(),
            "joules": None if joules is None else joules / len(samples), "cache_bytes": engine.cache_bytes,
            "peak_bytes_per_second": self.peaks["bytes"], "peak_flops_per_second": self.peaks["flops"]}
        return {"status": "measured", "seconds": median, "uncertainty": half, "samples": len(samples),
                "decode": decode, "layers_of_model": self.recipe.layers,
                "parameters": engine.parameters, "model_parameters": self.whole, "trace": name,
                "joules": None if joules is None else joules / len(samples),
                "typical_trace": profiled.typical, "profiled_runs": profiled.runs,
                "profiled_seconds": profiled.seconds, "notes": notes}


def available_bytes(machine):
    if machine.is_cuda:
        machine.torch.cuda.empty_cache()  # what PyTorch keeps for later could be had too
        return machine.free_bytes()
    return available_host_bytes()


def machine_of(machine):
    members = machine.identity()
    try:
        members["transformers"] = importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        members["transformers"] = ""
    return members


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec", required=True)
    arguments = parser.parse_args()
    die_with_parent()
    try:
        with open(arguments.spec, encoding="utf-8") as file:
            spec = json.load(file)
        if spec["schema"] != SPEC_SCHEMA:
            raise ValueError(f"expected {SPEC_SCHEMA}")
    except (OSError, ValueError, KeyError) as error:
        say(f"{arguments.spec}: {error}")
        return EXIT_BAD_INPUT
    try:
        import torch
    except ImportError as error:
        say(f"PyTorch cannot be imported: {error}")
        return EXIT_UNAVAILABLE
    if spec.get("threads"):
        torch.set_num_threads(spec["threads"])
    try:
        machine = Machine(torch, spec["on"])
        torch.empty(1, device=machine.device)
    except (RuntimeError, AssertionError, ValueError) as error:
        say(f"there is no device {spec['on']}: {str(error).splitlines()[0]}")
        return EXIT_UNAVAILABLE
    report("machine", machine_of(machine))
    try:
        with torch.inference_mode():
            session = Session(machine, spec)
            session.run()
    except (Refused, trace_module.TraceError) as refusal:
        for setting in spec["settings"]:
            report("measured", {"id": setting["id"], "layers": None, "status": "refused",
                                "reason": str(refusal)[:MOST_REASON]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
