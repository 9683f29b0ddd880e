"""The oracle against hand-computed cases, against plain eager runs, and against itself."""

import copy
import difflib
import json
import os

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.fake_tensor import unset_fake_temporarily as fake_tensors_off
from torch.nn.attention import SDPBackend, sdpa_kernel

from families import CONFIGS, FAMILIES
from headroom import memory_oracle, trace_compare
from headroom.allocation_recorder import AllocationRecorder, ModulePaths
from headroom.attention_backends import force_sdpa
from headroom.plain_tensor_rules import register_kernels
from plain_allocations import plain_changes, recorded_changes

torch.autograd.set_multithreading_enabled(False)
torch.set_num_threads(1)
register_kernels()


@pytest.fixture
def fake():
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        yield mode


def changes(recorder):
    return [(e["op"].removeprefix("aten."), e["allocs"], e["frees"])
            for e in recorder.events if e["allocs"] or e["frees"]]


def trace_of(name, **over):
    family = FAMILIES[name]
    config = memory_oracle.read_config(CONFIGS / f"{name}.json")
    options = memory_oracle.Options(head=family.head)
    for key, value in over.items():
        assert hasattr(options, key)
        setattr(options, key, value)
    return memory_oracle.run_oracle(config, options)


# -- by hand --------------------------------------------------------------------------------------


def test_a_temporary_dies_before_the_next_operator(fake):
    recorder = AllocationRecorder()
    with recorder:
        a = torch.empty(4, 8, device="cuda:0")
        b = torch.empty(4, 8, device="cuda:0")
        y = (a * b).sin()
        del y
        recorder.mark("after")
    assert changes(recorder) == [
        ("empty.memory_format", [128], []), ("empty.memory_format", [128], []),
        ("mul.Tensor", [128], []), ("sin.default", [128], [128, 128])]
    assert [e["live"] for e in recorder.events] == [128, 256, 384, 512, 256]
    assert recorder.peak_bytes == 512
    assert [nbytes for _, nbytes, _ in recorder.peak_live] == [128] * 4


def test_a_view_keeps_its_base_and_allocates_nothing(fake):
    recorder = AllocationRecorder()
    with recorder:
        a = torch.empty(4, 8, device="cuda:0", dtype=torch.bfloat16)
        row = a[1].view(2, 4)
        del a
        recorder.mark("view alive")
        del row
    assert recorder.events[-1]["op"] == "view alive"
    assert recorder.events[-1]["live"] == 64
    assert recorder.events[-1]["frees"] == [64]
    assert recorder.live_bytes == 0


def test_tensors_of_another_device_are_not_counted(fake):
    recorder = AllocationRecorder()
    with recorder:
        host = torch.empty(1000)
        there = host.to("cuda:0")
        assert recorder.live_bytes == 4000
        del there
    assert recorder.live_bytes == 0


def test_an_exception_leaves_nothing_behind(fake):
    recorder = AllocationRecorder()
    with recorder:
        try:
            product = torch.empty(2, 3, device="cuda:0") * 2.0
            raise ValueError(product.shape)
        except ValueError:
            del product
        assert recorder.live_bytes == 0


def test_a_linear_layer_forward_and_backward_by_hand(fake):
    layer = torch.nn.Linear(8, 16, device="cuda:0")
    recorder = AllocationRecorder(module_paths=ModulePaths(torch.nn.Sequential(layer)))
    with recorder:
        x = torch.empty(4, 8, device="cuda:0")
        recorder.phase = "forward"
        loss = layer(x).relu().sum()
        recorder.phase = "backward"
        loss.backward()
        recorder.mark("end")
    assert changes(recorder) == [
        ("empty.memory_format", [128], []),
        ("addmm.default", [256], []),
        ("relu.default", [256], []),
        ("detach.default", [], [256]),              # relu saves its output; the sum of addmm dies
        ("sum.default", [4], []),
        ("ones_like.default", [4], []),
        ("threshold_backward.default", [256], [256]),  # the saved output of relu
        ("mm.default", [512], []),                  # the gradient of the weight
        ("sum.dim_IntList", [64], []),              # the gradient of the bias
        ("view.default", [], [256]),                # the gradient of addmm's output
        ("detach.default", [], [4]),                # the seed: backward()'s own frame holds it
    ]
    assert recorder.live_bytes == 128 + 4 + 512 + 64


def test_softplus_backward_is_laid_out_as_its_kernel_does(fake):
    def strides(device):
        gradient = torch.empty(2, 4, 16, device=device).transpose(1, 2)
        x = torch.empty(2, 16, 4, device=device)
        return torch.ops.aten.softplus_backward(gradient, x, 1.0, 20.0).stride()

    with fake_tensors_off():
        plain = strides("cpu")
    assert strides("cuda:0") == plain == (64, 1, 16)


def test_the_module_of_a_backward_operator_is_that_of_its_forward(fake):
    model = torch.nn.Sequential()
    model.add_module("first", torch.nn.Linear(8, 8, bias=False, device="cuda:0"))
    model.add_module("second", torch.nn.Linear(8, 8, bias=False, device="cuda:0"))
    paths = ModulePaths(model)
    recorder = AllocationRecorder(module_paths=paths)
    with paths, recorder:
        loss = model(torch.empty(4, 8, device="cuda:0")).sum()
        recorder.phase = "backward"
        loss.backward()
    products = [e["module"] for e in recorder.events
                if e["op"] == "aten.mm.default" and e["phase"] == "backward"]
    assert products == ["second", "second", "first"]
    assert torch.nn.Module.__call__.__qualname__.startswith("Module.")


# -- what a watching mode changes -----------------------------------------------------------------


def test_gradients_that_meet_are_added_in_place(fake):
    x = torch.empty(4, 8, device="cuda:0", requires_grad=True)
    recorder = AllocationRecorder()
    with recorder:
        y = x * 1.0
        loss = (y.sin() * 2.0).sum() + (y.cos() * 3.0).sum()
        loss.backward()
    operators = [e["op"] for e in recorder.events]
    assert "aten.add_.Tensor" in operators
    assert operators.count("aten.add.Tensor") == 1  # the sum of the two losses


@pytest.mark.parametrize("step", [
    lambda x, i: x.gather(1, i), lambda x, i: x[i[0]], lambda x, i: x.index_select(0, i[0]),
    lambda x, i: x.topk(2, dim=-1).values, lambda x, i: x.max(dim=-1).values])
def test_formulas_that_fill_zeros_do_so_in_place(fake, step):
    x = torch.empty(4, 8, device="cuda:0", requires_grad=True)
    index = torch.zeros(4, 3, dtype=torch.int64, device="cuda:0")
    recorder = AllocationRecorder()
    with recorder:
        loss = step(x, index).sum()
        recorder.phase = "backward"
        loss.backward()
    whole = [e for e in recorder.events if e["phase"] == "backward" and 128 in e["allocs"]]
    assert len(whole) == 1, [e["op"] for e in whole]


def test_silu_backward_is_one_operator(fake):
    x = torch.empty(4, 8, device="cuda:0", requires_grad=True)
    recorder = AllocationRecorder()
    with recorder:
        torch.nn.functional.silu(x).sum().backward()
    assert "aten.silu_backward.default" in [e["op"] for e in recorder.events]


# A CPU kernel's own temporaries: not seen from Python, and not made by the CUDA kernel.
_CPU_KERNELS = ("layer_norm", "embedding", "cumsum", "conv", "repeat", "pow", "topk", "sort")

_PLAIN = [("llama", {}), ("gpt2", {}), ("t5", {}), ("mixtral", {}), ("bloom", {}),
          ("llama", {"attention": "sdpa"}), ("mistral", {"attention": "sdpa"}),
          ("gpt2", {"implementation": "loop", "clip": 1.0}),
          ("gpt2", {"lora_rank": 4, "lora_targets": ("c_attn",), "lora_dropout": 0.1})]
if os.environ.get("HEADROOM_TEST_ALL"):
    _PLAIN = [(name, {}) for name in FAMILIES] + _PLAIN[5:]


@pytest.mark.parametrize("name, over", _PLAIN, ids=str)
def test_equals_a_plain_eager_run(name, over):
    """A first step on the CPU, optimizer included: what is recorded against the allocator's own
    report of the same step with no mode active. SDPA is PyTorch's own math path there."""
    family = FAMILIES[name]
    options = memory_oracle.Options(head=family.head, backend="cpu", dtype="float32",
                                    attention="eager", experts="eager")
    for key, value in over.items():
        setattr(options, key, value)

    def prepared():
        torch.manual_seed(0)
        config = memory_oracle.read_config(CONFIGS / f"{name}.json")
        return memory_oracle.TrainingRun(config, copy.copy(options))

    watched, alone = prepared(), prepared()
    watched.recorder.events = []
    with force_sdpa("math"), watched.paths, watched.recorder:
        _one_step(watched)
        watched.recorder.mark("end")
    with sdpa_kernel(SDPBackend.MATH):
        plain = plain_changes(lambda: _one_step(alone))
    recorded = recorded_changes(watched.recorder.events)
    _only_cpu_kernels_differ([c for c in recorded if abs(c[0]) > 8],
                             [c for c in plain if abs(c[0]) > 8])


def _one_step(run):
    torch.manual_seed(1)
    batch = memory_oracle.make_inputs(run.config, run.options, run.device)
    run.forward(batch).backward()
    if run.options.clip:
        torch.nn.utils.clip_grad_norm_(run.trainable, run.options.clip, foreach=True)
    run.optimizer.step()


def _only_cpu_kernels_differ(seen, plain):
    matcher = difflib.SequenceMatcher(None, [s for s, _ in seen], [s for s, _ in plain],
                                      autojunk=False)
    for kind, low, high, start, stop in matcher.get_opcodes():
        if kind == "equal":
            continue
        assert kind == "insert", (kind, seen[low:high], plain[start:stop])
        around = " ".join(name for _, name in plain[max(0, start - 2):stop + 2])
        named = any(word in around for word in _CPU_KERNELS)
        small = all(abs(size) <= 64 for size, _ in plain[start:stop])
        assert named or small, (plain[start:stop], around)


# -- attention ------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend, operator", [
    ("flash", "aten._scaled_dot_product_flash_attention"),
    ("efficient", "aten._scaled_dot_product_efficient_attention"),
    ("cudnn", "aten._scaled_dot_product_cudnn_attention")])
def test_each_kernel_is_called_with_its_backward(fake, backend, operator):
    def tensor():
        return torch.empty(2, 16, 6, 8, device="cuda:0", dtype=torch.bfloat16,
                           requires_grad=True)

    q, k, v = tensor(), tensor(), tensor()
    recorder = AllocationRecorder()
    with force_sdpa(backend), recorder:
        output = torch.nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        forward = recorder.live_bytes
        output.sum().backward()
    operators = [e["op"] for e in recorder.events]
    assert f"{operator}.default" in operators
    assert f"{operator}_backward.default" in operators
    # The output, the logsumexp in fp32 (efficient rounds the length up to 32), and the seeds.
    length = 32 if backend == "efficient" else 16
    seeds = {"flash": 16 + 8, "efficient": 16, "cudnn": 16}[backend]
    assert forward == 2 * 16 * 6 * 8 * 2 + 2 * 6 * length * 4 + seeds
    assert q.grad.shape == q.shape


@pytest.mark.parametrize("length, padded", [(16, 0), (13, 2 * 13 * 16 * 2)])
def test_the_efficient_kernel_gets_an_aligned_mask(fake, length, padded):
    q = torch.empty(2, 6, length, 8, device="cuda:0", dtype=torch.bfloat16)
    mask = torch.empty(2, 1, length, length, device="cuda:0", dtype=torch.bfloat16)
    recorder = AllocationRecorder()
    with force_sdpa("efficient"), recorder:
        torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    pads = [e["allocs"] for e in recorder.events if e["op"] == "aten.constant_pad_nd.default"]
    assert pads == ([[padded]] if padded else [])


def test_flash_saves_no_attention_matrix():
    flash = trace_of("llama", attention="sdpa", sdpa="flash", seq=40)
    eager = trace_of("llama", attention="eager", seq=40)
    matrix = 2 * 6 * 40 * 40
    saved = [n for e in flash["steps"][1]["events"] for n in e["allocs"] if n >= 2 * matrix]
    assert saved.count(4 * matrix) == 0
    assert (eager["saved_for_backward_bytes"] - flash["saved_for_backward_bytes"]) > 2 * 2 * matrix


# -- steps ----------------------------------------------------------------------------------------


def test_states_appear_in_the_first_step_and_stay():
    trace = trace_of("llama", attention="sdpa")
    parameters = trace["construct"]["live_bytes"]
    first, second = trace["steps"]
    weights = sum(2 * _count(p) for p in trace["parameters"] if "tied_to" not in p)
    assert first["live_at_start_bytes"] == parameters
    assert first["live_at_end_bytes"] == parameters + 2 * weights
    assert second["live_at_start_bytes"] == second["live_at_end_bytes"]
    # The foreach path holds one more copy of the parameters at its peak.
    peak = second["peak"]["bytes"]
    assert second["peak"]["op"] == "aten._foreach_sqrt.default"
    assert peak == parameters + 2 * weights + 2 * weights + _loss_bytes()


def _count(parameter):
    total = 1
    for extent in parameter["shape"]:
        total *= extent
    return total


def _loss_bytes():
    return 4


@pytest.mark.parametrize("implementation", ["fused", "loop", "foreach"])
def test_every_implementation_runs_and_ends_alike(implementation):
    trace = trace_of("gpt2", implementation=implementation)
    first, second = trace["steps"]
    states = first["live_at_end_bytes"] - first["live_at_start_bytes"]
    weights = sum(2 * _count(p) for p in trace["parameters"] if "tied_to" not in p)
    # The fused kernel keeps its step counters (4 bytes each) on the device.
    counters = {"fused": 4 * sum("tied_to" not in p for p in trace["parameters"])}
    assert states == 2 * weights + counters.get(implementation, 0)
    assert second["live_at_end_bytes"] == second["live_at_start_bytes"]


@pytest.mark.parametrize("kind", ["reentrant", "non_reentrant"])
def test_checkpointing_recomputes_in_the_backward(kind):
    plain = trace_of("llama", attention="sdpa")
    less = trace_of("llama", attention="sdpa", checkpointing=kind)

    def products(trace):
        return sum(e["op"] == "aten.mm.default" and e["module"].startswith("model.layers")
                   for e in trace["steps"][1]["events"] if e["phase"] == "backward")

    held = [t["steps"][1]["marks"]["held_by_forward_bytes"] for t in (plain, less)]
    assert held[1] < held[0] / 2
    # 7 linear layers in each of 2 layers: once more forward. The region that is not re-entrant
    # stops when all that it has to save is there: each time before the last product, whose output
    # nobody saves.
    assert products(less) == products(plain) + (14 if kind == "reentrant" else 12)
    assert less["steps"][1]["live_at_end_bytes"] == plain["steps"][1]["live_at_end_bytes"]


def test_autocast_casts_each_weight_once_and_keeps_it_for_the_backward():
    trace = trace_of("llama", attention="sdpa", dtype="float32", autocast="bfloat16")
    weight = 48 * 88 * 2
    casts = [e for e in trace["steps"][1]["events"]
             if e["phase"] == "forward" and "mlp" in e["module"]
             and e["op"] == "aten._to_copy.default" and weight in e["allocs"]]
    assert len(casts) == 6


def test_lora_trains_only_the_adapters():
    trace = trace_of("llama", attention="sdpa", lora_rank=4)
    trainable = [p for p in trace["parameters"] if p["requires_grad"]]
    assert trainable and all("lora_" in p["name"] for p in trainable)
    states = trace["steps"][0]["live_at_end_bytes"] - trace["steps"][0]["live_at_start_bytes"]
    width = {"float32": 4, "bfloat16": 2}[trainable[0]["dtype"]]
    assert states == 2 * width * sum(_count(p) for p in trainable)


def test_nothing_is_saved_without_gradients():
    trace = trace_of("llama", attention="sdpa", task="infer", steps=1)
    step = trace["steps"][0]
    assert "saved_for_backward_bytes" not in trace
    assert step["live_at_end_bytes"] == step["live_at_start_bytes"]


def test_dropout_saves_one_byte_an_element():
    trace = trace_of("gpt2", attention="sdpa")
    masks = [e for e in trace["steps"][1]["events"] if e["op"] == "aten.native_dropout.default"]
    assert masks and all(e["allocs"][0] == 2 * e["allocs"][1] for e in masks)


def test_experts_get_balanced_shares():
    trace = trace_of("mixtral", experts="eager", steps=1)
    rows = [int(a["answer"]) for a in trace["data_answers"]
            if a["asked"] == "nonzero" and a["module"] == "model.layers.0.mlp.experts"]
    assert set(rows) == {5, 12, 13}  # five experts are hit; 2 x 16 tokens x 2 over five experts


@pytest.mark.parametrize("name", ["opt", "gpt_neox", "gemma2", "deepseek_v3", "gpt_oss", "vit"])
def test_steady_state_repeats_itself(name):
    trace = trace_of(name, attention="eager", steps=3)
    second, third = trace["steps"][1:]
    assert trace_compare.compare({"events": second["events"]}, {"events": third["events"]}).equal


# -- files and the comparator ---------------------------------------------------------------------


def test_config_files_are_those_of_the_table():
    on_disk = {path.stem: json.loads(path.read_text()) for path in CONFIGS.glob("*.json")}
    assert on_disk == {name: family.config for name, family in FAMILIES.items()}


def _events(*changes_of_live):
    live, events = 0, []
    for allocated, freed in changes_of_live:
        live += sum(allocated)
        events.append({"op": "x", "module": "", "phase": "forward", "allocs": allocated,
                       "frees": freed, "live": live})
        live -= sum(freed)
    return {"schema": "headroom.events/1", "events": events}


def test_comparison_looks_at_changes_not_at_names_or_grouping():
    one = _events(([100, 50], []), ([20], [50, 100]))
    two = _events(([100], []), ([50, 0], []), ([20], [100]), ([], [50]))
    assert trace_compare.compare(one, two).equal


def test_comparison_points_at_the_first_difference():
    one = _events(([100], []), ([50], [100]), ([30], []))
    late = _events(([100], []), ([50], []), ([30], [100]))
    outcome = trace_compare.compare(one, late)
    assert not outcome.equal
    assert outcome.first_divergence == 2
    assert "not released by actual [100]" in outcome.report
    bigger = _events(([100], []), ([51], [100]), ([30], []))
    assert "expected 50" in trace_compare.compare(one, bigger).report
    longer = _events(([100], []), ([50], [100]), ([30], []), ([1], []))
    assert "goes on" in trace_compare.compare(one, longer).report


def test_command_line_writes_what_the_library_returns(tmp_path):
    out, dump = tmp_path / "trace.json", tmp_path / "trace.txt"
    code = memory_oracle.main(["--family", "llama", "--attention", "sdpa", "--steps", "1",
                               "--out", str(out), "--dump", str(dump)])
    trace = json.loads(out.read_text())
    assert code == 0
    assert trace["schema"] == "headroom.oracle/1"
    assert trace["options"]["attention"] == "sdpa"
    assert dump.read_text().count("\n") > len(trace["steps"][0]["events"])
    assert trace_compare.main([str(out), str(out), "--step", "0"]) == 0
