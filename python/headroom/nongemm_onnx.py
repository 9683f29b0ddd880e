"""ONNX Runtime as an engine of `headroom bench nongemm`: export, fusion by its levels, int8 and int4 by its own tools.

The graph comes of torch.onnx's exporter, is written by a module of ours that the exporter cannot follow, or is the user's
file; it has the shapes of the setting, and lives in a temporary folder for as long as the engine. Fusion is the session's
level of graph optimization, with one optimizer left out where that is asked for; int8 is onnxruntime.quantization's
quantize_dynamic, int4 of weights alone its MatMulNBitsQuantizer. A profile is that of the engine, cut to its quickest run,
and a typical run composed of several (typical_run.py).
"""

import contextlib
import io
import json
import os
import tempfile
import time
import warnings

from headroom import nongemm_experts, nongemm_onnx_file, nongemm_shared_weights, onnx_rewriting, typical_run
from headroom.nongemm_models import DTYPES, Refused
from headroom.waiting import Turns

LEVELS = {"none": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "all": "ORT_ENABLE_ALL"}
RUN, EXECUTION = "model_run", "SequentialExecutor::Execute"
WITH_GRAPHS = ("If", "Loop", "Scan")  # nodes that run others
FLOATS_OF_NUMPY = ("tensor(float)", "tensor(float16)", "tensor(double)")


def load_library():
    try:
        import onnx  # noqa: F401  (quantization and the exporter need both)
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise Refused(f"not available: needs onnxruntime, onnx and onnxscript ({error})") from error
    return onnxruntime


class Graph:
    """A model as a file of ONNX, and its inputs; made once for all of its settings of one type and batch."""

    def __init__(self, dtype):
        self.folder = tempfile.TemporaryDirectory(prefix="headroom-onnx-")
        self.dtype, self.parameters, self.paths, self.notes = dtype, 0, {}, {"none": []}
        self.failures = {}  # of what could not be quantized: no other level of fusion tries it again

    def path(self, quantize):
        if quantize not in self.paths:
            if self.dtype.itemsize != 4:  # fp32's, of all that the settings have
                raise Refused("its tools quantize what is exported in fp32")
            if quantize in self.failures:
                raise self.failures[quantize]
            path = os.path.join(self.folder.name, f"{quantize}.onnx")
            try:
                self.notes[quantize] = self.notes["none"] + getattr(self, f"_{quantize}")(path)
            except Exception as error:
                self.failures[quantize] = error
                raise
            self.paths[quantize] = path
        return self.paths[quantize]

    def _int8(self, path):
        import onnx
        from headroom import nongemm_onnx_int8
        plain = os.path.join(self.folder.name, "plain.onnx")
        model = onnx.load(self.in_folder(), load_external_data=False)
        del model.graph.value_info[:]  # of weights that quantization transposes, which then contradicts it
        nongemm_shared_weights.take_as_they_lie(model)
        onnx.save(model, plain)
        try:
            nongemm_onnx_int8.quantize(plain, path)
        except Exception as error:
            if type(error).__name__ != "EncodeError":  # protobuf's, by which nothing says how large
                raise
            raise Refused("quantizing makes a message of the graph that protobuf does not write, as of 2 GB or more") from error
        return []

    def _int4(self, path):
        import onnx
        from headroom.nongemm_quantize import GROUP, notes_of_share
        try:
            from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
        except ImportError as error:
            raise Refused(f"this ONNX Runtime does not quantize to four bits: {error}") from error
        quantizer = MatMulNBitsQuantizer(onnx.load(self.paths["none"]), block_size=GROUP, is_symmetric=True)
        quantizer.process()
        held = {node.input[1]: sizes["K"] * sizes["N"] for node, sizes in products_of_few_bits(quantizer.model.model)}
        notes = notes_of_share("int4", sum(held.values()), self.parameters, "ONNX Runtime's tool takes MatMul by a weight")
        quantizer.model.save_model_to_file(path, use_external_data_format=True)
        return notes

    def in_folder(self):
        """A file of it whose weights are in the folder."""
        return self.paths["none"]


class Exported(Graph):
    """Of a module, which the exporter follows or which writes its graph itself."""

    def __init__(self, torch, recipe, layers, batch, dtype):
        super().__init__(dtype)
        module = recipe.make(layers, dtype)
        self.parameters = sum(parameter.numel() for parameter in module.parameters())
        self.args, self.named = recipe.inputs(module, batch, dtype, torch.device("cpu"))
        if hasattr(getattr(module, "config", None), "use_cache"):
            module.config.use_cache = False  # caches are objects, which no graph has
        self.paths["none"] = os.path.join(self.folder.name, "model.onnx")
        self.notes["none"] = nongemm_experts.make_even(module) + getattr(module, "stated", list)()
        if hasattr(module, "onnx_model"):  # it writes its graph itself
            if dtype != torch.float32:
                raise Refused("its graph is written in fp32 alone")
            import onnx
            onnx.save(module.onnx_model(**self.named), self.paths["none"], save_as_external_data=True,
                      location="model.onnx.data")
        else:
            self._export(torch, module)

    def _export(self, torch, module):
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            try:
                with onnx_rewriting.looking_at_operators_first():
                    program = torch.onnx.export(module, tuple(self.args), kwargs=self.named, dynamo=True, verbose=False)
            except torch.onnx.OnnxExporterError as error:
                raise Refused(f"PyTorch's exporter: {cause_of(error)}") from error
            stated = nongemm_shared_weights.share(program.model, self.folder.name)
            self.notes["none"] += stated
            if stated:
                import onnx_ir
                onnx_ir.save(program.model, self.paths["none"])  # what is small is in the graph
            else:
                program.save(self.paths["none"], external_data=True)

    def feeds(self, inputs):
        """The arguments by the graph's names: the exporter keeps their order, and drops what it folds."""
        names = [given.name for given in inputs]
        known = {name: engine_value(value) for name, value in self.named.items()}
        if all(name in known for name in names):
            return {name: known[name] for name in names}
        values = [value for value in self.args if hasattr(value, "numpy")]
        if len(values) != len(names):
            raise Refused("the exported graph takes other inputs than the module")
        return dict(zip(names, map(engine_value, values)))


def cause_of(error):
    """What the exporter says first is how far it came."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class Given(Graph):
    """A user's own file, which stays as it is."""

    def __init__(self, torch, recipe, layers, batch, dtype):
        super().__init__(dtype)
        self.path_given, self.batch, self.shapes = recipe.entry["onnx"], batch, recipe.entry["shapes"]
        self.model = nongemm_onnx_file.read(self.path_given)
        self.parameters, held = nongemm_onnx_file.weights_of(self.model)
        if getattr(torch, DTYPES[held]) != dtype:
            raise Refused(f"the file's weights are {held}, and it is run as it is: --dtype {DTYPES[held]}")
        self.paths["none"] = os.path.abspath(self.path_given)

    def feeds(self, inputs):
        return nongemm_onnx_file.feeds(self.model, inputs, self.shapes, self.batch)

    def in_folder(self):
        return nongemm_onnx_file.with_weights_in(self.path_given, self.folder.name)


def products_of_few_bits(model):
    """Nodes with their sizes."""
    for node in model.graph.node:
        if node.op_type == "MatMulNBits":
            yield node, {attribute.name: attribute.i for attribute in node.attribute}


def engine_value(tensor):
    """numpy has no bf16, the engine has."""
    import onnx
    import onnxruntime
    import torch
    if tensor.dtype == torch.bfloat16:
        bits = tensor.view(torch.int16).numpy()
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy())


class Graphs:
    """The graph that was asked for last: its settings follow one another."""

    def __init__(self):
        self.key, self.graph = None, None

    def get(self, torch, recipe, *setting):
        if self.key != (id(recipe), *setting):
            self.key, self.graph = None, None
            self.graph = (Given if "onnx" in recipe.entry else Exported)(torch, recipe, *setting)
            self.key = (id(recipe), *setting)
        return self.graph


GRAPHS = Graphs()


class OnnxRuntime:
    """One exported model at one level of fusion."""

    def __init__(self, machine, recipe, layers, setting):
        self.library = load_library()
        if setting["phase"] == "decode":
            raise Refused("decode steps are measured in PyTorch alone")
        self.machine, self.dtype = machine, getattr(machine.torch, DTYPES[setting["dtype"]])
        graph = GRAPHS.get(machine.torch, recipe, layers, setting["batch"], self.dtype)
        self.parameters, self.folder = graph.parameters, graph.folder
        self.path, self.fusion = graph.path(setting["quantize"]), setting["fusion"]
        self.notes = graph.notes[setting["quantize"]]
        apart = tempfile.mkdtemp(dir=self.folder.name)  # profiles of two sessions of one second have one name
        self.session = self.make_session(os.path.join(apart, "profile"))
        self.feeds = graph.feeds(self.session.get_inputs())

    def make_session(self, profile_prefix):
        options = self.library.SessionOptions()
        level, _, left_out = self.fusion.partition("-")  # "all-GeluFusion": all but that
        options.graph_optimization_level = getattr(self.library.GraphOptimizationLevel, LEVELS[level])
        options.intra_op_num_threads = 0 if self.machine.is_cuda else self.machine.units
        options.log_severity_level = 4
        if profile_prefix:
            options.enable_profiling = True
            options.profile_file_prefix = profile_prefix
        provider = "CUDAExecutionProvider" if self.machine.is_cuda else "CPUExecutionProvider"
        if provider not in self.library.get_available_providers():
            raise Refused(f"this ONNX Runtime has no {provider}")
        try:
            return self.library.InferenceSession(self.path, options, providers=[provider],
                                                 disabled_optimizers=[left_out] if left_out else None)
        except Exception as error:
            if type(error).__name__ != "NotImplemented":  # its class has no public name
                raise
            raise Refused(f"the engine: {str(error).rpartition(' : ')[2]}") from error

    def prepare(self, setting):
        return OnnxWork(self, self.notes)


class OnnxWork:
    """One setting of it: a session that profiles, and one that does not."""

    cache_bytes = 0

    def __init__(self, engine, notes):
        self.engine, self.profiling, self.quiet, self.turns = engine, engine.session, None, Turns()
        engine.session = None  # two sessions of a large model are one too many
        output = []
        self.first = self.profiled_once(output.extend)
        import numpy
        is_finite = all(numpy.isfinite(value.numpy()).all() for value in output
                        if value.is_tensor() and value.data_type() in FLOATS_OF_NUMPY)
        self.notes = notes + ([] if is_finite else ["its output is not finite"])

    def profiled_once(self, take=lambda output: None):
        """Seconds of a run, and those of them that are its own."""
        waiting = self.engine.machine.waiting
        waited, start = waiting.seconds(), time.perf_counter()
        output = self.profiling.run_with_ort_values(None, self.engine.feeds)
        taken = time.perf_counter() - start
        own = taken - (waiting.seconds() - waited)
        take(output)
        return taken, own

    def end_profiling(self, taken, file):
        """`taken` are the last runs under the profiler."""
        turn_us, path = self.turns.mean_us(), self.profiling.end_profiling()
        self.profiling = None
        with open(path, encoding="utf-8") as profile:
            runs = runs_of(json.load(profile))[-len(taken):]
        os.remove(path)
        return typical_run.keep(taken, typical_run.Reading(runs.__getitem__, marks_of_run, lambda _, events: events),
                                self.engine.machine, turn_us, file)

    def plain(self):
        """A run of a session that notes nothing, warm."""
        if self.quiet is None:
            self.quiet = self.engine.make_session(None)
            self.quiet.run_with_ort_values(None, self.engine.feeds)
        return lambda: self.quiet.run_with_ort_values(None, self.engine.feeds)


def marks_of_run(run):
    return typical_run.marks_of(typical_run.tree_by_order(run, runs_others))


def runs_others(event):
    return event["name"] in (RUN, EXECUTION) or event.get("args", {}).get("op_name") in WITH_GRAPHS


def runs_of(events):
    """The events of each run of a profile."""
    runs, spans = [], [event for event in events if "dur" in event]
    for run in [event for event in events if event.get("name") == RUN]:
        start, end = run["ts"], typical_run.end_of(run)
        runs.append([event for event in spans if start <= event["ts"] and typical_run.end_of(event) <= end])
    return runs
