"""Masks of shifted windows on the model's device and of its type, for `headroom bench nongemm`.

MaskFormer's Swin of transformers 5.17 makes them on the host in fp32, whatever its weights are: half precision refuses to
multiply with what comes of it, and a CUDA graph to be captured. Later ones (seen: 5.23) make them on the device.
"""

import inspect
import types

import torch

FAR = -100.0  # what is added to a score that is not to count


def mend(module):
    for part in module.modules():
        made = getattr(part, "get_attn_mask", None)
        if made and list(inspect.signature(made).parameters) == ["input_resolution"]:
            part.get_attn_mask = types.MethodType(mask_of, part)


def mask_of(layer, input_resolution):
    """[windows, places, places]: 0 where two places of a window see each other, which they do along both sides or not."""
    if layer.shift_size <= 0:
        return None
    weight, side = layer.layernorm_before.weight, layer.window_size
    down, along = (neighbours(size // side, layer, weight.device) for size in input_resolution)
    # [rows of windows, columns of windows, row, column, the other's row, the other's column]
    sees = down[:, None, :, None, :, None] & along[None, :, None, :, None, :]
    return FAR * sees.logical_not().to(weight.dtype).reshape(-1, side * side, side * side)


def neighbours(windows, layer, device):
    """[windows, side, side] of one direction. The shift brings what was at the other end into the last window's end alone."""
    place = torch.arange(layer.window_size, device=device)
    is_own = place < layer.window_size - layer.shift_size
    is_split = torch.arange(windows, device=device) == windows - 1
    return (is_own[:, None] == is_own) | ~is_split[:, None, None]
