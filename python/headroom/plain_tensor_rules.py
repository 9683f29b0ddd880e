"""Undoes what PyTorch does differently because somebody watches.

While any TorchDispatchMode is active, at::isTensorSubclassLike answers yes for every tensor
(ATen/TensorSubclassLikeUtils.h), and some C++ code then takes an out-of-place path that no plain
eager run takes. Each costs an allocation that a real run does not make. `in_place_variant`
recognises them and names the in-place operator that a plain run calls; its result is the first
argument itself.

1. torch/csrc/autograd/input_buffer.cpp, accumulate: gradients that meet at one node are added in
   place when the first one's tensor and storage have no other holder and it is dense.
2. torch/csrc/autograd/FunctionsManual.cpp and ATen/native: index_backward (index_put), gather
   (scatter_add), index_select_backward (index_add), value_selecting_reduction_backward (scatter):
   these write into a tensor of zeros that they have just made.

A further difference, known and not undone: at::linear with a bias on an input that is not
contiguous and not flattened adds the bias out of place.

3. An operator with a composite kernel and a CUDA kernel (silu_backward, mish_backward,
   _fused_rms_norm) is decomposed on a build without CUDA, before any mode sees it.
   `register_kernels` gives it a CUDA kernel that is never called, so that it stays one operator.

4. An operator that is a function of other operators without being composite for autograd (explicit
   composite kernels) calls them below any mode. Where its temporaries are large, `EXPANSIONS` has
   its body: _safe_softmax (ATen/native/transformers/attention.cpp).

5. softplus_backward on fake tensors is a Python decomposition, whose result is laid out as the
   second operand is; the kernel's is laid out as the first (TensorIterator), and whoever reshapes
   it may need a copy. `register_kernels` gives fake tensors the kernel's layout.

6. A number assigned through one mask is a masked_fill_ within index_put_
   (ATen/native/TensorAdvancedIndexing.cpp), and waiting for a collective gives its own tensor; for
   fake tensors the first asks how many are set, and the second makes a new one. `expansion` says so.

Invariant: a rewritten operator returns the very tensor that it was given, so no lifetime is
prolonged.
"""

import sys

import torch
from torch._decomp import meta_table
from torch._subclasses import fake_impls

# Holders of a gradient that nobody but the engine's buffer holds, seen from inside
# __torch_dispatch__: the buffer, the call's stack, the Python object and the temporary of the
# question itself. A test checks both counts on a known case, so that another version of PyTorch
# cannot change them silently.
EXCLUSIVE_TENSOR_HOLDERS = 4
EXCLUSIVE_STORAGE_HOLDERS = 2

_WRAPPER_FILES = ("eval_frame.py", "_compile.py", "_stats.py")

_aten = torch.ops.aten

_BY_NODE = {
    "GatherBackward0": {_aten.scatter_add.default: _aten.scatter_add_.default},
    "IndexBackward0": {_aten.index_put.default: _aten.index_put_.default},
    "IndexSelectBackward0": {_aten.index_add.default: _aten.index_add_.default},
}
for _node in ("TopkBackward0", "SortBackward0", "SortBackward1", "MaxBackward0", "MinBackward0",
              "KthvalueBackward0", "ModeBackward0", "MedianBackward1"):
    _BY_NODE[_node] = {_aten.scatter.src: _aten.scatter_.src}

# Formulas in C++ that add two gradients themselves, out of place in every run.
_NODES_THAT_ADD = frozenset({"StdBackward0", "VarBackward0", "StdMeanBackward0", "VarMeanBackward0",
                             "LogcumsumexpBackward0", "LerpBackward0", "LerpBackward1"})



def _safe_softmax(scores, dim, dtype=None):
    weights = _aten.softmax.int(scores, dim, dtype)
    hidden = _aten.isneginf.default(scores)
    hidden_rows = _aten.all.dim(hidden, dim, True)
    zero = _aten.scalar_tensor.default(0.0, dtype=weights.dtype, device=weights.device)
    _aten.where.self_out(hidden_rows, zero, weights, out=weights)
    del zero, hidden_rows, hidden  # in the order in which C++ leaves its scope
    return weights


def _masked_fill(tensor, indices, value, *_):
    mask = indices[0]
    while mask.dim() < tensor.dim():
        mask = mask.unsqueeze(-1)
    return _aten.masked_fill_.Tensor(tensor, mask, value)


EXPANSIONS = {_aten._safe_softmax.default: _safe_softmax}


def expansion(function, args):
    """The body of an operator that a mode sees whole and a plain run does not, or None."""
    if function is _aten.index_put_.default:
        is_mask = len(args[1]) == 1 and args[1][0].dtype == torch.bool and args[2].numel() == 1
        return _masked_fill if is_mask else None
    if function.namespace == "_c10d_functional" and function._opname == "wait_tensor":
        return lambda tensor: tensor
    return EXPANSIONS.get(function)

_library = None


def register_kernels():
    """Idempotent; after it, silu_backward and its like are one operator on fake CUDA tensors."""
    global _library
    if _library is not None or torch.backends.cuda.is_built():
        return

    def never_called(*_, **__):
        raise RuntimeError("a kernel for fake CUDA tensors was called on a real one")

    _library = torch.library.Library("aten", "IMPL", "CUDA")
    for name in ("silu_backward", "mish_backward", "_fused_rms_norm"):
        _library.impl(name, never_called)
    # An operator with an entry in the table is not decomposed before its rule is asked.
    meta_table[_aten.softplus_backward.default] = _laid_out_as_a_product
    fake_impls.register_op_impl(_aten.softplus_backward.default)(_laid_out_as_a_product)


def _laid_out_as_a_product(fake_mode, _function, gradient, x, *_):
    with fake_mode:
        return _aten.mul.Tensor(gradient, x)


def called_by_engine():
    """True when the operator comes from the autograd engine's C++ itself, not from Python code that
    runs in the backward (a custom Function, a recomputed forward)."""
    frame = sys._getframe(3)
    while frame is not None and frame.f_code.co_filename.endswith(_WRAPPER_FILES):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "_engine_run_backward"


def _dense(tensor):
    return torch._prims_common.is_non_overlapping_and_dense_or_false(tensor)


def _engine_owns_alone(tensor):
    storage = tensor.untyped_storage()
    return (tensor._use_count() <= EXCLUSIVE_TENSOR_HOLDERS
            and torch._C._storage_Use_Count(storage._cdata) <= EXCLUSIVE_STORAGE_HOLDERS)


def in_place_variant(function, args, kwargs):
    """The in-place operator that a plain run would call, or None. To be called from a mode's
    __torch_dispatch__ itself: frames and holders are counted from there."""
    if torch.is_grad_enabled():
        return None
    node = torch._C._current_autograd_node()
    if node is None:
        return None
    name = node.name()
    del node
    rule = _BY_NODE.get(name)
    if rule is not None and function in rule:
        return rule[function] if called_by_engine() else None
    if function is not _aten.add.Tensor or kwargs or name in _NODES_THAT_ADD:
        return None
    first, second = args
    if not isinstance(second, torch.Tensor) or first.shape != second.shape:
        return None
    if first.dtype != second.dtype or not _dense(first) or not _engine_owns_alone(first):
        return None
    return _aten.add_.Tensor if called_by_engine() else None
