"""`headroom fit --gpus N` against every setting of a small space, each asked by itself (every_setting.py)."""

import dataclasses
import json
import os

import every_setting
import pytest
import step_dump

pytestmark = pytest.mark.skipif("HEADROOM_BINARY" not in os.environ, reason="HEADROOM_BINARY names no program")

# Layers enough for several parts a stage, heads for tensor parallel ranks; as large as to fill a small GPU.
CHANGES = {"num_hidden_layers": 6, "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 8,
           "num_key_value_heads": 4, "vocab_size": 8192, "max_position_embeddings": 4096}
SMALL = "rtx-4090,memory=6GiB"
WORDS = ["--device", SMALL, "--seq", "1024"]
QUICK = [every_setting.Question("in a machine", WORDS, 4, 16),
         every_setting.Question("slow network", [*WORDS, *every_setting.NETWORK], 4, 16),
         every_setting.Question("fewer sequences than GPUs", WORDS, 4, 2)]
FULL = [every_setting.Question("any precision", [*WORDS, *every_setting.NETWORK], 4, 16, "any"),
        *every_setting.QUESTIONS]


@pytest.mark.parametrize("question", [*QUICK, *(pytest.param(question, marks=pytest.mark.full) for question in FULL)],
                         ids=lambda question: question.name)
def test_the_first_row_is_the_fastest_of_every_setting(question, tmp_path):
    if question.words[0] == "--device":
        config = json.loads((step_dump.CONFIGS / "llama.json").read_text(encoding="utf-8"))
        (tmp_path / "config.json").write_text(json.dumps({**config, **CHANGES}), encoding="utf-8")
        question = dataclasses.replace(question, words=[str(tmp_path / "config.json"), *question.words])
    compared = every_setting.compare(os.environ["HEADROOM_BINARY"], question)
    assert compared.first["fits"] == "yes"
    assert compared.first["time"]["step_seconds"] == pytest.approx(compared.fastest.seconds, rel=1e-9), compared.fastest
    assert [way for way in compared.without_row() if not compared.is_left_out(way)] == []
    for way, row in compared.rows.items():
        alone = compared.alone(way)
        assert (row["fits"], row["time"]["step_seconds"]) == (alone.fits, pytest.approx(alone.seconds, rel=1e-9)), way
        if row["fits"] == "yes":
            # Of every micro-batch, and of a pipeline's schedules at the least under 1F1B.
            assert row["time"]["step_seconds"] <= compared.fastest_of(way, only_1f1b=True) * (1 + 1e-9), way
        else:
            assert compared.fastest_of(way, only_1f1b=True) == float("inf"), way
    searched = compared.searched
    assert searched["settings"] == searched["predicted"] + searched["beaten"] + searched["refused"]
