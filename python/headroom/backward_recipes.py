"""What each autograd node allocates when it runs backward: its recipe.

A second run of a traced step, this time with its backward. For every node that ran: the storages
that it made and let go while it ran (the cast or sum to its input's type and shape included, which
the engine does right after), and what became of its results: the gradient it was handed, a view
of it, or one of those storages. With the recipes a step can be replayed without a formula for any
operator. Thread-safety: none; autograd multithreading has to be off. Cost: as the oracle's, some
20 us an operator. Importing this imports torch: call fake_cuda.install() before.

Nodes are named by their sequence number, counted from the start of the forward pass, which is the
same in every run of the same step.
"""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from headroom.plain_tensor_rules import EXPANSIONS, in_place_variant


class BackwardRecipes(TorchDispatchMode):
    """Enter it, run the forward pass, then `run(loss)`; the recipes are in `recipes` by number."""

    def __init__(self, answers):
        super().__init__()
        self.recipes = {}
        self._answers = answers
        self._base = 0
        self._current = None
        self._live = {}

    def __enter__(self):
        self._base = torch._C._autograd._get_sequence_nr()
        return super().__enter__()

    def run(self, loss):
        """The backward pass of a scalar, recorded."""
        self._watch(loss.grad_fn)
        before = torch.autograd.is_multithreading_enabled()
        torch.autograd.set_multithreading_enabled(False)
        try:
            loss.backward()
        finally:
            torch.autograd.set_multithreading_enabled(before)

    def _watch(self, root):
        pending, seen = [root], set()
        while pending:
            node = pending.pop()
            if node in seen or hasattr(node, "variable"):
                continue
            seen.add(node)
            number = node._sequence_nr() - self._base
            node.register_prehook(lambda _, number=number, name=node.name():
                                  self._begin(number, name))
            node.register_hook(lambda results, gradients: self._end(results, gradients))
            pending.extend(successor for successor, _ in node.next_functions if successor)

    def _begin(self, number, name):
        self._current = number
        self.recipes[number] = {"name": name, "blocks": [], "results": []}

    def _end(self, results, gradients):
        recipe = self.recipes[self._current]
        recipe["results"] = [self._describe(i, results, gradients) for i in range(len(results))]
        self._current = None

    def _describe(self, index, results, gradients):
        result = results[index]
        if not isinstance(result, torch.Tensor):
            return None
        source = self._source(index, results, gradients)
        if "same" in source or "result" in source:
            return source
        return source | {"shape": list(result.shape), "strides": list(result.stride()),
                         "dtype": str(result.dtype).removeprefix("torch."),
                         "view": bool(result._is_view())}

    def _source(self, index, results, gradients):
        result = results[index]
        for number, gradient in enumerate(gradients):
            if result is gradient:
                return {"same": number}
        for number in range(index):
            if result is results[number]:
                return {"result": number}
        key = result.untyped_storage()._cdata
        for number, gradient in enumerate(gradients):
            if gradient is not None and gradient.untyped_storage()._cdata == key:
                return {"gradient": number}
        node, block, _ = self._live.get(key, (None, 0, None))
        return {"block": block} if node == self._current else {"kept": True}

    def _adopt(self, tensor):
        storage = tensor.untyped_storage()
        key = storage._cdata
        if tensor.device.type != "cuda" or key in self._live:
            return
        number = None
        if self._current is not None:
            blocks = self.recipes[self._current]["blocks"]
            number = sum(1 for change in blocks if "bytes" in change)
            blocks.append({"bytes": int(storage.nbytes())})
        recorder = weakref.ref(self)
        self._live[key] = (self._current, number,
                           weakref.ref(storage, lambda _: recorder()._released(key)))

    def _released(self, key):
        node, block, _ = self._live.pop(key)
        if node is not None and node == self._current:
            self.recipes[node]["blocks"].append({"free": block})

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace in ("prim", "profiler"):
            return function(*args, **(kwargs or {}))
        body = EXPANSIONS.get(function)
        if body is not None:
            with self:
                return body(*args, **(kwargs or {}))
        function = in_place_variant(function, args, kwargs) or function
        known = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs))
                 if isinstance(leaf, torch.Tensor)}
        result = self._answers.run(function, args, kwargs, "")
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata not in known:
                self._adopt(leaf)
        return result
