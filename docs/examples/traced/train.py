"""Modules that Headroom has no family for, as `headroom fit train.py:FUNCTION` takes them.

Each function returns the module, its inputs, and where the output is no loss a function that makes
one of it. Nothing here needs a GPU or makes weights: it runs on tensors without data.
"""

import torch
from torch import nn
from torch.nn import functional


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across_tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(),
                                           nn.Linear(2 * tokens, tokens))
        self.across_width = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                          nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.across_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.across_width(self.norm2(x))


class Mixer(nn.Module):
    """An MLP-Mixer over an image's patches."""

    def __init__(self, image=32, patch=4, width=48, depth=3, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.blocks = nn.ModuleList(MixerBlock((image // patch) ** 2, width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


class ConvAttention(nn.Module):
    """Convolutions with batch norm, then attention over what is left of the image."""

    def __init__(self, width=32, classes=10):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(4, width),
            nn.SiLU(), nn.Upsample(scale_factor=0.5, mode="bilinear"))
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, image):
        x = self.stem(image).flatten(2).transpose(1, 2)
        mixed, _ = self.attention(x, x, x, need_weights=False)
        return self.head((x + mixed).mean(dim=1))


class Encoder(nn.Module):
    """A language model of nn.TransformerEncoderLayer."""

    def __init__(self, vocabulary=500, width=64, depth=3):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.lm_head(self.encoder(self.embedding(tokens)))


def classified(batch):
    target = torch.zeros(batch, dtype=torch.int64, device="cuda:0")
    return lambda logits: functional.cross_entropy(logits, target)


def mixer(batch=4):
    return Mixer(), (torch.zeros(batch, 3, 32, 32),), classified(batch)


def conv_attention(batch=4):
    return ConvAttention(), (torch.zeros(batch, 3, 32, 32),), classified(batch)


def encoder(batch=2, seq=16):
    target = torch.zeros(batch * seq, dtype=torch.int64, device="cuda:0")
    tokens = torch.zeros(batch, seq, dtype=torch.int64)
    return Encoder(), (tokens,), lambda logits: functional.cross_entropy(logits.flatten(0, 1),
                                                                        target)


build = encoder
