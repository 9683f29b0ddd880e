"""`headroom bench nongemm` on the CPU with models of a few thousand parameters, end to end.

Nothing here judges how fast this machine is, or which share is the larger: CI's machines are busy.
"""

import gzip
import json
import os
import subprocess
import sys

import pytest

from headroom import nongemm_models, nongemm_onnx, nongemm_probe, nongemm_visits

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 64,
        "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256}
# Where an engine is the subject: exporting takes time by the layer.
SHALLOW = {**TINY, "num_hidden_layers": 2}
# A module of a user's, as nobody has seen one, and one that fails when it is run.
OWN = '''
import torch

class Odd(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(64, 64)

    def forward(self, x):
        return torch.fft.rfft(self.inner(x)).abs()

class Broken(Odd):
    def forward(self, x):
        raise ValueError("this engine cannot do that")

def build():
    return Odd(), torch.rand(8, 64)

def broken():
    return Broken(), torch.rand(8, 64)
'''


def headroom(binary, *arguments, cwd, python=sys.executable, timeout=300):
    if "--results" not in arguments and arguments[0] == "bench":
        arguments += ("--threads", "1")  # tests run beside one another
    return subprocess.run([binary, *arguments], cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False,
                          env={**os.environ, "HEADROOM_PYTHON": str(python)})


@pytest.fixture(scope="module")
def measured(headroom_binary, tmp_path_factory):
    """A model whole, a failure, and a module of a user's: three processes of the runner."""
    folder = tmp_path_factory.mktemp("nongemm")
    (folder / "tiny.json").write_text(json.dumps(TINY))
    (folder / "own.py").write_text(OWN)
    done = headroom(headroom_binary, "bench", "nongemm", "tiny.json", "own.py:broken", "./own.py:build", "--batches", "1",
                    "--engine", "pytorch", "--seconds", "0.05", "--decode", "--keep", "kept", "--json", cwd=folder)
    assert done.returncode == 5, done.stderr
    return folder, json.loads(done.stdout)


def rows_of(answer, model):
    return {(row["setting"]["quantize"], row["setting"]["phase"]): row for row in answer["rows"]
            if row["setting"]["model"] == model}


def test_every_setting_is_measured_or_says_why_not(measured):
    folder, answer = measured
    assert answer["schema"] == "headroom.bench_nongemm/1"
    rows = rows_of(answer, "tiny.json")
    assert set(rows) == {(quantize, phase) for quantize in ("none", "int8") for phase in ("forward", "decode")}
    for row in rows.values():
        assert row["provenance"] == "measured" and row["measured_layers"] == []
        assert row["gemm_pct"] > 0 and row["nongemm_pct"] > 0
        assert row["gemm_pct"] + row["attention_pct"] + row["nongemm_pct"] == pytest.approx(100)
        groups = {group["name"]: group["ms"] for group in row["groups"]}
        assert groups["unclassified"] < 0.01 * sum(groups.values())
    reasons = {(one["setting"]["model"], one["setting"]["phase"]): one["reason"] for one in answer["not_measured"]}
    assert reasons["own.py:broken", "forward"] == "ValueError: this engine cannot do that"
    assert "does not decode" in reasons["./own.py:build", "decode"]


def test_a_module_that_nobody_has_seen(measured):
    _, answer = measured
    own = rows_of(answer, "./own.py:build")
    assert ("none", "forward") in own
    assert own["none", "forward"]["parameters"] == 64 * 64 + 64


def test_it_goes_on_where_it_was(measured, headroom_binary):
    """What is there is not measured again, so that no Python is needed."""
    folder, answer = measured
    done = headroom(headroom_binary, "bench", "nongemm", "tiny.json", "--batches", "1", "--engine", "pytorch", "--decode",
                    "--keep", "kept", "--json", cwd=folder, python="/nowhere/python")
    assert done.returncode == 0, done.stderr
    again = rows_of(json.loads(done.stdout), "tiny.json")
    assert again == rows_of(answer, "tiny.json")
    shown = headroom(headroom_binary, "bench", "nongemm", "--results", "kept/results.jsonl", cwd=folder)
    assert shown.returncode == 5
    assert "this engine cannot do that" in shown.stdout


def test_traces_are_what_ops_reads(measured, headroom_binary):
    folder, _ = measured
    traces = sorted((folder / "kept").glob("tiny.json-*forward*none-none-whole*"))
    done = headroom(headroom_binary, "ops", traces[0].name, "--json", cwd=folder / "kept")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["steps"]) == 1


def test_the_whole_of_few_layers(headroom_binary, tmp_path):
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    done = headroom(headroom_binary, "bench", "nongemm", "tiny.json", "--composed", "--batches", "1", "--seconds", "0.05",
                    "--engine", "pytorch", "--quantize", "none", "--keep", "kept", "--json", cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr  # on a busy machine two layers may be as quick as one
    lines = [json.loads(line) for line in (tmp_path / "kept" / "results.jsonl").read_text().splitlines()]
    assert [line["layers"] for line in lines[1:]] == [1, 2]
    assert all(line["layers_of_model"] == 4 for line in lines[1:])
    answer = json.loads(done.stdout)
    for row in answer["rows"]:
        assert row["provenance"] == "extrapolated" and row["measured_layers"] == [1, 2]


def test_onnx_runtime_is_there_or_says_what_is_missing(headroom_binary, tmp_path):
    (tmp_path / "tiny.json").write_text(json.dumps(SHALLOW))
    done = headroom(headroom_binary, "bench", "nongemm", "tiny.json", "--batches", "1", "--seconds", "0.05",
                    "--engine", "onnxruntime", "--fuse", "none,all", "--quantize", "none,int8,int4", "--keep", "kept",
                    "--json", cwd=tmp_path)
    answer = json.loads(done.stdout)
    fusions = [(row["setting"]["quantize"], row["setting"]["fusion"]) for row in answer["rows"]]
    try:
        nongemm_onnx.load_library()
    except nongemm_models.Refused as refusal:
        assert done.returncode == 4 and not fusions
        assert {one["reason"] for one in answer["not_measured"]} == {str(refusal)}
        pytest.skip(f"ONNX Runtime is {refusal}")
    assert done.returncode == 0, answer["not_measured"]
    assert fusions == [(quantize, fusion) for quantize in ("none", "int8", "int4") for fusion in ("none", "all")]
    for row in answer["rows"]:
        groups = {group["name"]: group["ms"] for group in row["groups"]}
        assert groups["gemm"] > 0 and groups["unclassified"] < 0.01 * sum(groups.values())
        assert (groups["quantize"] > 0) == (row["setting"]["quantize"] == "int8")
    trace = gzip.open(next((tmp_path / "kept").glob("*int4-none*.trace.json.gz")), "rt").read()
    assert "MatMulNBits" in trace


def test_a_type_that_onnx_runtime_has_not_is_refused_in_its_words(headroom_binary, tmp_path):
    for package in ("onnxruntime", "onnx", "onnxscript"):
        pytest.importorskip(package)
    (tmp_path / "tiny.json").write_text(json.dumps(SHALLOW))
    answers = {}
    for dtype, engine, quantize in (("float16", "onnxruntime", "none,int8"),
                                    ("bfloat16", "pytorch,onnxruntime", "none,int4")):
        done = headroom(headroom_binary, "bench", "nongemm", "tiny.json", "--batches", "1", "--seconds", "0.05", "--engine",
                        engine, "--fuse", "none", "--dtype", dtype, "--quantize", quantize, "--keep", "kept", "--json",
                        cwd=tmp_path)
        answers[dtype] = json.loads(done.stdout)
    settings = [row["setting"] for row in answers["bfloat16"]["rows"]]  # of both, since both are kept
    assert {(setting["engine"], setting["dtype"], setting["quantize"]) for setting in settings} >= {
        ("onnxruntime", "fp16", "none"), ("pytorch", "bf16", "none"), ("pytorch", "bf16", "int4")}
    reasons = {(one["setting"]["dtype"], one["setting"]["quantize"]): one["reason"]
               for one in answers["bfloat16"]["not_measured"]}
    assert "quantize what is exported in fp32" in reasons["fp16", "int8"]
    assert ("bf16", "none") not in reasons or reasons["bf16", "none"].startswith("the engine: Could not find")


@pytest.mark.parametrize("model", ["segformer", "swin-t", "whisper-tiny"])
def test_small_models_in_both_engines(headroom_binary, tmp_path, model):
    """Convolutions, windows that roll, an encoder with a decoder: whole, and each in all of its quick settings."""
    for package in ("onnxruntime", "onnx", "onnxscript"):
        pytest.importorskip(package)
    done = headroom(headroom_binary, "bench", "nongemm", model, "--quick", "--seconds", "0.05", "--keep", "kept", "--json",
                    cwd=tmp_path, timeout=900)
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and not answer["not_measured"], answer["not_measured"]
    settings = {tuple(row["setting"][key] for key in ("engine", "quantize", "fusion")) for row in answer["rows"]}
    assert settings == {(engine, quantize, fusion) for quantize in ("none", "int8")
                        for engine, fusion in (("pytorch", "none"), ("onnxruntime", "none"), ("onnxruntime", "all"))}
    assert len({row["parameters"] for row in answer["rows"]}) == 1  # both engines run the same model
    for row in answer["rows"]:
        groups = {group["name"]: group["ms"] for group in row["groups"]}
        assert groups["gemm"] > 0 and groups["unclassified"] < 0.01 * sum(groups.values())
        assert row["covered_pct"] < 100.5  # operators do not run longer than the run that they are in
        assert "its output is not finite" not in row["notes"]


@pytest.mark.full  # Inductor compiles C++ for a minute
def test_compiled_beside_eager(headroom_binary, tmp_path):
    (tmp_path / "tiny.json").write_text(json.dumps(dict(TINY, num_hidden_layers=2)))
    done = headroom(headroom_binary, "bench", "nongemm", "tiny.json", "--batches", "1", "--engine", "pytorch,compiled",
                    "--quantize", "none", "--seconds", "0.05", "--keep", "kept", "--json", cwd=tmp_path)
    assert done.returncode in (0, 1, 5), done.stderr
    answer = json.loads(done.stdout)
    rows = {row["setting"]["engine"]: row for row in answer["rows"]}
    if "compiled" not in rows:  # no compiler here: the engine's own words are in the record
        assert answer["refused"] or done.returncode == 5
        return
    assert rows["compiled"]["setting"]["fusion"] == "all" and rows["pytorch"]["setting"]["fusion"] == "none"
    trace = gzip.open(next((tmp_path / "kept").glob("*compiled*.trace.json.gz")), "rt").read()
    assert "cpp_fused" in trace  # the profile names fused kernels


def test_a_profile_is_cut_into_its_runs():
    def run(at, length):
        return [{"cat": "Node", "name": f"node_{at}", "ts": at + 1, "dur": length - 2},
                {"cat": "Session", "name": "model_run", "ts": at, "dur": length}]
    load = {"cat": "Session", "name": "session_initialization", "ts": 0, "dur": 5}
    runs = nongemm_onnx.runs_of([load, *run(10, 3), *run(20, 9), *run(40, 7)])
    assert [[event["name"] for event in one] for one in runs] == [
        [f"node_{at}", "model_run"] for at in (10, 20, 40)]


def test_traces_are_written_where_they_are_asked_for(tmp_path, monkeypatch):
    """Of a first run that is followed by others nothing is; of these each once."""
    machine = nongemm_probe.Machine(torch, "cpu")
    written = []
    plain = torch.profiler.profile.export_chrome_trace
    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace",
                        lambda self, path: (written.append(self), plain(self, path))[1])
    first, then = nongemm_probe.Profiler(machine), nongemm_probe.Profiler(machine)
    first.once(lambda: torch.rand(8).exp())
    runs = [then.once(lambda: torch.rand(8).sin()) for _ in range(3)]
    assert not written
    profiled = then.keep(runs, str(tmp_path / "a.trace.json.gz"))
    assert len(written) == len(set(map(id, written))) == 3 and profiled.runs == 3
    with gzip.open(tmp_path / profiled.typical, "rt") as typical:
        names = {event["name"] for event in json.load(typical)["traceEvents"]}
    assert "aten::sin" in names and "aten::exp" not in names
    assert then.profiles == [None] * 3


def test_on_a_gpu_a_trace_is_written_before_the_next_session_clears_it(monkeypatch):
    """There the first one's is, and of the others that of each which is quicker than all before it."""
    machine = nongemm_probe.Machine(torch, "cpu")
    profiler = nongemm_probe.Profiler(machine)
    machine.is_cuda = True  # from here on, for the profiler alone
    taken = iter((9.0, 3.0, 4.0, 2.0, 2.5))
    texts = iter(range(9))
    monkeypatch.setattr(nongemm_probe, "written", lambda profiled: json.dumps({"number": next(texts)}))
    monkeypatch.setattr(profiler.stopwatch, "settle", lambda: None)
    monkeypatch.setattr(profiler.stopwatch, "once", lambda call: (call(), profiler.stopwatch.undisturbed.append(0.0), next(taken))[2])
    profiler.activities = [torch.profiler.ProfilerActivity.CPU]
    for _ in range(5):
        profiler.once(lambda: torch.rand(8).exp())
    assert [bool(profile) for profile in profiler.profiles] == [True, False, False, True, False]
    assert profiler.trace(3) == {"number": 2} and profiler.trace(0) == {"number": 0}


def test_a_graph_is_for_a_gpu(headroom_binary, tmp_path):
    (tmp_path / "tiny.json").write_text(json.dumps(dict(TINY, num_hidden_layers=2)))
    done = headroom(headroom_binary, "bench", "nongemm", "tiny.json", "--batches", "1", "--engine", "graphed",
                    "--seconds", "0.05", "--keep", "kept", cwd=tmp_path)
    assert done.returncode == 4 and "CUDA graphs are for a GPU" in done.stdout


def test_llm_int8_multiplies_columns_with_outliers_apart():
    """Beside the product itself: one element beyond the threshold would cost all of its row the small steps of int8."""
    from headroom import nongemm_quantize
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 32)
    x = torch.randn(2, 20, 64)
    x[0, 3, 5] = 500.0
    with torch.inference_mode():
        wanted, made = linear(x), nongemm_quantize.LlmInt8Linear(linear)(x)
        few_rows = nongemm_quantize.LlmInt8Linear(linear)(x[:1, :3])
    ordinary = torch.ones(2, 20, dtype=torch.bool)
    ordinary[0, 3] = False
    assert (made - wanted)[ordinary].abs().max() < 0.02 * wanted[ordinary].abs().max()
    assert (made - wanted)[0, 3].abs().max() < 0.02 * wanted[0, 3].abs().max()
    # Padded to as many rows as the product takes; the outlier is not among them, and its column not apart.
    assert (few_rows - wanted[:1, :3]).abs().max() < 0.02 * wanted[:1, :3].abs().max()


def test_shares_rest_on_several_runs(measured, headroom_binary):
    """The typical run's trace is read by `ops` like any other, and is no longer than the quickest one."""
    folder, _ = measured
    lines = [json.loads(line) for line in (folder / "kept" / "results.jsonl").read_text().splitlines()[1:]]
    records = [line for line in lines if line["status"] == "measured"]
    assert records
    for record in records:
        assert record["profiled_runs"] >= 3 and (folder / "kept" / record["typical_trace"]).exists()
        found = []
        for name in (record["typical_trace"], record["trace"]):
            done = headroom(headroom_binary, "ops", name, "--json", cwd=folder / "kept")
            assert done.returncode == 0, done.stderr
            found.append(json.loads(done.stdout)["wall_time"]["total_ms"])
        assert record["profile"]["wall_ms"] == pytest.approx(found[0], rel=1e-3)
        assert found[0] <= 1.001 * found[1]


def test_another_machine_does_not_mix(measured, headroom_binary, tmp_path):
    folder, _ = measured
    header, *rest = (folder / "kept" / "results.jsonl").read_text().splitlines()
    other = json.loads(header)
    other["machine"]["product"] = "another processor"
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "results.jsonl").write_text("\n".join([json.dumps(other), *rest]) + "\n")
    done = headroom(headroom_binary, "bench", "nongemm", str(folder / "own.py:broken"), "--batches", "1", "--engine",
                    "pytorch", "--keep", "kept", cwd=tmp_path)
    assert done.returncode == 2 and "another machine" in done.stderr, done.stderr


@pytest.mark.parametrize("words", [["--dtype", "float64"], ["--on", "tpu"], ["--batches", "0"], ["--models", "swin-x"]])
def test_what_cannot_be_asked(headroom_binary, tmp_path, words):
    done = headroom(headroom_binary, "bench", "nongemm", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert not list(tmp_path.iterdir())


def recipe(**config):
    return nongemm_models.Recipe(torch, {"name": "x", "config": {**TINY, **config}, "inputs": {"tokens": 8}})


def test_layers_that_differ_make_no_whole():
    assert recipe(num_hidden_layers=32).few_layers() == (1, 2)
    with pytest.raises(nongemm_models.Refused, match="do not repeat"):
        recipe(num_hidden_layers=2).few_layers()
    gemma = {"model_type": "gemma3_text", "num_hidden_layers": 12, "sliding_window_pattern": 6}
    with pytest.raises(nongemm_models.Refused, match="do not repeat"):
        nongemm_models.Recipe(torch, {"config": gemma, "inputs": {}}).few_layers()


@pytest.mark.parametrize("config, parameters", [
    ({"model_type": "vit", "num_labels": 1000}, 86567656),
    ({"model_type": "swin", "num_labels": 1000}, 28288354),
])
def test_parameters_are_as_published(config, parameters):
    names = {"vit": "ViTForImageClassification", "swin": "SwinForImageClassification"}
    entry = {"class": names[config["model_type"]], "config": config}
    assert nongemm_models.Recipe(torch, entry).parameters() == parameters


def test_weights_of_four_bits():
    """As far off as half of a level of their group, and what PyTorch's kernel makes of them is their product."""
    from headroom import nongemm_quantize
    generator = torch.Generator().manual_seed(1)
    linear = torch.nn.Linear(128, 48)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(48, 128, generator=generator) * 0.02 + 0.01)
    part = nongemm_quantize.Int4Linear(linear)
    found = (part(torch.eye(128)) - linear.bias).t()
    steps = linear.weight.detach().view(48, 4, 32)
    steps = (steps.amax(-1) - steps.amin(-1)).repeat_interleave(32, dim=1) / 15
    error = (found - linear.weight).abs()
    assert (error <= 0.51 * steps).all() and error.mean() > 0.1 * steps.mean()
    x = torch.randn(2, 3, 128, generator=generator)
    assert torch.allclose(part(x), x @ found.t() + linear.bias, atol=1e-4)
    assert not nongemm_quantize.Int4Linear.takes(torch.nn.Linear(100, 48))


def test_a_model_of_which_little_is_quantized_is_refused():
    from headroom import nongemm_quantize
    module = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 3), torch.nn.Linear(32, 16))
    with pytest.raises(nongemm_models.Refused, match="holds 1 % of"):
        nongemm_quantize.int4(module)
    module = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3), torch.nn.Linear(32, 16))
    _, notes = nongemm_quantize.int4(module)
    assert len(notes) == 1 and notes[0].startswith("int4 is 46 % of its weights")


def test_weights_are_random_and_of_real_size():
    module = recipe().make()
    weights = dict(module.named_parameters())
    assert weights["model.layers.0.mlp.up_proj.weight"].std().item() == pytest.approx(0.02, rel=0.1)
    assert weights["model.embed_tokens.weight"].std().item() == pytest.approx(1, rel=0.1)
    assert weights["model.norm.weight"].eq(1).all()
    first, second = (weights[f"model.layers.{layer}.mlp.up_proj.weight"] for layer in (0, 1))
    assert not torch.equal(first, second)


def test_frozen_normalization_normalizes():
    module = torch.nn.BatchNorm2d(4)
    for name in ("weight", "bias"):
        delattr(module, name)
        module.register_buffer(name, torch.full((4,), float("nan")))
    owner = torch.nn.Sequential(module, torch.nn.Conv2d(4, 8, 3))
    nongemm_models.fill(torch, owner)
    assert module.weight.eq(1).all() and module.bias.eq(0).all()
    assert owner[1].weight.std().item() == pytest.approx(36 ** -0.5, rel=0.2)


def test_a_median_is_as_sure_as_its_samples():
    assert nongemm_visits.half_width([1.0] * 9) == 0
    assert nongemm_visits.half_width([1.0, 2.0, 3.0]) > nongemm_visits.half_width([1.0, 2.0, 3.0] * 9)


def test_a_python_that_says_nothing_leaves_nothing(headroom_binary, tmp_path):
    done = headroom(headroom_binary, "bench", "nongemm", "bert", "--engine", "pytorch", "--keep", "run", cwd=tmp_path,
                    python="/bin/false")
    assert done.returncode == 4, done.stderr
    assert "HEADROOM_PYTHON" in done.stderr and not (tmp_path / "run" / "results.jsonl").exists()
