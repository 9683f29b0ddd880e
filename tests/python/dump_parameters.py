"""Every parameter of a model, by name and shape, as transformers builds it on the meta device.

`python tests/python/dump_parameters.py CONFIG.json [--out FILE]` or `--all` (each file of
tests/python/configs into the folder --out). The output is {"parameters": [{"name", "shape",
"tied_to"?}], "buffers": [{"name", "shape", "persistent"}]}; `tied_to` is the first name of the
shared parameter. No weight is made: a model of any size takes a second.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python")]

from headroom import memory_oracle  # noqa: E402

CONFIGS = Path(__file__).with_name("configs")


def dump(path, head=""):
    """The parameters of one config.json as a JSON-ready dict."""
    torch = memory_oracle.import_torch()
    import transformers
    config = memory_oracle.read_config(path)
    kind = getattr(transformers, memory_oracle.HEADS[head or memory_oracle.head_of(config)])
    with torch.device("meta"):
        model = kind.from_config(config)
    described = memory_oracle.describe_parameters(model)
    for entry in described["parameters"]:
        del entry["dtype"], entry["requires_grad"]
    for entry in described["buffers"]:
        del entry["dtype"]
    return {"schema": "headroom.parameters/1", "model_type": config.model_type,
            "architecture": type(model).__name__, "transformers": transformers.__version__,
            **described}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("config", nargs="?", default="")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--head", default="", choices=["", *memory_oracle.HEADS])
    parser.add_argument("--out", default="-")
    arguments = parser.parse_args()
    if arguments.all:
        folder = Path(arguments.out)
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(CONFIGS.glob("*.json")):
            (folder / path.name).write_text(json.dumps(dump(path)) + "\n", encoding="utf-8")
        return 0
    text = json.dumps(dump(arguments.config, arguments.head), indent=1)
    if arguments.out == "-":
        print(text)
    else:
        Path(arguments.out).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
