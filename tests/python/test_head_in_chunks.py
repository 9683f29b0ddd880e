"""The head and its loss chunk by chunk (torchtitan's ChunkedLossWrapper), block by block against PyTorch on fake
tensors: the second step of tiny models, on one device."""

import json

import pytest
import step_dump

from headroom import memory_oracle, trace_compare

WORDS = {"attention": "eager", "dtype": "bfloat16", "batch": 2, "seq": 16, "steps": 2, "implementation": "loop",
         "loss": "head-in-chunks"}
CASES = {"plain": {}, "one-batch": {"batch": 1}, "checkpointed": {"checkpointing": "non_reentrant"},
         "float32": {"dtype": "float32"}}


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("case", CASES)
def test_each_chunk_goes_before_the_next_one(family, case, tmp_path):
    path = tmp_path / "config.json"
    values = json.loads((step_dump.CONFIGS / f"{family}.json").read_text(encoding="utf-8"))
    path.write_text(json.dumps({**values, "vocab_size": 100}), encoding="utf-8")
    settings = {**WORDS, **CASES[case]}
    oracle = memory_oracle.run_oracle(memory_oracle.read_config(path), memory_oracle.Options(**settings), False)
    ours = step_dump.run(path, **settings)
    expected = trace_compare.flatten(trace_compare.events_of(oracle, 1), trace_compare.start_bytes(oracle, 1))
    before = [event["live"] for event in ours["events"] if event["step"] < 2]
    actual = trace_compare.flatten([event for event in ours["events"] if event["step"] == 2], before[-1])
    outcome = trace_compare.compare_blocks(expected, actual)
    assert outcome.equal, outcome.report
