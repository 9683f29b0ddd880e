"""A mixture of experts for ONNX Runtime in `headroom bench nongemm`: the same experts, each of which gets its even share.

A graph has fixed shapes, and the exporter knows neither a loop over the experts that were hit nor PyTorch's grouped product.
So tokens are sorted by the expert that was chosen for them and cut into even parts: the products, the sorting, the gathering
and the weighted sum of transformers' experts, with a stated histogram. Where the router's own is even, the result is theirs.
Only experts of Mixtral's kind are replaced, known by their weights, their arguments and what they do with a gate; others
(Llama 4's take tokens that are sorted already, DeepSeek V4's and Step 3.7's clamp, gpt-oss's have biases) stay as they are.
"""

import inspect

import torch
from torch import nn

WEIGHTS = {"gate_up_proj", "down_proj"}
ARGUMENTS = ["self", "hidden_states", "top_k_index", "top_k_weights"]
STATED = "each expert gets its even share of tokens, stated: a graph has fixed shapes"


class EvenExperts(nn.Module):
    """In the place of a module of transformers that holds its experts' weights as (expert, out, in)."""

    def __init__(self, experts):
        super().__init__()
        self.act_fn = experts.act_fn
        for name in ("gate_up_proj", "down_proj"):  # parts of what is there, not copies
            parts = [nn.Parameter(part, requires_grad=False) for part in getattr(experts, name).detach().unbind(0)]
            setattr(self, name, nn.ParameterList(parts))

    def forward(self, hidden_states, top_k_index, top_k_weights):
        tokens, chosen = top_k_index.shape
        order = top_k_index.flatten().argsort()
        given = hidden_states[torch.div(order, chosen, rounding_mode="floor")]
        parts = []
        for expert, part in enumerate(given.split(even_parts(tokens * chosen, len(self.down_proj)))):
            gate, up = nn.functional.linear(part, self.gate_up_proj[expert]).chunk(2, dim=-1)
            parts.append(nn.functional.linear(self.act_fn(gate) * up, self.down_proj[expert]))
        weighted = torch.cat(parts) * top_k_weights.flatten()[order].unsqueeze(-1)
        return weighted[order.argsort()].view(tokens, chosen, -1).sum(dim=1).to(hidden_states.dtype)


def even_parts(total, count):
    return [total // count + (place < total % count) for place in range(count)]


def is_of_mixtrals_kind(part):
    """act_fn(gate) * up of one product, then another one, both without biases: nothing else is left of it."""
    kind = type(part)
    if not kind.__name__.endswith("Experts") or not hasattr(part, "act_fn") or hasattr(part, "limit"):
        return False
    if {name for name, _ in part.named_parameters()} != WEIGHTS or list(inspect.signature(kind.forward).parameters) != ARGUMENTS:
        return False
    if "_apply_gate" in vars(kind) and kind._apply_gate.__name__ == "_apply_gate":  # its own, not what transformers adds
        return False
    if not getattr(part, "is_concatenated", True):  # but interleaved
        return False
    gate_up, down = part.gate_up_proj.shape, part.down_proj.shape
    return len(down) == 3 and gate_up == (down[0], 2 * down[2], down[1])


def make_even(module):
    """Replaces the experts of a module; what there is to say of it."""
    found = [(name, part) for name, part in module.named_modules() if is_of_mixtrals_kind(part)]
    for name, part in found:
        owner, _, last = name.rpartition(".")
        setattr(module.get_submodule(owner), last, EvenExperts(part))
    return [STATED] if found else []
