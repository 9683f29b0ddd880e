"""`headroom bench decode` on the CPU with models of a few thousand parameters, end to end.

Nothing here judges how fast this machine is: CI's machines are busy.
"""

import json
import os
import subprocess
import sys

import pytest

from headroom import decode_step, device_probe, nongemm_models, nongemm_probe
from headroom.device_probe import Machine

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 64,
        "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256}


def headroom(binary, *arguments, cwd, python=sys.executable):
    if "--results" not in arguments:
        arguments += ("--threads", "1")  # tests run beside one another
    return subprocess.run([binary, "bench", "decode", *arguments], cwd=cwd, capture_output=True, text=True,
                          timeout=300, check=False, env={**os.environ, "HEADROOM_PYTHON": str(python)})


@pytest.fixture(scope="module")
def measured(headroom_binary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("decode")
    (folder / "tiny.json").write_text(json.dumps(TINY))
    # Of 2 x 2 heads x 16 numbers x 4 bytes a token and layer: the last batch asks for terabytes.
    done = headroom(headroom_binary, "tiny.json", "--batches", "1,3,65536", "--context", "2048", "--seconds", "0.05",
                    "--keep", "kept", "--html", "page.html", "--json", cwd=folder)
    assert done.returncode == 5, done.stderr  # what was asked for and does not fit is missing
    return folder, json.loads(done.stdout)


def test_each_batch_is_measured_or_says_why_not(measured):
    folder, answer = measured
    assert answer["schema"] == "headroom.bench_decode/1" and answer["predicted"] is False
    assert [step["batch"] for step in answer["steps"]] == [1, 3]
    for step in answer["steps"]:
        assert step["provenance"] == "measured" and step["step_ms"]["expected"] > 0
        assert step["attention"]["share_pct"] > 0 and step["matmul"]["share_pct"] > 0
        shares = sum(step[part]["share_pct"] for part in ("attention", "matmul", "other", "host_gap"))
        assert shares == pytest.approx(100)
        assert step["attention"]["time_ms"]["low"] is None
    rest = answer["measured"]["not_measured"]
    assert [(one["batch"], one["status"]) for one in rest] == [(65536, "refused")]
    assert rest[0]["reason"].startswith("does not fit: a cache of")
    for run in answer["measured"]["runs"]:
        assert run["undisturbed_ms"] is None or 0 < run["undisturbed_ms"]
        assert run["quickest_ms"] > 0 and run["profiled_ms"] > 0
    page = (folder / "page.html").read_text()
    assert "Where a step" in page and "Roofline" in page


def test_traffic_is_that_of_the_cache_in_memory(measured):
    """What the step model counts, against what the runner allocated."""
    _, answer = measured
    assert answer["measured"]["not_counted"] is None
    for step in answer["steps"]:
        assert step["kv_cache_bytes"] == step["batch"] * 4 * 2 * 2 * 16 * 4 * 2048
        queries_and_results = step["batch"] * 4 * 2 * 64 * 4
        assert step["attention"]["bytes"] == step["kv_cache_bytes"] + queries_and_results
    assert answer["measured"]["layers"] is None
    assert answer["weights_bytes"] == 4 * sum(parameter.numel() for parameter in recipe().make().parameters())


def test_it_goes_on_where_it_was(measured, headroom_binary):
    """What is there is not measured again, so that no Python is needed."""
    folder, answer = measured
    done = headroom(headroom_binary, "tiny.json", "--batches", "1,3", "--context", "2048", "--keep", "kept", "--json",
                    cwd=folder, python="/nowhere/python")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == answer["steps"]
    shown = headroom(headroom_binary, "tiny.json", "--results", "kept/results.jsonl", cwd=folder)
    assert shown.returncode == 0 and "2048 tokens a sequence" in shown.stdout, shown.stderr
    assert "Batch 65536 not measured: does not fit" in shown.stdout


def test_as_many_layers_as_are_asked_for(headroom_binary, tmp_path):
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    done = headroom(headroom_binary, "tiny.json", "--batches", "2", "--context", "64", "--layers", "1", "--seconds",
                    "0.05", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["measured"]["layers"], answer["measured"]["layers_of_model"]) == (1, 4)
    assert answer["steps"][0]["kv_cache_bytes"] == 2 * 2 * 2 * 16 * 4 * 64
    assert answer["steps"][0]["attention"]["bytes"] == answer["steps"][0]["kv_cache_bytes"] + 2 * 2 * 64 * 4
    assert (tmp_path / "headroom-decode" / "results.jsonl").exists()
    session = nongemm_probe.Session(Machine(torch, "cpu"), {"model": {"config": TINY, "inputs": {}}, "layers": 5})
    with pytest.raises(nongemm_models.Refused, match="4 layers alike, not 5"):
        session.depths({"context": 64, "dtype": "fp32"})


def test_a_device_that_is_lost_in_mid_run_keeps_what_there_is(headroom_binary, tmp_path):
    """The second batch fails as a lost GPU does, and so does all that follows."""
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    stand_in = tmp_path / "lost.py"
    stand_in.write_text("""
import sys
from headroom import decode_step, nongemm_probe
made = decode_step.make_step

def lost(machine, module, dtype, batch, *rest):
    if batch > 1:
        raise RuntimeError("CUDA error: device-side failure\\nCompile with ...")
    return made(machine, module, dtype, batch, *rest)

decode_step.make_step = lost
assert sys.argv[1:3] == ["-m", "headroom.nongemm_probe"]
del sys.argv[1:3]
sys.exit(nongemm_probe.main())
""")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{stand_in}" "$@"\n')
    python.chmod(0o755)
    done = headroom(headroom_binary, "tiny.json", "--batches", "1,2,4", "--context", "64", "--seconds", "0.05",
                    "--json", cwd=tmp_path, python=python)
    assert done.returncode == 5, done.stderr
    answer = json.loads(done.stdout)
    assert [step["batch"] for step in answer["steps"]] == [1]
    assert {one["reason"] for one in answer["measured"]["not_measured"]} == {
        "RuntimeError: CUDA error: device-side failure"}
    kept = (tmp_path / "headroom-decode" / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["status"] for line in kept[1:]] == ["measured", "failed", "failed"]


def recipe(**config):
    return nongemm_models.Recipe(torch, {"name": "x", "config": {**TINY, **config}, "inputs": {"tokens": 8}})


def test_the_cache_is_full_and_written_in_place():
    machine, module = Machine(torch, "cpu"), recipe().make()
    with torch.inference_mode():
        call, held = decode_step.make_step(machine, module, torch.float32, 2, 32, 1 << 30)
        assert held == 4 * 2 * 2 * 2 * 32 * 16 * 4
        seen = []
        handle = module.model.layers[0].self_attn.register_forward_hook(
            lambda _, __, named, ___: seen.append(named["past_key_values"].layers[0].keys), with_kwargs=True)
        logits = [call(), call()]
        handle.remove()
    assert seen[0] is seen[1] and seen[0].shape == (2, 2, 32, 16)
    assert torch.equal(*logits)  # a step changes nothing but what the next one writes again
    assert seen[0].std() > 0.9


def test_a_full_cache_gives_what_a_prompt_gives():
    """The same keys and values as a prompt of the model's own leaves: the same logits."""
    machine, module = Machine(torch, "cpu"), recipe().make()
    words = torch.randint(256, (2, 32), generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        expected = module(words).logits[:, -1]
        own = module(words[:, :-1], use_cache=True).past_key_values
        from transformers.cache_utils import Cache
        full_layer = decode_step.full_cache_class()
        cache = Cache(layers=[full_layer(32, lambda tensor: tensor.zero_()) for _ in own.layers])
        for mine, theirs in zip(cache.layers, own.layers):
            mine.lazy_initialization(theirs.keys, theirs.values)
            mine.keys[:, :, :-1], mine.values[:, :, :-1] = theirs.keys, theirs.values
        logits = module(words[:, -1:], past_key_values=cache, use_cache=True).logits[:, -1]
    assert torch.allclose(logits, expected, atol=1e-4)


def test_what_a_full_cache_would_measure_wrongly_is_refused():
    window = recipe(model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=16)
    decode_step.check_attention(window.config(), 16)
    with pytest.raises(nongemm_models.Refused, match="sliding window of 16 tokens"):
        decode_step.check_attention(window.config(), 17)
    with pytest.raises(nongemm_models.Refused, match="positions for 64 tokens"):
        decode_step.check_attention(recipe(max_position_embeddings=64).config(), 65)


def test_layers_are_as_many_as_fit():
    whole = recipe(num_hidden_layers=64)
    layer = whole.parameters(2) - whole.parameters(1)
    fixed = whole.parameters(1) - layer
    free = (fixed + 10.5 * layer) * 4 / decode_step.ROOM / decode_step.WEIGHTS_OF_ROOM
    assert decode_step.layers_that_fit(whole, 64, 4, free) == 10
    assert decode_step.layers_that_fit(whole, 64, 4, 100 * free) is None
    with pytest.raises(nongemm_models.Refused, match="not even one layer fits"):
        decode_step.layers_that_fit(whole, 64, 4, 1000)


@pytest.mark.parametrize("words", [["--device", "h200"], ["--points", "x.csv"], ["--dtype", "float64"],
                                   ["--context", "1"], ["--layers", "0"], ["--on", "tpu"],
                                   ["--results", "x.jsonl", "--keep", "y"]])
def test_what_cannot_be_asked(headroom_binary, tmp_path, words):
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    done = headroom(headroom_binary, "tiny.json", *words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.json"]


def test_more_layers_than_there_are_are_refused_before_python_starts(headroom_binary, tmp_path):
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    done = headroom(headroom_binary, "tiny.json", "--layers", "5", cwd=tmp_path, python="/nowhere/python")
    assert done.returncode == 2 and "has 4 layers, not 5" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.json"]


def test_a_device_that_is_not_there_leaves_nothing(headroom_binary, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    done = headroom(headroom_binary, "tiny.json", "--on", "cuda:0", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.json"]


def test_a_python_that_says_nothing_leaves_nothing(headroom_binary, tmp_path):
    done = headroom(headroom_binary, "openai-community/gpt2", cwd=tmp_path, python="/bin/false")
    assert done.returncode == 4, done.stderr
    assert "HEADROOM_PYTHON" in done.stderr and not (tmp_path / "headroom-decode" / "results.jsonl").exists()


def test_small_models_tell_what_the_host_takes(monkeypatch):
    monkeypatch.setattr(device_probe, "STEP_SECONDS", 0.01)
    with torch.inference_mode():
        models = device_probe.Steps(Machine(torch, "cpu"), "fp32")
        for _ in range(3):
            models.take()
    steps = models.points()
    assert all(step["samples"] >= 3 for step in steps)
    assert [step["config"]["model_type"] for step in steps] == ["llama", "gpt2"]
    assert all(step["seconds"] > 0 and step["context"] == 64 and step["dtype"] == "fp32" for step in steps)
