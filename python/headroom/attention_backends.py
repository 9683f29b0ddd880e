"""Chooses the kernel behind scaled_dot_product_attention on fake tensors.

Fake CUDA has no kernel chooser: the composite operator silently takes its math path. A CUDA machine
would call one of four aten operators; `force_sdpa` puts a function in the place of
torch.nn.functional.scaled_dot_product_attention that prepares the arguments as
at::scaled_dot_product_attention does (ATen/native/transformers/attention.cpp, torch 2.13: padding
of the head dimension to 8 for flash, boolean masks turned into additive ones, masks padded to 8
elements for efficient) and calls the wanted operator. Autograd then saves what it would save on a
GPU. Not thread-safe: it replaces a module attribute while it is entered.
"""

import contextlib
import math

import torch
import torch.nn.functional as functional

BACKENDS = ("auto", "flash", "efficient", "cudnn", "math", "default")


def _additive_mask(mask, dtype):
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(-math.inf, dtype=dtype, device=mask.device))


def _pad_head(tensor, multiple):
    missing = -tensor.size(-1) % multiple
    return functional.pad(tensor, (0, missing)) if missing else tensor


def _needs_logsumexp(*tensors):
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def _flash(query, key, value, mask, dropout, causal, scale, _gqa):
    if mask is not None:
        raise ValueError("flash attention takes no mask; the chooser of PyTorch would not pick it")
    width = query.size(-1)
    used_scale = scale if scale is not None else 1.0 / math.sqrt(width)
    output = torch.ops.aten._scaled_dot_product_flash_attention(
        _pad_head(query, 8), _pad_head(key, 8), _pad_head(value, 8), dropout, causal, False,
        scale=used_scale)[0]
    return output[..., :width] if output.size(-1) != width else output


def _padded_bias(mask, query, key):
    """The efficient kernel wants rows aligned to 8 elements (preprocess_mask in attention.cpp):
    where a stride is not, the bias is made again in a wider storage and sliced."""
    if mask is None:
        return None
    aligned = mask.stride(-1) == 1 and all(stride % 8 == 0 for stride in mask.stride()[:-1])
    if not aligned:
        length = mask.size(-1)
        mask = functional.pad(mask, (0, 8 - length % 8))[..., :length]
    return mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))


def _efficient(query, key, value, mask, dropout, causal, scale, gqa):
    if gqa:
        raise ValueError("the efficient kernel has no grouped heads; PyTorch picks another one")
    bias = _padded_bias(_additive_mask(mask, query.dtype), query, key)
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, bias, _needs_logsumexp(query, key, value), dropout, causal,
        scale=scale)[0]


def _cudnn(query, key, value, mask, dropout, causal, scale, _gqa):
    return torch.ops.aten._scaled_dot_product_cudnn_attention(
        query, key, value, _additive_mask(mask, query.dtype),
        _needs_logsumexp(query, key, value), dropout, causal, False, scale=scale)[0]


def _math(query, key, value, mask, dropout, causal, scale, gqa):
    """The composite path as it runs on plain tensors: on subclasses, such as fake tensors, ATen
    adds the mask out of place (areAnyTensorSubclassLike), which no real run does."""
    origin = query.dtype
    mask = _additive_mask(mask, origin)
    reduced = origin in (torch.float16, torch.bfloat16)
    if reduced and not torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed():
        query, key, value = query.float(), key.float(), value.float()
    factor = math.sqrt(scale if scale is not None else 1.0 / math.sqrt(query.size(-1)))
    query = query * factor
    if causal:
        mask = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool,
                          device=query.device).tril()
        mask = _additive_mask(mask, query.dtype)
    if gqa:
        repeats = query.size(-3) // key.size(-3)
        key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
    scores = torch.matmul(query, key.transpose(-2, -1) * factor)
    if mask is not None:
        scores.add_(mask)
    weights = torch._safe_softmax(scores, -1)
    del scores
    if dropout > 0.0:
        weights = torch.dropout(weights, dropout, True)
    return torch.matmul(weights, value).to(origin)


def _auto(query, key, value, mask, dropout, causal, scale, gqa):
    """The usual choice on a GPU of 8.0 or later in half precision: flash, efficient under a mask,
    and in single precision efficient, or math where heads are grouped. Heads that are to be
    broadcast go to math (check_batch_size_and_num_heads_dense in sdp_utils_cpp.h)."""
    half = query.dtype in (torch.float16, torch.bfloat16)
    if not gqa and query.size(1) != key.size(1):
        kernel = _math
    elif half and mask is None:
        kernel = _flash
    else:
        kernel = _math if gqa else _efficient
    return kernel(query, key, value, mask, dropout, causal, scale, gqa)


_KERNELS = {"auto": _auto, "flash": _flash, "efficient": _efficient, "cudnn": _cudnn, "math": _math}


def _cast(tensor, dtype):
    eligible = tensor is not None and tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.to(dtype) if eligible else tensor


@contextlib.contextmanager
def force_sdpa(backend):
    """While entered, scaled_dot_product_attention runs `backend` ("default": left as it is)."""
    if backend not in BACKENDS:
        raise ValueError(f"unknown SDPA backend {backend!r}; one of {', '.join(BACKENDS)}")
    if backend == "default":
        yield
        return
    kernel = _KERNELS[backend]

    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                  enable_gqa=False):
        kind = query.device.type
        if not torch.is_autocast_enabled(kind):
            return kernel(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        # The operator is on autocast's list of lower precision: arguments are cast, the last one
        # first (g++ evaluates them so), and what runs inside is not cast again.
        dtype = torch.get_autocast_dtype(kind)
        attn_mask, value, key, query = (_cast(t, dtype) for t in (attn_mask, value, key, query))
        with torch.autocast(kind, enabled=False):
            return kernel(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)

    original = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = attention
    torch.nn.functional.scaled_dot_product_attention = attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original
