#!/usr/bin/env python3
"""Milliseconds of single runs of a model in PyTorch, one after the other: what the machine does while nothing else runs.

    runs.py MODEL SECONDS      from the repo's root, by its Python environment
    runs.py                    of the records beside it: where shares are more than 3 points apart, milliseconds of products
                               (attention among them) and of all else in each of the three runs
"""

import json
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def single_runs(name, seconds):
    sys.path.insert(0, str(ROOT / "python"))
    import torch
    from headroom.nongemm_models import Recipe
    entry = next(one for one in json.loads((ROOT / "data/nongemm_models.json").read_text())["models"] if one["name"] == name)
    recipe = Recipe(torch, entry)
    with torch.inference_mode():
        module = recipe.make(None, torch.float32)
        args, named = recipe.inputs(module, 1, torch.float32, torch.device("cpu"))
        taken, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end:
            begin = time.perf_counter()
            module(*args, **named)
            taken.append(1e3 * (time.perf_counter() - begin))
    print(f"{name}: {len(taken)} runs, median {statistics.median(taken):.0f} ms")
    print(*(round(one) for one in taken))


def parts_of(file):
    found = {}
    for line in file.read_text().splitlines()[1:]:
        record = json.loads(line)
        if record["status"] != "measured":
            continue
        groups = {group["name"]: group["ms"] for group in record["profile"]["groups"]}
        products = groups["gemm"] + groups["attention"]
        setting = record["setting"]
        key = tuple(setting[name] for name in ("model", "engine", "quantize", "fusion"))
        found[key] = (products, sum(groups.values()) - products)
    return found


def main():
    if len(sys.argv) == 3:
        single_runs(sys.argv[1], float(sys.argv[2]))
        return
    runs = [parts_of(file) for file in sorted(HERE.glob("two-threads*.jsonl"))]
    ratios = []
    for key in sorted(runs[0]):
        products, rest = zip(*(run[key] for run in runs))
        shares = [100 * other / (product + other) for product, other in zip(products, rest)]
        if max(shares) - min(shares) <= 3:
            continue
        ratios.append((max(products) / min(products), max(rest) / min(rest)))
        print(*key, "| products", *(round(one) for one in products), "| rest", *(round(one) for one in rest))
    for word, of in zip(("products", "rest"), zip(*ratios)):
        print(f"{word}: largest over least {min(of):.2f} to {max(of):.2f}, median {statistics.median(of):.2f}")


if __name__ == "__main__":
    main()
