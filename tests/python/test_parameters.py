"""Every parameter and buffer of every tiny config: name, shape, order and ties as in the real model.

The real model is built on the meta device, so no weight is made; the comparison is exact. Another
vocabulary changes the embedding and the head and nothing else.
"""

import json

import dump_parameters
import pytest
import step_dump

CONFIGS = sorted(step_dump.CONFIGS.glob("*.json"))
KEYS = ("name", "shape", "tied_to", "persistent")


def listed(entries):
    return [{key: entry[key] for key in KEYS if key in entry} for entry in entries]


def ours_of(path, **words):
    return step_dump.run(path, batch=2, seq=16, parameters=1, **words)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_parameters_equal_the_model(path):
    ours = ours_of(path)
    real = dump_parameters.dump(path)
    for kind in ("parameters", "buffers"):
        assert listed(ours[kind]) == listed(real[kind])


@pytest.mark.parametrize("vocabulary", [32000, 32001, 49158, 128256, 256000])
@pytest.mark.parametrize("family", ["gpt2", "llama", "llama_tied", "opt", "qwen3_5_moe"])
def test_another_vocabulary(family, vocabulary, tmp_path):
    path = step_dump.CONFIGS / f"{family}.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["vocab_size"] = vocabulary
    changed = tmp_path / "config.json"
    changed.write_text(json.dumps(config), encoding="utf-8")
    ours = ours_of(path, vocab=vocabulary)
    assert listed(ours["parameters"]) == listed(dump_parameters.dump(changed)["parameters"])
