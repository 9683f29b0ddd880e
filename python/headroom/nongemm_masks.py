"""Masks of shifted windows on the model's device and of its type, for `headroom bench nongemm`.

MaskFormer's Swin of transformers 5.17 makes them on the host in fp32, whatever its weights are: half precision refuses to
multiply with what comes of it, and a CUDA graph to be captured. Later ones (seen: 5.23) make them as here, operator by operator.
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
    """Cells of one window that only the shift made neighbours do not see each other."""
    if layer.shift_size <= 0:
        return None
    weight, side = layer.layernorm_before.weight, layer.window_size
    height, width = input_resolution
    rows, columns = (region_of(count, layer, weight.device) for count in input_resolution)
    image = (rows[:, None] * 3 + columns).to(weight.dtype)
    windows = image.view(height // side, side, width // side, side).transpose(1, 2).reshape(-1, side * side)
    mask = windows.unsqueeze(1) - windows.unsqueeze(2)
    return mask.masked_fill(mask != 0, FAR).masked_fill(mask == 0, 0.0)


def region_of(count, layer, device):
    """Of each place along a side: before the last window, before what was shifted in, or within that."""
    place = torch.arange(count, device=device)
    return (place >= count - layer.window_size).long() + (place >= count - layer.shift_size).long()
