"""A mixture of experts for ONNX Runtime in `headroom bench nongemm`: the same experts, each of which gets its even share.

A graph has fixed shapes, and the exporter knows neither a loop over the experts that were hit nor PyTorch's grouped product.
So tokens are sorted by the expert that was chosen for them and cut into even parts: the products, the sorting, the gathering
and the weighted sum of transformers' experts, with a stated histogram. Where the router's own is even, the result is theirs.
"""

import torch
from torch import nn

NAMES = ("gate_up_proj", "down_proj", "act_fn", "num_experts")
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


def make_even(module):
    """Replaces the experts of a module; what there is to say of it."""
    found = [(name, part) for name, part in module.named_modules()
             if type(part).__name__.endswith("Experts") and all(hasattr(part, one) for one in NAMES)
             and part.gate_up_proj.ndim == 3]
    for name, part in found:
        owner, _, last = name.rpartition(".")
        setattr(module.get_submodule(owner), last, EvenExperts(part))
    return [STATED] if found else []
