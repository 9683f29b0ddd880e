#!/usr/bin/env python3
"""Exports a transformer of one layer with open batch and sequence, as torch.onnx writes it (PyTorch
2.13, onnxscript 0.7): tests/data/dynamic.onnx. Weights' data and where lines of code are go out of
it, sizes stay.

Usage: record_dynamic_onnx.py FILE, with the packages onnx and onnxscript
"""

import sys

import onnx
import torch

WIDTH, HEADS, INNER, WORDS = 16, 2, 64, 32


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, WIDTH)
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.up = torch.nn.Linear(WIDTH, INNER)
        self.down = torch.nn.Linear(INNER, WIDTH)
        self.head = torch.nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, input_ids, attention_mask):
        x = self.embed(input_ids)
        batch, length, _ = x.shape
        parts = self.qkv(self.norm(x)).split(WIDTH, dim=-1)
        q, k, v = (part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for part in parts)
        place = torch.arange(length)
        mask = (place[None, :] <= place[:, None])[None, None] & attention_mask[:, None, None, :].bool()
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        x = x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return self.head(x)


def main():
    ids = torch.zeros(2, 8, dtype=torch.long)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq", max=4096)}
    program = torch.onnx.export(Tiny().eval(), (ids, torch.ones_like(ids)), dynamo=True, opset_version=18,
                                dynamic_shapes={"input_ids": sizes, "attention_mask": sizes},
                                input_names=["input_ids", "attention_mask"])
    model = program.model_proto
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    for weight in graph.initializer:
        if len(weight.raw_data) > 64:
            weight.raw_data = b""
    onnx.save(model, sys.argv[1])


if __name__ == "__main__":
    main()
