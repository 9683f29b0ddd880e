"""What PyTorch has of quantization, for `headroom bench nongemm`: dynamic int8, and int4 of weights alone; on a GPU, int8 as
LLM.int8() has it.

int8 is torch.ao's quantize_dynamic. int4 is PyTorch's own product with weights of four bits, in groups of 32 along what
goes in, each with a scale and a zero; how they are made of a weight is written here, since the library that does it for
servers (torchao) is another package.
"""

import torch
from torch import nn

from headroom.nongemm_models import Refused

OUTLIER = 6.0            # the paper's: an element beyond it has its column multiplied in the model's type
MOST_INT8 = 127
INT8_ALIGNED = 8         # PyTorch's int8 product on CUDA takes multiples of it,
LEAST_INT8_ROWS = 17     # and so many rows at least
GROUP = 32               # weights that share a scale
OUTPUTS_AT_LEAST = 16    # of which PyTorch's kernel takes multiples
LEVELS, MIDDLE = 15, 8   # a weight is scale * (level - MIDDLE) + zero
LEAST_OF_WEIGHTS = 15    # percent: with less quantized it is no quantized model,
MOST_OF_WEIGHTS = 60     # with less than these it is worth saying


def notes_of_share(kind, quantized, all_weights, what):
    """What there is to say where only some weights could be quantized; refused where these are few."""
    share = 100 * quantized / all_weights
    if share < LEAST_OF_WEIGHTS:
        raise Refused(f"{what}, which holds {share:.0f} % of this model's weights")
    return [f"{kind} is {share:.0f} % of its weights: {what}"] if share < MOST_OF_WEIGHTS else []


def replace(module, name, part):
    owner, _, last = name.rpartition(".")
    setattr(module.get_submodule(owner), last, part)


def with_linears(module):
    """GPT-2's own layer, which PyTorch does not know, as the same product; and the weights in nn.Linear."""
    from transformers.pytorch_utils import Conv1D
    for name, part in list(module.named_modules()):
        if isinstance(part, Conv1D):
            linear = nn.Linear(part.weight.shape[0], part.weight.shape[1])
            linear.weight.data, linear.bias.data = part.weight.data.t().contiguous(), part.bias.data
            replace(module, name, linear)
    linears = sum(part.weight.numel() for part in module.modules() if isinstance(part, nn.Linear))
    if linears == 0:
        raise Refused("PyTorch quantizes nn.Linear, and this model has none")
    return linears


def int8(module):
    """Weights once, activations at each call."""
    weights = sum(parameter.numel() for parameter in module.parameters())
    linears = with_linears(module)
    try:
        from torch.ao.quantization import quantize_dynamic
    except ImportError as error:
        raise Refused(f"this PyTorch has no dynamic quantization: {error}") from error
    notes = notes_of_share("int8", linears, weights, "PyTorch quantizes nn.Linear dynamically")
    return quantize_dynamic(module, {nn.Linear}, dtype=torch.qint8, inplace=True), notes


class Int4Linear(nn.Module):
    """A product with weights of four bits; what goes in and comes out keeps its type."""

    def __init__(self, linear):
        super().__init__()
        outputs, inputs = linear.weight.shape
        groups = linear.weight.detach().float().view(outputs, inputs // GROUP, GROUP)
        low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
        scale = ((high - low) / LEVELS).clamp(min=torch.finfo(torch.float32).tiny)
        levels = ((groups - low) / scale).round().clamp(0, LEVELS).to(torch.int32).view(outputs, inputs)
        zero = low + MIDDLE * scale
        pairs = torch.cat((scale, zero), dim=-1).transpose(0, 1).contiguous()
        self.outputs, self.bias = outputs, linear.bias
        self.register_buffer("packed", torch.ops.aten._convert_weight_to_int4pack_for_cpu(levels, 1))
        self.register_buffer("scales", pairs.to(linear.weight.dtype))

    @staticmethod
    def takes(part):
        return (isinstance(part, nn.Linear) and part.in_features % GROUP == 0
                and part.out_features % OUTPUTS_AT_LEAST == 0)

    def forward(self, x):
        y = torch.ops.aten._weight_int4pack_mm_for_cpu(x.reshape(-1, x.shape[-1]), self.packed, GROUP, self.scales)
        y = y.view(*x.shape[:-1], self.outputs)
        return y if self.bias is None else y + self.bias


def int4(module):
    if not hasattr(torch.ops.aten, "_weight_int4pack_mm_for_cpu"):
        raise Refused("this PyTorch has no product with weights of four bits on a CPU")
    weights = sum(parameter.numel() for parameter in module.parameters())
    with_linears(module)
    chosen = [(name, part) for name, part in module.named_modules() if Int4Linear.takes(part)]
    notes = notes_of_share("int4", sum(part.weight.numel() for _, part in chosen), weights,
                           f"PyTorch's kernel takes nn.Linear in groups of {GROUP}")
    for name, part in chosen:
        replace(module, name, Int4Linear(part))
    return module, notes


class LlmInt8Linear(nn.Module):
    """A product as LLM.int8() makes it (Dettmers et al. 2022, arXiv 2208.07339, section 3): what goes in is rounded to int8 with
    a scale for each row, weights with one for each output; columns with an element beyond OUTLIER are multiplied in the
    model's own type. Of plain operators around PyTorch's int8 product: a library would fuse some of them."""

    def __init__(self, linear):
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.abs().amax(1, keepdim=True).float().clamp(min=torch.finfo(torch.float32).tiny) / MOST_INT8
        self.bias = linear.bias
        self.register_buffer("levels", (weight / scale).round().to(torch.int8))
        self.register_buffer("scales", scale.view(-1))

    @staticmethod
    def takes(part):
        return (isinstance(part, nn.Linear) and part.in_features % INT8_ALIGNED == 0
                and part.out_features % INT8_ALIGNED == 0)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        is_apart = (rows.abs() > OUTLIER).any(0)
        columns = is_apart.nonzero().view(-1)  # the host waits for the device here, as the published code does
        inliers = rows.masked_fill(is_apart, 0)
        scale = inliers.abs().amax(1, keepdim=True).float().clamp(min=torch.finfo(torch.float32).tiny) / MOST_INT8
        levels = (inliers / scale).round().to(torch.int8)
        if len(levels) < LEAST_INT8_ROWS:
            levels = nn.functional.pad(levels, (0, 0, 0, LEAST_INT8_ROWS - len(levels)))
        y = torch._int_mm(levels, self.levels.t())[:len(rows)]
        y = (y * (scale * self.scales)).to(x.dtype)
        if len(columns):
            weight = (self.levels[:, columns] * self.scales[:, None]).to(x.dtype)
            y = torch.addmm(y, rows[:, columns], weight.t())
        y = y.view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias


def llm_int8(module):
    """Every product of weights but the head, as LLM.int8() leaves it."""
    weights = sum(parameter.numel() for parameter in module.parameters())
    with_linears(module)
    head = module.get_output_embeddings() if hasattr(module, "get_output_embeddings") else None
    chosen = [(name, part) for name, part in module.named_modules() if LlmInt8Linear.takes(part) and part is not head]
    notes = notes_of_share("int8", sum(part.weight.numel() for _, part in chosen), weights,
                           f"LLM.int8() is of nn.Linear, the head apart, here in multiples of {INT8_ALIGNED}")
    for name, part in chosen:
        replace(module, name, LlmInt8Linear(part))
    return module, [*notes, "int8 as LLM.int8() has it, of plain operators; random weights make few outliers"]


def kinds(is_cuda):
    return {"int8": llm_int8} if is_cuda else {"int8": int8, "int4": int4}
