"""A rank of a pipeline against torch.distributed.pipelining: the order of its passes, and, block by block, what its
stages make and let go of on fake tensors, in a group of processes that is not there; real processes joined by gloo
hold the same parameters, gradients, states and buffers (test_parallel.py).
"""

import itertools
import json

import pytest
import step_dump
from test_exactness import blocks_of_step

from headroom import memory_oracle, trace_compare
from headroom.pipeline_ranks import MIRRORED, class_of, stages_of_rank

LAYERS = {"num_hidden_layers": 6}
CASES = {
    "gpipe": {"schedule": "gpipe"},
    "1f1b": {"schedule": "1f1b"},
    "1f1b-3": {"schedule": "1f1b", "stages": 3, "accumulation": 5},
    "interleaved": {"schedule": "1f1b", "chunks": 2},
    "zero-bubble": {"schedule": "zero-bubble"},
    "zero-bubble-3": {"schedule": "zero-bubble", "stages": 3, "accumulation": 6},
    "zero-bubble-interleaved": {"schedule": "zero-bubble", "chunks": 2},
    "zbv": {"schedule": "zbv", "chunks": 2},
    "zbv-3": {"schedule": "zbv", "chunks": 2, "stages": 3, "accumulation": 7},
    "zbv-few": {"schedule": "zbv", "chunks": 2, "accumulation": 2},
    "dualpipev": {"schedule": "dualpipev", "chunks": 2},
    "dualpipev-3": {"schedule": "dualpipev", "chunks": 2, "stages": 3, "accumulation": 7},
    "tied-zbv": {"schedule": "zbv", "chunks": 2, "family": "llama_tied"},
    "lora-zbv": {"schedule": "zbv", "chunks": 2, "lora_rank": 4},
    "outputs-dualpipev": {"schedule": "dualpipev", "chunks": 2, "keep_outputs": True},
    "outputs-zero-bubble": {"schedule": "zero-bubble", "keep_outputs": True},
    "said-layers": {"schedule": "1f1b", "stage_layers": (5, 1)},
    "said-layers-3": {"schedule": "1f1b", "stages": 3, "accumulation": 5, "stage_layers": (0, 4, 2)},
    "said-layers-interleaved": {"schedule": "1f1b", "chunks": 2, "stage_layers": (1, 1, 3, 1)},
    "said-layers-zbv": {"schedule": "zbv", "chunks": 2, "stage_layers": (2, 1, 3, 0)},
    "outputs": {"schedule": "1f1b", "keep_outputs": True},
    "outputs-gpipe": {"schedule": "gpipe", "keep_outputs": True},
    "sdpa": {"schedule": "1f1b", "attention": "sdpa"},
    "zero-bubble-sdpa": {"schedule": "zero-bubble", "attention": "sdpa"},
    "non-reentrant": {"schedule": "1f1b", "checkpointing": "non_reentrant"},
    "qwen3": {"schedule": "zero-bubble", "family": "qwen3"},
    "mixtral": {"schedule": "1f1b", "family": "mixtral"},
    "tied": {"schedule": "zero-bubble", "family": "llama_tied"},
    "mistral3": {"schedule": "1f1b", "family": "mistral3"},
    "qwen3_vl": {"schedule": "1f1b", "family": "qwen3_vl"},
    "phi3": {"schedule": "gpipe", "family": "phi3"},
    "lora": {"schedule": "1f1b", "lora_rank": 4},
    "lora-3": {"schedule": "1f1b", "stages": 3, "accumulation": 5, "lora_rank": 4},
    "lora-gpipe": {"schedule": "gpipe", "lora_rank": 4},
    "lora-interleaved": {"schedule": "1f1b", "chunks": 2, "lora_rank": 4},
    "lora-zero-bubble": {"schedule": "zero-bubble", "lora_rank": 4},
    "lora-zero-bubble-interleaved": {"schedule": "zero-bubble", "chunks": 2, "lora_rank": 4},
    "lora-non-reentrant": {"schedule": "1f1b", "checkpointing": "non_reentrant", "lora_rank": 4},
    "dora": {"schedule": "1f1b", "lora_rank": 4, "dora": True},
    "dora-interleaved": {"schedule": "1f1b", "chunks": 2, "lora_rank": 4, "dora": True},
    "dora-zero-bubble": {"schedule": "zero-bubble", "lora_rank": 4, "dora": True},
    "ia3": {"schedule": "1f1b", "ia3": True},
    "ia3-gpipe": {"schedule": "gpipe", "ia3": True},
    "ia3-zero-bubble": {"schedule": "zero-bubble", "ia3": True},
}
WORDS = {"batch": 2, "seq": 16, "steps": 2, "implementation": "loop", "dtype": "bfloat16"}


def settings_of(case, stage):
    return {**WORDS, "attention": case.get("attention", "eager"), "checkpointing": case.get("checkpointing", "none"),
            "schedule": case["schedule"], "stages": case.get("stages", 2), "stage": stage,
            "chunks": case.get("chunks", 1), "accumulation": case.get("accumulation", 4),
            "keep_outputs": case.get("keep_outputs", False),
            **{word: case[word] for word in ("lora_rank", "dora", "ia3", "stage_layers") if word in case}}


def as_word(value):
    """As step_dump takes it."""
    if isinstance(value, tuple):
        return ",".join(str(one) for one in value)
    return int(value) if isinstance(value, bool) else value


def written(case, tmp_path):
    family = step_dump.CONFIGS / f"{case.get('family', 'llama')}.json"
    path = tmp_path / "config.json"
    config = json.loads(family.read_text(encoding="utf-8"))
    config.get("text_config", config).update(LAYERS)
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def stages_of_cases():
    """A stage of each, of the next case the next, always; the others in ./test --all."""
    for i, (name, case) in enumerate(CASES.items()):
        stages = case.get("stages", 2)
        for stage in range(stages):
            marks = [] if stage == i % stages else [pytest.mark.full]
            yield pytest.param(name, stage, id=f"{name}-stage{stage}", marks=marks)


@pytest.mark.parametrize(("name", "stage"), list(stages_of_cases()))
def test_a_rank_makes_and_lets_go_of_what_pytorch_does(name, stage, tmp_path):
    case = CASES[name]
    path = written(case, tmp_path)
    settings = settings_of(case, stage)
    config = memory_oracle.read_config(path)
    oracle = memory_oracle.run_oracle(config, memory_oracle.Options(**settings, head=memory_oracle.head_of(config)))
    ours = step_dump.run(path, **{word: as_word(value) for word, value in settings.items()})
    for step in (1, 2):
        expected = trace_compare.flatten(trace_compare.events_of(oracle, step - 1),
                                         trace_compare.start_bytes(oracle, step - 1))
        actual = blocks_of_step(ours, step)
        if 0 < stage < settings["stages"] - (case["schedule"] not in MIRRORED):
            # What a step lets go of before it makes anything is the next step's there and this one's here.
            expected, actual = expected[1:-1], actual[1:-1]
        outcome = trace_compare.compare_blocks(expected, actual)
        assert outcome.equal, f"step {step}: {outcome.report}"


class Stage:
    """As much of a stage as a schedule asks for before it runs."""

    def __init__(self, index, count, rank, ranks):
        self.stage_index, self.num_stages, self.group_rank, self.group_size = index, count, rank, ranks
        self.is_first, self.is_last, self.submod, self.group = index == 0, index == count - 1, None, None
        self.has_backward, self.stage_index_to_group_rank = True, {}
        self.device = "cpu"


def leaves_of(actions):
    """Of actions that two are one of, those."""
    for action in actions:
        if action is not None:
            yield from action.sub_actions or [action]


def pytorch_actions(schedule, stages, rank, chunks, micro_batches):
    """Without what is sent; of one chunk, which has a loop of its own, passes alone."""
    from torch.distributed.pipelining import schedules
    own = stages_of_rank(schedule, stages, rank, chunks)
    of = [Stage(index, stages * chunks, rank, stages) for index in own]
    kind = class_of(schedule, chunks)
    single = kind.__name__ in ("ScheduleGPipe", "Schedule1F1B")
    made = kind(of[0] if single else of, micro_batches, loss_fn=lambda *_: None)
    if single:
        order = made._get_pipeline_order()[rank]
    else:
        order = schedules._add_reduce_grad(schedules._add_unshard_reshard(made.pipeline_order[rank]), micro_batches)
    words = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W",
             **({} if single else {word: word for word in ("UNSHARD", "RESHARD", "REDUCE_GRAD")})}
    return [words[action.computation_type.name] + str(own.index(action.stage_index))
            for action in leaves_of(order) if action.computation_type.name in words]


@pytest.mark.parametrize(("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("1f1b", 2), ("1f1b", 3), ("1f1b", 5),
                                                  ("zero-bubble", 1), ("zero-bubble", 2), ("zero-bubble", 3), ("zbv", 2), ("dualpipev", 2)])
def test_actions_are_in_the_order_of_pytorchs_schedules(schedule, chunks):
    rounds_of = (2, 3, 4) if schedule == "dualpipev" else (1, 2, 3)
    for stages, rounds in itertools.product((2, 3, 4), rounds_of):
        for rank in range(stages):
            micro_batches = rounds * stages + (schedule in MIRRORED and rounds > 2)
            ours = step_dump.run(step_dump.CONFIGS / "llama.json", log="actions", schedule=schedule, stages=stages,
                                 stage=rank, chunks=chunks, accumulation=micro_batches)
            assert ours == pytorch_actions(schedule, stages, rank, chunks, micro_batches), (stages, rank, rounds)
