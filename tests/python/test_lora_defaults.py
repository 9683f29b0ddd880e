"""Where no targets are named, adapters stand where peft puts them, or both refuse."""

import json
import re
import subprocess

import pytest
import step_dump
from test_exactness import FAMILIES

constants = pytest.importorskip("peft.utils.constants")


def is_target(targets, module):
    """As peft matches: a pattern by its whole, a list by the ends of names."""
    if isinstance(targets, str):
        return re.fullmatch(targets, module) is not None
    return module.split(".")[-1] in targets


@pytest.mark.parametrize("family", FAMILIES)
def test_default_targets_are_pefts(family):
    config = step_dump.CONFIGS / f"{family}.json"
    kind = json.loads(config.read_text(encoding="utf-8"))["model_type"]
    expected = constants.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.get(kind)
    done = subprocess.run([step_dump.program(), str(config), "lora_rank=4", "parameters=1",
                           "steps=1", "batch=1", "seq=16"],
                          capture_output=True, text=True, check=False, timeout=120)
    if expected is None:
        assert done.returncode != 0
        assert f'peft knows no target modules for "{kind}"' in done.stderr
        return
    assert done.returncode == 0, done.stderr
    names = [entry["name"].removeprefix("base_model.model.")
             for entry in json.loads(done.stdout)["parameters"]]
    modules = {name.removesuffix(".weight").removesuffix(".base_layer") for name in names
               if name.endswith(".weight") and ".lora_" not in name}
    adapted = {name.split(".lora_A.")[0] for name in names if ".lora_A." in name}
    assert adapted == {module for module in modules if is_target(expected, module)}
    if not isinstance(expected, str):
        assert {module.split(".")[-1] for module in adapted} == set(expected)
