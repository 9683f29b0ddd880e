"""Records which storages eager PyTorch makes and lets go, operator by operator, in order.

What it is: a TorchDispatchMode. It sees every aten operator of forward, backward and optimizer
below autograd, notes the storages that its outputs own and that were not there before, and learns
of a storage's end by a weak reference to it. When to use: wrap a step that runs on fake or real
tensors. Thread-safety: none; autograd multithreading must be off, or the backward runs outside
the mode. Cost: some 20 us an operator. Importing this imports torch: call fake_cuda.install()
before.

Invariants
1. The recorder holds no strong reference to a tensor, a storage, an autograd node or an argument
   tuple once __torch_dispatch__ has returned; so it prolongs no lifetime.
2. Every counted storage is in `_live` exactly while it exists; live_bytes is the sum over `_live`.
3. An event's `live` is taken after the operator's allocations and before the releases that follow
   it; `frees` are the releases between the end of this operator and the start of the next one.
4. Bytes are as requested (storage.nbytes()), never rounded.
"""

import weakref

import torch
from torch._subclasses.fake_tensor import (DataDependentOutputException,
                                           DynamicOutputShapeException)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from headroom.plain_tensor_rules import expansion, in_place_variant

SCHEMA = "headroom.events/1"


class _Storage:
    """What is remembered of one live storage."""

    __slots__ = ("reference", "nbytes", "event_index", "identity")

    def __init__(self, reference, nbytes, event_index, identity):
        self.reference = reference
        self.nbytes = nbytes
        self.event_index = event_index
        self.identity = identity


class ModulePaths:
    """Knows which module is running, by wrapping torch.nn.Module.__call__ while it is entered.

    Hooks would make every call take another path through Module._call_impl; a wrapper adds one
    frame that dies with the call, so lifetimes stay as they were.
    """

    def __init__(self, model=None):
        self._names = {}
        self._parameters = {}
        self._stack = []
        self._original = None
        if model is not None:
            self.learn(model)

    def learn(self, model):
        for name, module in model.named_modules():
            self._names[id(module)] = name
        for name, parameter in model.named_parameters():
            self._parameters[id(parameter)] = name

    def current(self):
        return self._stack[-1] if self._stack else ""

    def running(self):
        return bool(self._stack)

    def parameter_name(self, parameter):
        return self._parameters.get(id(parameter), "")

    def __enter__(self):
        original = torch.nn.Module.__call__
        names, stack = self._names, self._stack

        def call(module, *args, **kwargs):
            name = names.get(id(module))
            stack.append(name if name is not None else (stack[-1] if stack else ""))
            try:
                return original(module, *args, **kwargs)
            finally:
                stack.pop()

        self._original = original
        torch.nn.Module.__call__ = call
        return self

    def __exit__(self, *_):
        torch.nn.Module.__call__ = self._original
        return False


class DataDependentShape(ValueError):
    """A size that only real data could tell."""


class DataAnswers:
    """What a fake tensor cannot know: values that Python code asks for, and data-dependent sizes.

    By default a check of values holds (no padding, nothing out of range), a number is 1 and an
    index 0; `rows` answers how many elements of a mask are set, and has no default. Each answer
    is counted in `given`, so that a trace says what it rests on.
    """

    def __init__(self):
        self.given = {}

    def scalar(self, tensor, module):
        if tensor.dtype == torch.bool:
            answer = True
        else:
            answer = 1.0 if tensor.dtype.is_floating_point else 0
        self.note("item", module, tensor, answer)
        return answer

    def rows(self, tensor, module):
        raise DataDependentShape(f"the shape of nonzero() in module {module!r} depends on data")

    def run(self, function, args, kwargs, module):
        """The operator itself; where its result depends on data that is not there, the answer."""
        try:
            return function(*args, **(kwargs or {}))
        except DataDependentOutputException:
            if function is not torch.ops.aten._local_scalar_dense.default:
                raise
            return self.scalar(args[0], module)
        except DynamicOutputShapeException:
            if function is not torch.ops.aten.nonzero.default:
                raise
            rows = self.rows(args[0], module)
            return torch.empty((args[0].dim(), rows), dtype=torch.int64,
                               device=args[0].device).t()

    def note(self, kind, module, tensor, answer):
        key = (kind, module, str(tensor.dtype).removeprefix("torch."), repr(answer))
        self.given[key] = self.given.get(key, 0) + 1


class BalancedExperts(DataAnswers):
    """Every expert is hit and gets its share of the tokens; the first ones take what is left
    over. A model that looks for the sequences with a label (DeBERTa) finds one for each."""

    def __init__(self, experts_by_module):
        super().__init__()
        self._experts = experts_by_module
        self._turn = {}

    def scalar(self, tensor, module):
        if module in self._experts and tensor.dtype == torch.bool:
            self.note("item", module, tensor, False)
            return False  # "is this the index one past the last expert?"
        return super().scalar(tensor, module)

    def rows(self, tensor, module):
        count = self._experts.get(module)
        is_whole_model = module in ("", "base_model.model")  # peft's name for it
        if count is None and not (is_whole_model and tensor.dim() == 1):
            return super().rows(tensor, module)
        if count is None:
            answer = tensor.numel()
        elif tensor.dim() == 1:
            self._turn[module] = 0
            answer = count
        else:
            turn = self._turn.get(module, 0)
            self._turn[module] = turn + 1
            chosen = tensor.numel()
            answer = chosen // count + (1 if turn % count < chosen % count else 0)
        self.note("nonzero", module, tensor, answer)
        return answer


class AllocationRecorder(TorchDispatchMode):
    """Events of the operators that run inside it. `phase` is set by who drives the step."""

    def __init__(self, device_type="cuda", module_paths=None):
        super().__init__()
        self.events = []
        self.phase = "other"
        self.live_bytes = 0
        self.peak_bytes = 0
        self.peak_event = -1
        self.peak_live = []
        self.answers = DataAnswers()
        self.plain_rules = True
        self.passed_on = ()  # classes of tensors whose operators run on others
        self._device_type = device_type
        self._live = {}
        self._next_identity = 0
        self._in_operator = False
        self._paths = module_paths if module_paths is not None else ModulePaths()
        self._owner_of_node = {}
        self._last_sequence = 0
        self._peak_pending = False

    # -- storages ---------------------------------------------------------------------------------

    def adopt(self, tensor, event=None):
        """Counts the tensor's storage if it is new and on the device; returns its bytes or None."""
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != self._device_type:
            return None
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._live:
            return None
        nbytes = int(storage.nbytes())
        identity = self._next_identity
        self._next_identity += 1

        def released(_, key=key, recorder=weakref.ref(self)):
            alive = recorder()
            if alive is not None:
                alive._on_release(key)

        self._live[key] = _Storage(weakref.ref(storage, released), nbytes,
                                   len(self.events) - 1, identity)
        self.live_bytes += nbytes
        if event is not None:
            event["allocs"].append(nbytes)
            event["alloc_ids"].append(identity)
        return nbytes

    def storage_bytes(self, tensor):
        """(identity, bytes) of a tensor's live storage, or None where it is not counted."""
        record = self._live.get(tensor.untyped_storage()._cdata)
        return None if record is None else (record.identity, record.nbytes)

    def _on_release(self, key):
        if self._peak_pending:
            self._take_peak()
        record = self._live.pop(key, None)
        if record is None:
            return
        self.live_bytes -= record.nbytes
        if not self.events:
            self._open_event("start", "")
        event = self.events[-1]
        event["frees"].append(record.nbytes)
        event["free_ids"].append(record.identity)

    def _take_peak(self):
        """Who lives at the peak, as (event index, bytes, identity): made when it is about to
        end."""
        self._peak_pending = False
        self.peak_live = [(s.event_index, s.nbytes, s.identity) for s in self._live.values()]

    def _after_growth(self, index):
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes = self.live_bytes
            self.peak_event = index
            self._peak_pending = True

    # -- operators --------------------------------------------------------------------------------

    def mark(self, name):
        """Adds an event without an operator, so that a boundary of phases can be found again."""
        self._open_event(name, "")

    def _open_event(self, name, module):
        event = {"op": name, "module": module, "phase": self.phase, "allocs": [], "frees": [],
                 "live": self.live_bytes, "alloc_ids": [], "free_ids": []}
        self.events.append(event)
        return event

    def _module_of_operator(self):
        sequence = torch._C._autograd._get_sequence_nr()
        node = torch._C._current_autograd_node()
        if node is None or self._paths.running():
            module = self._paths.current()
            for number in range(self._last_sequence, sequence):
                self._owner_of_node[number] = module
            self._last_sequence = max(self._last_sequence, sequence)
            return module
        self._last_sequence = max(self._last_sequence, sequence)
        variable = getattr(node, "variable", None)
        if variable is not None:
            return self._paths.parameter_name(variable)
        number = node._sequence_nr()
        return self._owner_of_node.get(number, "")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if self.passed_on and any(issubclass(t, self.passed_on) for t in types):
            return NotImplemented
        if function.namespace in ("prim", "profiler"):
            return function(*args, **(kwargs or {}))  # no tensor is made
        body = expansion(function, args) if self.plain_rules else None
        if body is not None:
            with self:
                return body(*args, **(kwargs or {}))
        in_place = in_place_variant(function, args, kwargs) if self.plain_rules else None
        function = in_place or function
        event = self._open_event(str(function), self._module_of_operator())
        index = len(self.events) - 1
        result = self.answers.run(function, args, kwargs, self._paths.current())
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and self._is_new(leaf, args):
                self.adopt(leaf, event)
        if function is torch.ops.aten.resize_.default:
            self._note_resize(args[0], event)
        event["live"] = self.live_bytes
        self._after_growth(index)
        return result

    def _is_new(self, tensor, args):
        """False for a view of a storage that was made before the recorder watched."""
        key = tensor.untyped_storage()._cdata
        return key not in self._live and not any(
            isinstance(a, torch.Tensor) and a.untyped_storage()._cdata == key
            for a in tree_leaves(args))

    def _note_resize(self, tensor, event):
        storage = tensor.untyped_storage()
        record = self._live.get(storage._cdata)
        if record is None or record.nbytes == storage.nbytes():
            return
        grown = int(storage.nbytes())
        event["allocs"].append(grown)
        event["alloc_ids"].append(record.identity)
        event["frees"].append(record.nbytes)
        event["free_ids"].append(record.identity)
        self.live_bytes += grown - record.nbytes
        record.nbytes = grown

    def __exit__(self, *exception):
        outcome = super().__exit__(*exception)
        if self._peak_pending:
            self._take_peak()
        return outcome


def _never_unpacked(_):
    raise RuntimeError("the graph of a counting run has no saved tensors to run backward with")


class SavedForBackward:
    """Counts the unique storages that autograd's saved-tensor hooks see, by module.

    Hooks replace how a tensor is saved, so the counting run is never the run whose events are
    recorded, and its graph must not be run backward: nothing is kept (an output that is kept
    through a hook would hold its own node, and the graph would never die). Storages of parameters
    are kept apart. Inside a checkpointed region the region's own hooks are innermost and these
    see nothing, as PyTorch defines it.
    """

    def __init__(self, recorder, parameters, module_paths):
        self._recorder = recorder
        self._parameter_keys = {p.untyped_storage()._cdata for p in parameters}
        self._paths = module_paths
        self._seen = set()
        self.bytes_excluding_parameters = 0
        self.bytes_including_parameters = 0
        self.by_module = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _never_unpacked)

    def _pack(self, tensor):
        found = self._recorder.storage_bytes(tensor)
        if found is None or found[0] in self._seen:
            return
        identity, nbytes = found
        self._seen.add(identity)
        self.bytes_including_parameters += nbytes
        if tensor.untyped_storage()._cdata not in self._parameter_keys:
            self.bytes_excluding_parameters += nbytes
            module = self._paths.current()
            self.by_module[module] = self.by_module.get(module, 0) + nbytes

    def __enter__(self):
        self._hooks.__enter__()
        return self

    def __exit__(self, *exception):
        return self._hooks.__exit__(*exception)
