"""Where no targets are named, adapters stand where peft puts them, or both refuse."""

import json
import subprocess

import pytest
import step_dump
from test_exactness import FAMILIES

constants = pytest.importorskip("peft.utils.constants")


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
    adapted = {entry["name"].split(".lora_A.")[0].split(".")[-1]
               for entry in json.loads(done.stdout)["parameters"] if ".lora_A." in entry["name"]}
    assert adapted == set(expected)
