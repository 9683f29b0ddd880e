"""Traces a user's module into a graph of operators, on fake tensors: `headroom fit train.py:build`.

`build()` returns (module, inputs) or (module, inputs, loss_fn): inputs are positional (a tuple), by
name (a dict) or one tensor; loss_fn takes the module's output and gives a scalar, and may be left
out where the output is a scalar or has a `.loss`. The function and the forward pass run under
FakeTensorMode with everything on "cuda:0": no weight is made and no kernel runs. The output is
one JSON object, schema headroom.graph/1, described in docs/formats/graph.md.

The operators are those that autograd sees: composite ones are already split as they would be on a
GPU. Each knows its autograd node, the node's name and successors, what the node saves for
backward, and which values Python let go before the next operator. Saved tensors are taken through
hooks that keep nothing, so a value's "drop" is when Python's last reference goes, not when the
backward frees it.

Cost: seconds, most of it importing. Not thread-safe. The user's file is run: it is code, not data.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import importlib.util
import inspect
import json
import math
import signal
import sys
import traceback
import weakref
from pathlib import Path

from headroom import fake_cuda, memory_oracle

SCHEMA = "headroom.graph/1"
TEXT_MAX = 512 << 20  # bytes of a graph, as many as its reader takes
FRAMES_MAX = 6        # of the user's traceback, the innermost ones
EXIT_BAD_INPUT, EXIT_UNAVAILABLE = 3, 4


@dataclasses.dataclass
class Settings:
    """What the asker wants other than the function would have it; None leaves it as it is."""

    batch: int | None = None      # handed to the function, which has to take `batch`
    seq: int | None = None        # the same for `seq`
    dtype: str | None = None      # module and floating-point inputs are converted to it
    autocast: str | None = None   # the type that forward and loss run in under torch.autocast
    sdpa: str = "auto"


class TraceError(Exception):
    """What the user has to change, in one message."""


def load_builder(target):
    """The function named by `file.py:function`."""
    path, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():
        raise TraceError(f"{target}: expected FILE.py:FUNCTION")
    file = Path(path)
    if not file.is_file():
        raise TraceError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location("headroom_traced_module", file.resolve())
    if spec is None or spec.loader is None:
        raise TraceError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.resolve().parent))  # as `python FILE.py` has it, also for build()
    spec.loader.exec_module(module)
    builder = getattr(module, name, None)
    if not callable(builder):
        raise TraceError(f"{path}: no function {name!r}")
    return builder


def keywords_of(build, settings):
    """The sizes that the function takes as `batch` and `seq`, each as asked for or by default."""
    parameters = inspect.signature(build).parameters
    chosen = {}
    for name, wanted in (("batch", settings.batch), ("seq", settings.seq)):
        known = parameters.get(name)
        if known is None:
            if wanted is not None:
                raise TraceError(f"{getattr(build, '__name__', 'the function')}() takes no "
                                 f"`{name}`: let it take one, or leave --{name} out")
        elif wanted is not None:
            chosen[name] = wanted
        elif isinstance(known.default, int):
            chosen[name] = known.default
        else:
            raise TraceError(f"`{name}` has no default: give one, or pass --{name}")
    return chosen


def _to_device(thing, device, dtype):
    torch = memory_oracle.import_torch()
    from torch.utils._pytree import tree_map

    def move(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        converts = dtype is not None and leaf.is_floating_point()
        return leaf.to(device, dtype) if converts else leaf.to(device)
    return tree_map(move, thing)


def _named_inputs(inputs):
    torch = memory_oracle.import_torch()
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    if isinstance(inputs, dict) or hasattr(inputs, "items"):
        return (), dict(inputs.items())
    raise TraceError(f"build() returned inputs of type {type(inputs).__name__}; "
                     "a tensor, a tuple or a dict is expected")


def loss_of(output, loss_fn):
    """The scalar that a training step would call backward on."""
    torch = memory_oracle.import_torch()
    loss = loss_fn(output) if loss_fn is not None else getattr(output, "loss", None)
    if loss is None and isinstance(output, torch.Tensor) and output.numel() == 1:
        loss = output
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise TraceError("the module gives no loss: return (module, inputs, loss_fn) from build(), "
                         "or a module whose output is a scalar or has a .loss")
    return loss


class GraphBuilder:
    """Values, storages and operators as they come; see docs/formats/graph.md for the meaning.

    Invariant: it holds weak references to tensors alone, so a drop is seen when it happens.
    """

    def __init__(self, paths):
        self.values, self.storages, self.operators = [], [], []
        self._paths = paths
        self._ids, self._references, self._storage_ids = {}, {}, {}
        self._saved_by_node, self._known_nodes = {}, set()
        self._pending = None

    def value(self, tensor):
        """The id of a tensor, new or known."""
        known = self._ids.get(id(tensor))
        if known is not None:
            return known
        number = len(self.values)
        key = id(tensor)

        def dropped(_, key=key, number=number, builder=weakref.ref(self)):
            alive = builder()
            if alive is not None:
                alive._on_drop(key, number)

        self._ids[key] = number
        self._references[number] = weakref.ref(tensor, dropped)
        self.values.append({
            "id": number, "shape": list(tensor.shape), "strides": list(tensor.stride()),
            "offset": int(tensor.storage_offset()),
            "dtype": str(tensor.dtype).removeprefix("torch."), "device": tensor.device.type,
            "storage": self._storage(tensor)})
        return number

    def _storage(self, tensor):
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._storage_ids:
            number = len(self.storages)
            self.storages.append({"id": number, "bytes": int(storage.nbytes())})
            ids = self._storage_ids
            self._storage_ids[key] = number
            self._references[("storage", number)] = weakref.ref(
                storage, lambda _, key=key: ids.pop(key, None))
        return self._storage_ids[key]

    def _on_drop(self, key, number):
        if self._ids.get(key) == number:
            del self._ids[key]
        if self.operators:
            self.operators[-1]["drops"].append(number)

    def close(self):
        """The step is over: what dies from here on is the tracer's own doing."""
        self._references.clear()

    def note_saved(self, tensor):
        """A saved-tensor hook: the node made last is the one that saves."""
        torch = memory_oracle.import_torch()
        node = torch._C._autograd._get_sequence_nr() - 1
        self._saved_by_node.setdefault(node, []).append(self.value(tensor))

    def argument(self, value):
        """An argument as JSON: a value, a scalar, or a list of either."""
        torch = memory_oracle.import_torch()
        if isinstance(value, torch.Tensor):
            return {"value": self.value(value)}
        if isinstance(value, (list, tuple)):
            return [self.argument(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)  # JSON has none: a mask's -inf
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        return str(value)

    def sources(self, args, kwargs):
        """Where gradients of these arguments travel to: value by (node, output), read before the
        operator runs, since one that works in place changes it."""
        torch = memory_oracle.import_torch()
        from torch.utils._pytree import tree_leaves
        found = {}
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None:
                found[(leaf.grad_fn._sequence_nr(), leaf.output_nr)] = self.value(leaf)
        return found

    def operator(self, function, args, kwargs, result, sources):
        torch = memory_oracle.import_torch()
        from torch.utils._pytree import tree_leaves
        sequence = torch._C._autograd._get_sequence_nr()
        names = [argument.name for argument in function._schema.arguments]
        arguments = dict(zip(names, args)) | dict(kwargs)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.operators.append({
            "op": str(function), "module": self._paths.current(),
            "args": {name: self.argument(value) for name, value in arguments.items()},
            "outputs": [self.value(tensor) for tensor in outputs], "drops": []})
        self._pending = (self.operators[-1], sequence - 1,
                         [weakref.ref(tensor) for tensor in outputs], sources)

    def settle(self):
        """Autograd attaches the node after the operator has returned, so it is read at the next."""
        if self._pending is None:
            return
        entry, sequence, references, sources = self._pending
        self._pending = None
        differentiable = {}
        for position, reference in enumerate(references):
            tensor = reference()
            node = tensor.grad_fn if tensor is not None else None
            if node is None:
                continue
            differentiable[tensor.output_nr] = position
            if "node" in entry:
                continue
            entry["node"] = node._sequence_nr()
            entry["grad_fn"] = node.name()
            entry["next"] = [self._edge(successor, index)
                             for successor, index in node.next_functions]
            entry["edges"] = [self._edge_value(entry, successor, index, sources)
                              for successor, index in node.next_functions]
            entry["saves"] = self._saved_by_node.get(sequence, [])
            self._known_nodes.add(entry["node"])
        if "node" in entry:
            entry["node_outputs"] = [differentiable.get(i)
                                     for i in range(max(differentiable) + 1)]

    def _edge_value(self, entry, node, index, sources):
        """The argument whose gradient an input of the node is."""
        if node is None:
            return None
        variable = getattr(node, "variable", None)
        if variable is not None:
            return self.value(variable)
        key = (node._sequence_nr(), index)
        if key not in sources or key[0] not in self._known_nodes:
            raise TraceError(f"in module {entry['module']!r} the gradient of {entry['op']} goes to "
                             f"{node.name()}, which is not an operator (a function of "
                             "torch.autograd.Function, or a write into a view); that cannot be "
                             "traced yet")
        return sources[key]

    def _edge(self, node, index):
        if node is None:
            return None
        variable = getattr(node, "variable", None)
        if variable is not None:
            return {"value": self.value(variable)}
        return {"node": node._sequence_nr(), "input": index}


def _recorder(builder, answers, paths):
    """The mode that feeds a builder; made here, since its base class needs torch."""
    memory_oracle.import_torch()
    from torch.utils._python_dispatch import TorchDispatchMode
    from headroom.plain_tensor_rules import EXPANSIONS

    class GraphMode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function.namespace in ("prim", "profiler"):
                return answers.run(function, args, kwargs, paths.current())
            builder.settle()
            sources = self._outer | builder.sources(args, kwargs)
            body = EXPANSIONS.get(function)
            if body is not None:
                self._outer = sources
                try:
                    with self:
                        return body(*args, **(kwargs or {}))
                finally:
                    self._outer = {}
            result = answers.run(function, args, kwargs, paths.current())
            builder.operator(function, args, kwargs or {}, result, sources)
            return result

        _outer = {}

    return GraphMode()


def _attach_backward(builder, base, recipes):
    """Gives each operator what its node did in the run with a backward."""
    for entry in builder.operators:
        recipe = recipes.get(entry["node"] - base) if "node" in entry else None
        if recipe is None:
            continue
        if recipe["name"] != entry["grad_fn"]:
            raise TraceError(f"two runs of the module differ: {entry['grad_fn']} in the first is "
                             f"{recipe['name']} in the second")
        entry["backward"] = {"blocks": recipe["blocks"], "results": recipe["results"]}


def _renumber(builder):
    """Node numbers count from 0 in order of creation, so that a trace repeats itself exactly."""
    numbers = sorted({entry["node"] for entry in builder.operators if "node" in entry})
    known = {number: index for index, number in enumerate(numbers)}
    for entry in builder.operators:
        if "node" not in entry:
            continue
        entry["node"] = known[entry["node"]]
        for edge in entry["next"]:
            if edge is not None and "node" in edge:
                edge["node"] = known.get(edge["node"], -1)


def _module_values(module, builder):
    parameters, seen = [], {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        entry = {"name": name, "value": builder.value(parameter),
                 "trainable": parameter.requires_grad}
        if id(parameter) in seen:
            entry["tied_to"] = seen[id(parameter)]
        seen.setdefault(id(parameter), name)
        parameters.append(entry)
    buffers = [{"name": name, "value": builder.value(buffer)}
               for name, buffer in module.named_buffers()]
    return parameters, buffers


def _autocast(name):
    torch = memory_oracle.import_torch()
    return torch.autocast("cuda", dtype=getattr(torch, name)) if name else contextlib.nullcontext()


class _Step:
    """A module, its inputs and its loss on the device, ready to run forward any number of times."""

    def __init__(self, made, settings, train):
        torch = memory_oracle.import_torch()
        if not isinstance(made, tuple) or len(made) not in (2, 3):
            raise TraceError("build() has to return (module, inputs) or (module, inputs, loss_fn)")
        if not isinstance(made[0], torch.nn.Module):
            raise TraceError("what build() returns first has to be a torch.nn.Module, not "
                             f"{type(made[0]).__name__}")
        dtype = getattr(torch, settings.dtype) if settings.dtype else None
        self.module = made[0].to("cuda:0") if dtype is None else made[0].to("cuda:0", dtype)
        self.loss_fn = made[2] if len(made) == 3 else None
        self.args, self.kwargs = _to_device(_named_inputs(made[1]), "cuda:0", dtype)
        self.autocast, self.train = settings.autocast, train
        if not train:
            self.module.eval()

    def inputs(self, builder):
        torch = memory_oracle.import_torch()
        named = [(str(i), t) for i, t in enumerate(self.args)] + list(self.kwargs.items())
        return [{"name": name, "value": builder.value(t)} for name, t in named
                if isinstance(t, torch.Tensor)]

    def forward(self):
        with _autocast(self.autocast):
            output = self.module(*self.args, **self.kwargs)
            return loss_of(output, self.loss_fn) if self.train else output


def trace(build, source="", train=True, settings=None):
    """Calls `build`, traces the forward and the loss; returns the headroom.graph/1 object."""
    settings = settings or Settings()
    torch = memory_oracle.import_torch()
    from torch._subclasses.fake_tensor import (DataDependentOutputException,
                                               DynamicOutputShapeException, FakeTensorMode)
    from headroom.allocation_recorder import DataAnswers, DataDependentShape, ModulePaths
    from headroom.attention_backends import force_sdpa
    from headroom.plain_tensor_rules import register_kernels
    register_kernels()
    with contextlib.ExitStack() as stack:
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(force_sdpa(settings.sdpa))
        stack.enter_context(memory_oracle.as_on_a_gpu())
        stack.enter_context(memory_oracle.module_apply_for_fakes())
        stack.enter_context(torch.set_grad_enabled(train))
        stack.enter_context(memory_oracle.attention_in_parts())
        keywords = keywords_of(build, settings)
        with memory_oracle.made_without_data():
            made = build(**keywords)
        step = _Step(made, settings, train)
        stack.enter_context(memory_oracle.as_on_a_gpu())  # again, for what build() has imported
        paths = ModulePaths(step.module)
        builder, answers = GraphBuilder(paths), DataAnswers()
        parameters, buffers = _module_values(step.module, builder)
        inputs = step.inputs(builder)
        hooks = torch.autograd.graph.saved_tensors_hooks(builder.note_saved, lambda _: None)
        recipes, base = {}, torch._C._autograd._get_sequence_nr()
        try:
            with paths, hooks, _recorder(builder, answers, paths):
                result = step.forward()
            builder.settle()
            finished = _finished_values(builder, result)
            if train:
                recipes = _backward_recipes(step)
        except (DataDependentOutputException, DynamicOutputShapeException,
                DataDependentShape) as error:
            raise TraceError(f"in module {paths.current()!r} the step depends on data that fake "
                             f"tensors do not have ({error})") from error
        _attach_backward(builder, base, recipes)
        _renumber(builder)
        graph = {"schema": SCHEMA, "source": source, "versions": memory_oracle.versions(),
                 "keywords": keywords, "forward_only": not train,
                 "modules": [{"name": name, "class": type(part).__name__}
                             for name, part in step.module.named_modules()],
                 "parameters": parameters, "buffers": buffers, "inputs": inputs}
        return graph | finished | {"data_answers": memory_oracle.answers_given(answers)}


def _backward_recipes(step):
    """The step once more, without hooks and with its backward."""
    from headroom.allocation_recorder import DataAnswers
    from headroom.backward_recipes import BackwardRecipes
    with BackwardRecipes(DataAnswers()) as recorder:
        loss = step.forward()
        if loss.grad_fn is None:
            raise TraceError("no parameter gets a gradient: nothing that requires one reaches the "
                             "loss")
        recorder.run(loss)
    return recorder.recipes


def _finished_values(builder, result):
    """What the first run saw; from here on the tracer's own doing is not recorded."""
    from torch.utils._pytree import tree_leaves
    torch = memory_oracle.import_torch()
    outputs = [builder.value(t) for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
    builder.close()
    return {"storages": builder.storages, "values": builder.values,
            "operators": builder.operators, "outputs": outputs}


def _end_with_parent():
    """A trace that nobody waits for any more ends: prctl(PR_SET_PDEATHSIG), Linux alone."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def describe_failure(error, file):
    """What went wrong in the user's code: the error, then where, the innermost frames last."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).parent != Path(__file__).parent]
    theirs = [frame for frame in own if frame.filename == str(Path(file).resolve())]
    chosen = (theirs or own)[-FRAMES_MAX:]
    what = "".join(traceback.format_exception_only(error)).strip().splitlines()
    lines = [f"headroom: {what[0] if what else type(error).__name__}", *what[1:FRAMES_MAX]]
    return lines + [f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
                    for frame in chosen]


def _settings_from(arguments):
    fields = dataclasses.fields(Settings)
    return Settings(**{field.name: getattr(arguments, field.name) for field in fields})


def _traced_text(arguments):
    graph = trace(load_builder(arguments.target), arguments.target,
                  not arguments.forward_only, _settings_from(arguments))
    text = json.dumps(graph)
    if len(text) > TEXT_MAX:
        raise TraceError(f"the graph has {len(text)} bytes, more than the {TEXT_MAX} that its "
                         "reader takes: trace fewer layers")
    return text


def main(argv=None):
    """0, or EXIT_BAD_INPUT or EXIT_UNAVAILABLE with `headroom: ` and what to change on stderr."""
    parser = argparse.ArgumentParser(prog="python -m headroom.trace_module",
                                     description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("target", help="FILE.py:FUNCTION")
    parser.add_argument("--out", default="-")
    parser.add_argument("--forward-only", action="store_true",
                        help="as in inference: eval(), no loss, no gradients")
    parser.add_argument("--batch", type=int, help="for a function that takes `batch`")
    parser.add_argument("--seq", type=int, help="for a function that takes `seq`")
    types = ("bfloat16", "float16", "float32")
    parser.add_argument("--dtype", choices=types, help="convert module and inputs to it")
    parser.add_argument("--autocast", choices=types[:2], help="run under torch.autocast")
    parser.add_argument("--sdpa", default="auto")
    arguments = parser.parse_args(argv)
    try:
        memory_oracle.import_torch()
        text = _traced_text(arguments)
    except fake_cuda.FakeCudaUnavailable as error:
        print(f"headroom: {error}", file=sys.stderr)
        return EXIT_UNAVAILABLE
    except TraceError as error:
        print(f"headroom: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except (Exception, SystemExit) as error:
        file = arguments.target.rpartition(":")[0]
        print("\n".join(describe_failure(error, file)), file=sys.stderr)
        return EXIT_BAD_INPUT
    if arguments.out == "-":
        print(text)
    else:
        Path(arguments.out).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    _end_with_parent()
    sys.exit(main())
