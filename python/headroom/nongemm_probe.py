"""Runs models with random weights in several settings each, for their time and a profile of it.

    python -m headroom.nongemm_probe --spec SPEC.json

The runner behind `headroom bench nongemm` and `headroom bench decode`. SPEC (headroom.nongemm_spec/2) names the device, the
seconds for a setting, a folder for traces, and the parts: a model, its settings, and how long it may take. Of each setting:
warm-up, some runs under the profiler, of which the quickest one's trace is kept and a typical one composed, and runs
without it, in visits that take turns with other settings' (nongemm_visits.py); what a trace says is read by the caller.
A model too big for the machine is measured with few layers, twice. A setting with a `context` is a decode step with so many
tokens in the cache of each sequence (decode_step.py): the model then has as many layers as fit, and what the machine
reaches at its best is measured beside it.

Each part has a process of its own, which dies of what its model does and leaves nothing behind. They are forked off one
that has imported what they need and done nothing else, which takes seconds: no thread of it runs, and no device was asked.

Prints on stderr, a line each: `headroom: machine {...}` once a part, `headroom: measured {...}` for each
measurement or refusal, `headroom: ended {...}` behind each part. A refusal is a result. Exit codes: 0, 2 (usage), 3 (the
spec), 4 (no PyTorch, no such device).
"""

import argparse
import contextlib
import ctypes
import gc
import importlib
import importlib.metadata
import json
import os
import re
import signal
import statistics
import sys
import tempfile
import traceback

from headroom import decode_step, nongemm_visits, trace_module, typical_run
from headroom.device_probe import Machine, available_host_bytes, peak_rates, say
from headroom.nongemm_models import DTYPES, Recipe, Refused
from headroom.nongemm_onnx import OnnxRuntime
from headroom.waiting import Turns

EXIT_BAD_INPUT, EXIT_UNAVAILABLE = 3, 4
SPEC_SCHEMA = "headroom.nongemm_spec/2"
ROOM_OF_MEMORY = 0.6     # of what is free: what the weights of a whole model may take
ROOM_LEFT = 0.5          # of what is free before a group of settings, while engines are made beside each other
WEIGHTS_OF_MAKING = 5    # times its weights: what exporting a model and opening it takes meanwhile
WARM_UPS_OF_A_GRAPH = 3
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

class Profiler:
    """Runs under PyTorch's profiler, and their traces, which are written and read where they are asked for.

    On a GPU a later session clears what an earlier one has of kernels (times of 0 are what is left, PyTorch 2.11), so that
    there a trace is written at once where it may be asked for: the first one's, which warms up and may be the only one, and
    that of the quickest since."""

    def __init__(self, machine):
        self.machine, self.stopwatch, self.profiles, self.turns = machine, nongemm_visits.Stopwatch(machine), [], Turns()
        self.quickest = None
        kinds = machine.torch.profiler.ProfilerActivity
        self.activities = [kinds.CPU, kinds.CUDA] if machine.is_cuda else [kinds.CPU]

    def once(self, call):
        """Seconds of a run, and those of them that are its own."""
        profiler = self.machine.torch.profiler
        with profiler.profile(activities=self.activities) as profiled:
            with profiler.record_function(STEP):
                taken = self.stopwatch.once(call)
        if self.machine.is_cuda:
            self._write_now(profiled, taken)
        else:
            self.profiles.append(lambda: written(profiled))
        return taken, self.stopwatch.undisturbed[-1]

    def _write_now(self, profiled, taken):
        is_first = not self.profiles
        is_wanted = is_first or self.quickest is None or taken < self.quickest
        if is_wanted and not is_first:
            self.profiles[1:] = [None] * (len(self.profiles) - 1)
            self.quickest = taken
        text = written(profiled) if is_wanted else None
        self.profiles.append(text and (lambda: text))

    def trace(self, place):
        """Of a run, once: it is held no longer."""
        text, self.profiles[place] = self.profiles[place](), None
        return json.loads(text)

    def keep(self, runs, file):
        """The last `runs` as once() gave them; where several threads had operators, the quickest one's trace alone."""
        turn_us, self.profiles = self.turns.mean_us(), self.profiles[-len(runs):]
        return typical_run.keep(runs, typical_run.Reading(self.trace, marks_of_step, with_events), self.machine, turn_us, file)


def written(profiled):
    with tempfile.TemporaryDirectory() as folder:
        plain = os.path.join(folder, "trace.json")
        profiled.export_chrome_trace(plain)
        with open(plain, encoding="utf-8") as trace:
            return trace.read()


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

    is_compiled = False

    def __init__(self, machine, recipe, layers, setting):
        torch = machine.torch
        if "onnx" in recipe.entry:
            raise Refused("a file of ONNX is run by ONNX Runtime alone")
        if setting["fusion"] != "none":
            raise Refused("PyTorch's eager mode fuses nothing")
        dtype = getattr(torch, DTYPES[setting["dtype"]])
        if setting["quantize"] == "int8" and not machine.is_cuda and dtype != torch.float32:
            raise Refused("PyTorch's dynamic int8 is for fp32")
        if setting["quantize"] == "int4" and machine.is_cuda:
            raise Refused("weights of four bits are measured on the CPU alone")
        if setting["quantize"] == "int4" and dtype != torch.bfloat16:  # elsewhere it has a plain loop, 80 times as long
            raise Refused("PyTorch's kernel for weights of four bits is for bf16 (--dtype bfloat16)")
        self.machine, self.recipe, self.dtype, self.notes = machine, recipe, dtype, []
        module = recipe.make(layers, dtype, machine.device)
        self.parameters = sum(parameter.numel() for parameter in module.parameters())
        if setting["quantize"] != "none":
            from headroom import nongemm_quantize
            module, self.notes = nongemm_quantize.kinds(machine.is_cuda)[setting["quantize"]](module)
        self.module = module.to(machine.device)

    def prepare(self, setting):
        if setting.get("context"):
            return EagerWork(self, *decode_step.make_step(self.machine, self.module, self.dtype, setting["batch"],
                                                          setting["context"], available_bytes(self.machine)))
        args, named = self.recipe.inputs(self.module, setting["batch"], self.dtype, self.machine.device)
        if setting["phase"] == "decode":
            call = self._decode(named)
        else:
            def call():
                return self.forward(*args, **named)
        return EagerWork(self, call)

    def forward(self, *args, **named):
        return self.module(*args, **named)

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


class EagerWork:
    """One setting of PyTorch's: its first run, which warms up, and its profiler."""

    def __init__(self, engine, call, cache_bytes=0):
        torch = engine.machine.torch
        self.call, self.cache_bytes, self.profiler, self.first = call, cache_bytes, Profiler(engine.machine), None
        routing, outputs = Routing(torch, engine.module), []
        if engine.is_compiled:
            outputs.append(call())  # it compiles
        else:
            self.first = self.profiler.once(lambda: outputs.append(call()))
        self.notes = routing.words()
        for words in ("stated", "remarks"):  # of our own modules
            self.notes += getattr(engine.module, words, list)()
        if not is_finite(torch, outputs.pop()):
            self.notes.append("its output is not finite")
        self.notes += engine.notes

    def profiled_once(self):
        return self.profiler.once(self.call)

    def end_profiling(self, taken, file):
        """`taken` are the last runs under the profiler."""
        profiler, self.profiler = self.profiler, None
        return profiler.keep(taken, file)

    def plain(self):
        return self.call


class Compiled(Eager):
    """PyTorch's Inductor: chains of operators as one kernel each, products left to the library."""

    is_compiled = True

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


class Graphed(Eager):
    """PyTorch's eager kernels, captured once and launched together by one call: a CUDA graph."""

    is_compiled = True  # its first runs are no measurement

    def __init__(self, machine, recipe, layers, setting):
        if not machine.is_cuda:
            raise Refused("CUDA graphs are for a GPU")
        super().__init__(machine, recipe, layers, setting)

    def prepare(self, setting):
        if setting.get("context") or setting["phase"] == "decode":
            raise Refused("a graph's memory is fixed, and the cache of a decode step grows")
        torch, machine = self.machine.torch, self.machine
        args, named = self.recipe.inputs(self.module, setting["batch"], self.dtype, machine.device)
        aside = torch.cuda.Stream(machine.device)
        aside.wait_stream(torch.cuda.current_stream(machine.device))
        with torch.cuda.stream(aside):  # what a library does at its first call must not be captured
            for _ in range(WARM_UPS_OF_A_GRAPH):
                self.forward(*args, **named)
        torch.cuda.current_stream(machine.device).wait_stream(aside)
        graph, profiler, outputs = torch.cuda.CUDAGraph(), Profiler(machine), []

        def capture():
            with torch.cuda.graph(graph):
                outputs.append(self.forward(*args, **named))
        profiler.once(capture)

        def call():
            graph.replay()
            return outputs[0]
        return GraphedWork(self, call, profiler)


class GraphedWork(EagerWork):
    """With the trace of its capture, which alone names the operators of the graph's kernels."""

    def __init__(self, engine, call, capture):
        super().__init__(engine, call)
        self.capture = capture

    def end_profiling(self, taken, file):
        profiled = super().end_profiling(taken, file)
        name = file.replace(".trace.json.gz", ".capture.trace.json.gz")
        typical_run.write_json(self.capture.trace(0), name)
        profiled.capture = os.path.basename(name)
        return profiled


ENGINES = {"pytorch": Eager, "compiled": Compiled, "graphed": Graphed, "onnxruntime": OnnxRuntime}


# ---- settings -----------------------------------------------------------------------------------

class Session:
    """One model, its settings in turn. A failure ends one setting, not the rest."""

    def __init__(self, machine, spec):
        self.machine, self.spec, self.engine, self.built = machine, spec, None, None
        self.decode_layers, self.peaks = spec.get("layers"), None
        self.open_jobs, self.ended = [], set()  # being visited, in the order of the settings; of settings that failed, the names
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
        """A job is visited with those before it that memory holds beside it, until all of its visits are made."""
        for setting, layers in self.jobs():
            if setting["id"] in self.ended:
                continue
            if not self.has_room_beside(setting, layers):
                self.finish()
            if not self.open_jobs:
                self.room = available_bytes(self.machine)
            self.open_beside(setting, layers)
            self.visit()
        self.finish()

    def open_beside(self, setting, layers):
        """What fails beside others is tried alone before it counts as failed: they may have had its memory."""
        try:
            self.open_jobs.append(self.open(setting, layers))
            return
        except Exception as error:  # noqa: BLE001  an engine may raise anything, and the rest goes on
            if isinstance(error, Refused) or not self.open_jobs:
                self.fail(setting, layers, error)
                return
            say(f"again, alone: {setting['id']}: {first_line(error)}")
        self.finish()  # not in the handler, where the error still holds what was made so far
        self.drop()
        self.open_beside(setting, layers)

    def visit(self):
        """Each that is not over once; what is over is reported, and leaves, in the order of the settings."""
        for job in [job for job in self.open_jobs if not job.profiled]:
            try:
                job.visit(self.file_of(job))
            except Exception as error:  # noqa: BLE001  as above
                self.open_jobs.remove(job)
                self.fail(job.setting, job.layers, error)
        while self.open_jobs and self.open_jobs[0].profiled:
            job = self.open_jobs.pop(0)
            self.report(job.setting, job.layers, self.members_of(job))

    def finish(self):
        while self.open_jobs:
            self.visit()

    def has_room_beside(self, setting, layers):
        """Whether another engine may be made beside those that are open, which takes several times the model's weights."""
        if not self.open_jobs:
            return True
        beside = self.open_jobs[0]
        if not is_held_beside(setting, layers) or not is_held_beside(beside.setting, beside.layers):
            return False
        weights = (self.whole or beside.parameters) * getattr(self.machine.torch, DTYPES[setting["dtype"]]).itemsize
        return available_bytes(self.machine) >= max(ROOM_LEFT * self.room, WEIGHTS_OF_MAKING * weights)

    def fail(self, setting, layers, error):
        """It ends the setting."""
        self.ended.add(setting["id"])
        self.drop()
        self.report_failure(setting, layers, error)

    def report_failure(self, setting, layers, error):
        if isinstance(error, (Refused, trace_module.TraceError)):
            self.report(setting, None, {"status": "refused", "reason": str(error)[:MOST_REASON]})
        else:
            self.report(setting, layers, {"status": "failed", "reason": first_line(error)})

    def jobs(self):
        """Settings with their layers, those next to each other that share a graph of ONNX Runtime; refuses the rest."""
        jobs, first_of = [], {}
        for place, setting in enumerate(self.spec["settings"]):
            try:
                depths = self.depths(setting)
            except Exception as error:  # noqa: BLE001  a configuration may be anything
                self.fail(setting, None, error)
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

    def open(self, setting, layers):
        if setting.get("context") and self.peaks is None:  # before the model fills the memory
            self.peaks = peak_rates(self.machine, getattr(self.machine.torch, DTYPES[setting["dtype"]]))
        engine = self.engine_for(setting, layers)
        work = engine.prepare(setting)
        # Between visits ONNX Runtime has two sessions.
        is_held = is_held_beside(setting, layers) and available_bytes(self.machine) >= ROOM_LEFT * self.room
        visits = nongemm_visits.VISITS if is_held else 1
        job = nongemm_visits.Job(self.machine, setting, layers, work, self.spec["seconds"], visits)
        job.parameters = engine.parameters
        return job

    def file_of(self, job):
        depth = "whole" if job.layers is None else f"{job.layers}-layers"
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{job.setting['id']}-{depth}").lstrip(".-") + ".trace.json.gz"
        return os.path.join(self.spec["traces"], name)

    def members_of(self, job):
        """REQUIRES: all of its visits are made."""
        profiled, samples = job.profiled, job.samples
        joules = None if samples.joules is None else samples.joules / len(samples.seconds)
        decode = None if not job.is_decode else {
            "quickest_seconds": min(samples.stopwatch.undisturbed),
            "profiled_waited_seconds": profiled.seconds - profiled.own_seconds,
            "undisturbed_seconds": samples.stopwatch.undisturbed_seconds(),
            "joules": joules, "cache_bytes": job.cache_bytes,
            "peak_bytes_per_second": self.peaks["bytes"], "peak_flops_per_second": self.peaks["flops"]}
        return {"status": "measured", "seconds": statistics.median(samples.seconds), "uncertainty": samples.half,
                "samples": len(samples.seconds), "decode": decode, "layers_of_model": self.recipe.layers,
                "parameters": job.parameters, "model_parameters": self.whole, "joules": joules,
                "trace": os.path.basename(self.file_of(job)), "typical_trace": profiled.typical,
                "capture_trace": profiled.capture,
                "profiled_runs": profiled.runs, "profiled_seconds": profiled.seconds, "notes": job.notes}


def is_held_beside(setting, layers):
    """Whether it may stay in memory while others are made: neither a few layers of a large model, nor a decode step, whose
    model was made to fill the memory, nor what another compilation throws away, nor a graph, which holds its memory."""
    return layers is None and not setting.get("context") and setting["engine"] not in ("compiled", "graphed")


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


def run_part(torch, spec, part):
    """In a process of its own."""
    die_with_parent()
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
            session = Session(machine, {**spec, **part})
            session.run()
    except (Refused, trace_module.TraceError) as refusal:
        for setting in part["settings"]:
            report("measured", {"id": setting["id"], "layers": None, "status": "refused",
                                "reason": str(refusal)[:MOST_REASON]})
    return 0


def run_and_exit(torch, spec, part):
    """Python's own end would wait for threads that the engines of this process began, some of them for ever."""
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        try:
            code = run_part(torch, spec, part)
        except BaseException:  # noqa: BLE001  said, and never beyond
            traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def import_for(parts):
    """What their processes would import one by one; what is not there they will miss themselves."""
    engines = {setting["engine"] for part in parts for setting in part["settings"]}
    names = {"transformers.modeling_utils"} if any("config" in part["model"] for part in parts) else set()
    if "compiled" in engines:
        names |= {"torch._inductor.compile_fx"}
    if "onnxruntime" in engines:
        names |= {"onnxruntime", "onnxruntime.quantization", "onnxscript", "torch.onnx._internal.exporter._core"}
    for name in sorted(names):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.freeze()  # no pass of the collector touches, and so copies, what all of them share


def wait_for(process, most_seconds):
    """Its exit code, 128 and the signal where one ended it, and whether its time was up."""
    late = []

    def end_it(*_):
        with contextlib.suppress(ProcessLookupError):  # it ended just now
            os.kill(process, signal.SIGKILL)
            late.append(True)

    signal.signal(signal.SIGALRM, end_it)
    signal.alarm(most_seconds)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    signal.alarm(0)
    return (code if code >= 0 else 128 - code), bool(late)


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
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # CUDA, once begun, does not live on in a fork
    try:
        import torch
    except ImportError as error:
        say(f"PyTorch cannot be imported: {error}")
        return EXIT_UNAVAILABLE
    import_for(spec["parts"])
    for place, part in enumerate(spec["parts"]):
        # A part that was killed leaves it, too, and maybe a process that still writes to it.
        with tempfile.TemporaryDirectory(prefix="headroom-", ignore_cleanup_errors=True) as folder:
            process = os.fork()
            if process == 0:
                tempfile.tempdir = os.environ["TMPDIR"] = folder
                run_and_exit(torch, spec, part)
            code, is_late = wait_for(process, part["most_seconds"])
        if code == EXIT_UNAVAILABLE and place == 0:  # the others would say the same
            return code
        report("ended", {"part": place, "exit_code": code, "is_late": is_late})
    return 0


if __name__ == "__main__":
    sys.exit(main())
