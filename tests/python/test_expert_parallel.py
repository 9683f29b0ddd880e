"""A rank of a mixture whose experts are shared out, against PyTorch: transformers' own plans and exchange of rows, on
fake tensors in a group of processes that is not there, block by block. What fully_shard does around them is in
test_fsdp.py, what real processes hold in test_parallel.py.
"""

import json

import matrix
import pytest
import step_dump

from headroom import memory_oracle, trace_compare

# By family, what the config calls the number of experts.
EXPERTS = {
    "mixtral": "num_local_experts", "qwen3_moe": "num_experts", "deepseek_v3": "n_routed_experts", "gpt_oss": "num_local_experts",
    "qwen2_moe": "num_experts", "ernie4_5_moe": "moe_num_experts", "phimoe": "num_local_experts", "glm4_moe": "n_routed_experts",
    "olmoe": "num_experts", "minimax_m2": "num_local_experts", "deepseek_v2": "n_routed_experts", "dots1": "n_routed_experts",
    "glm4_moe_lite": "n_routed_experts", "glm_moe_dsa": "n_routed_experts", "deepseek_v32": "n_routed_experts",
    "minimax": "num_local_experts", "qwen3_next": "num_experts", "qwen3_5_moe": "num_experts",
}
CASES = {
    **{family: {"family": family} for family in EXPERTS},
    "four-ranks": {"family": "mixtral", "expert_ranks": 4, "attention": "sdpa"},
    "non_reentrant": {"family": "qwen3_moe", "checkpointing": "non_reentrant"},
    "reentrant": {"family": "deepseek_v3", "checkpointing": "reentrant"},
}
QUICK = {"mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "four-ranks", "non_reentrant", "reentrant"}
WORDS = {"batch": 2, "seq": 16, "steps": 2, "implementation": "loop", "attention": "eager", "dtype": "bfloat16", "expert_ranks": 2}


@pytest.mark.parametrize("name", matrix.in_turns(CASES, lambda _, name: name in QUICK))
def test_a_rank_makes_and_lets_go_of_what_pytorch_does(name, tmp_path):
    case = CASES[name]
    config = json.loads((step_dump.CONFIGS / f"{case['family']}.json").read_text(encoding="utf-8"))
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, EXPERTS[case["family"]]: 8}), encoding="utf-8")
    words = {**WORDS, **{key: value for key, value in case.items() if key != "family"}}
    oracle = memory_oracle.run_oracle(memory_oracle.read_config(path), memory_oracle.Options(**words), count_saved=False)
    ours = step_dump.run(path, **words)
    before = [event["live"] for event in ours["events"] if event["step"] < 2]
    expected = trace_compare.flatten(trace_compare.events_of(oracle, 1), trace_compare.start_bytes(oracle, 1))
    actual = trace_compare.flatten([event for event in ours["events"] if event["step"] == 2], before[-1])
    outcome = trace_compare.compare_blocks(expected, actual)
    assert outcome.equal, outcome.report


def test_each_family_has_a_plan_of_transformers():
    from transformers import CONFIG_MAPPING

    for family in EXPERTS:
        config = json.loads((step_dump.CONFIGS / f"{family}.json").read_text(encoding="utf-8"))
        plan = CONFIG_MAPPING[config["model_type"]].base_model_ep_plan
        assert "ep_dispatch_experts" in plan.values(), family
