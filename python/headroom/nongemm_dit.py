"""A diffusion transformer (DiT, arXiv 2212.09748) for `headroom bench nongemm`: one step of denoising.

Written from the paper, with adaLN-Zero blocks: time and class become a vector, of which each block makes the shifts and
factors of its normalizations and of what it adds. Given latents of an image, a noise level and a class; gives the
noise and its variance. The autoencoder around it is no part of it, and one step is one forward pass of this module.
"""

import math

import torch
from torch import nn
from torch.nn import functional

LONGEST_PERIOD = 10000.0  # of the waves that a noise level is written in
WAVES = 256


def modulated(x, shift, factor):
    return x * (1 + factor.unsqueeze(1)) + shift.unsqueeze(1)


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.into, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)

    def forward(self, x):
        images, tokens, hidden = x.shape
        parts = self.into(x).view(images, tokens, 3, self.heads, hidden // self.heads)
        x = functional.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4).unbind(0))
        return self.out(x.transpose(1, 2).reshape(images, tokens, hidden))


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(hidden, eps=1e-6, elementwise_affine=False) for _ in range(2))
        self.attention = Attention(hidden, heads)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(approximate="tanh"),
                                 nn.Linear(4 * hidden, hidden))
        self.condition = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 6 * hidden))

    def forward(self, x, condition):
        shift, factor, gate, mlp_shift, mlp_factor, mlp_gate = self.condition(condition).chunk(6, dim=-1)
        x = x + gate.unsqueeze(1) * self.attention(modulated(self.norms[0](x), shift, factor))
        return x + mlp_gate.unsqueeze(1) * self.mlp(modulated(self.norms[1](x), mlp_shift, mlp_factor))


class DiffusionTransformer(nn.Module):
    """The sizes of DiT-XL/2 for images of 256 x 256, whose latents are 32 x 32 of four channels."""

    def __init__(self, hidden=1152, blocks=28, heads=16, patch=2, channels=4, side=32, classes=1000):
        super().__init__()
        self.patch, self.channels = patch, channels
        self.patches = nn.Conv2d(channels, hidden, patch, patch)
        self.places = nn.Parameter(torch.empty(1, (side // patch) ** 2, hidden))
        self.level = nn.Sequential(nn.Linear(WAVES, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.classes = nn.Embedding(classes + 1, hidden)  # and one for no class, which guidance needs
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(hidden, eps=1e-6, elementwise_affine=False)
        self.condition = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 2 * hidden))
        self.out = nn.Linear(hidden, patch * patch * 2 * channels)

    def forward(self, latents, levels, labels):
        images, _, height, width = latents.shape
        x = self.patches(latents).flatten(2).transpose(1, 2) + self.places
        condition = self.level(self.waves(levels).to(x.dtype)) + self.classes(labels)
        for block in self.blocks:
            x = block(x, condition)
        shift, factor = self.condition(condition).chunk(2, dim=-1)
        x = self.out(modulated(self.norm(x), shift, factor))
        x = x.view(images, height // self.patch, width // self.patch, self.patch, self.patch, 2 * self.channels)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(images, 2 * self.channels, height, width)

    def waves(self, levels):
        """A noise level as cosines and sines of periods from one to LONGEST_PERIOD."""
        half = WAVES // 2
        places = torch.arange(half, dtype=torch.float32, device=levels.device)
        angles = levels.float().unsqueeze(-1) * torch.exp(-math.log(LONGEST_PERIOD) / half * places)
        return torch.cat((angles.cos(), angles.sin()), dim=-1)
