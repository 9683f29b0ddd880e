"""The models of `headroom bench nongemm` for `headroom ops --model models.py:NAME`: with fake tensors, so that none needs
its weights."""

import json
from pathlib import Path

import torch

from headroom import nongemm_models

TABLE = Path(__file__).resolve().parents[3] / "data" / "nongemm_models.json"
BUILTIN = Path(__file__).resolve().parents[3] / "data" / "models.json"


def entry_of(name):
    entry = next(one for one in json.loads(TABLE.read_text())["models"] if one["name"] == name)
    if "builtin" in entry:
        entry = entry | {"config": builtin_config(entry["builtin"])}
    return entry


def builtin_config(model):
    one = next(one for one in json.loads(BUILTIN.read_text())["models"] if one["id"] == model)
    return (builtin_config(one["like"]) if "like" in one else {}) | one["config"]


def builder(name):
    def build():
        recipe = nongemm_models.Recipe(torch, entry_of(name))
        with recipe._without_initialisation():
            module = recipe._construct(None)
        nongemm_models.tie(module)
        args, named = recipe.inputs(module, 1, torch.float32, "cuda:0")
        return module, named or tuple(args)
    return build


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return builder(name.replace("_", "-"))
