"""Models whose weights have four bits or eight, as transformers loads them; for the logs of real steps."""

import bitsandbytes
import torch


def quantize(model, storage="uint8"):
    """bitsandbytes' modules in the place of all linear ones but the head; the bytes are elements of `storage`."""
    storage = getattr(torch, storage)
    head = model.get_output_embeddings()
    for parent in list(model.modules()):
        for name, linear in list(parent.named_children()):
            if type(linear) is not torch.nn.Linear or linear is head:
                continue
            packed = bitsandbytes.nn.Linear4bit(
                linear.in_features, linear.out_features, bias=linear.bias is not None, compute_dtype=torch.bfloat16,
                compress_statistics=True, quant_type="nf4", quant_storage=storage)
            packed.weight = bitsandbytes.nn.Params4bit(
                linear.weight.data, requires_grad=False, compress_statistics=True, quant_type="nf4",
                quant_storage=storage, module=packed)
            if linear.bias is not None:
                packed.bias = torch.nn.Parameter(linear.bias.data)
            setattr(parent, name, packed.to("cpu"))
    model.is_loaded_in_4bit = True


def quantize_in_8_bits(model):
    head = model.get_output_embeddings()
    for parent in list(model.modules()):
        for name, linear in list(parent.named_children()):
            if type(linear) is not torch.nn.Linear or linear is head:
                continue
            packed = bitsandbytes.nn.Linear8bitLt(
                linear.in_features, linear.out_features, bias=linear.bias is not None, has_fp16_weights=False, threshold=6.0)
            packed.weight = bitsandbytes.nn.Int8Params(linear.weight.data, requires_grad=False, has_fp16_weights=False).to("cpu")
            if linear.bias is not None:
                packed.bias = torch.nn.Parameter(linear.bias.data)
            setattr(parent, name, packed)
    model.is_loaded_in_8bit = True
