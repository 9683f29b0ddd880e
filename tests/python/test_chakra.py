"""`headroom ops` on Chakra's execution traces, encoded by Google's protobuf (tests/data/chakra_messages.py)."""

import gzip
import json
import subprocess

import pytest

from conftest import REPO


@pytest.fixture
def chakra(monkeypatch):
    pytest.importorskip("google.protobuf")
    monkeypatch.syspath_prepend(str(REPO / "tests" / "data"))
    import chakra_messages
    return chakra_messages


def ops(binary, *words, code=0):
    done = subprocess.run([binary, "ops", *map(str, words), "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


@pytest.mark.parametrize("packed", [False, True])
def test_an_execution_trace_gives_the_same_in_both_forms(headroom_binary, chakra, tmp_path, packed):
    """PyTorch's own, recorded, and the same nodes as messages: what they add to the profiler's trace is the same."""
    source = REPO / "tests" / "data" / "execution_trace.json.gz"
    kineto = REPO / "tests" / "data" / "execution_kineto.json.gz"
    with gzip.open(source) as file:
        data = chakra.converted(json.load(file))
    messages = tmp_path / "no.ending"
    messages.write_bytes(gzip.compress(data) if packed else data)
    by_json = ops(headroom_binary, kineto, "--execution-trace", source, "--device", "cpu,fp32=400GFLOPS,bandwidth=40GB/s")
    by_messages = ops(headroom_binary, kineto, "--execution-trace", messages, "--device", "cpu,fp32=400GFLOPS,bandwidth=40GB/s")
    assert by_messages == by_json
    assert by_json["roofline"]["operators"], "else no shape came through"


def test_what_stands_in_the_file_is_what_is_counted(headroom_binary, chakra, tmp_path):
    names = ["void gemm_kernel", "elementwise_kernel", "ncclDevKernel_AllReduce", "Memcpy DtoD (Device -> Device)"]
    nodes = [chakra.node(1, "aten::mul", 5, is_cpu_op=True, rf_id=1, tid=1, op_schema="aten::mul(Tensor a) -> Tensor")]
    expected = {}
    for i in range(200):
        name, duration = names[i % 4], i * i % 97
        expected[name] = expected.get(name, 0) + duration
        launcher = {"ctrl": [1], "data": [1]} if i % 2 else {}
        nodes.append(chakra.node(2 + i, name, duration, is_cpu_op=False, stream=("int32_val", i % 3), **launcher))
    trace = tmp_path / "trace.et"
    trace.write_bytes(chakra.framed([chakra.metadata(), *nodes]))
    answer = ops(headroom_binary, trace)
    counted = {}
    for row in answer["kernels"]:
        counted[row["name"]] = counted.get(row["name"], 0) + row["kernel_ms"] * 1000
    assert counted == pytest.approx(expected)
    unlinked = sum(i * i % 97 for i in range(0, 200, 2))
    total = sum(expected.values())
    assert answer["coverage"]["unlinked_pct_of_kernel_time"] == pytest.approx(100 * unlinked / total)
    assert answer["kernel_time"]["total_ms"] == pytest.approx(total / 1000)
    assert answer["nongemm_bench"]["total_ms"] == pytest.approx((total - unlinked + 5) / 1000)


def test_says_nothing_of_times_that_a_file_lacks(headroom_binary, chakra, tmp_path):
    trace = tmp_path / "trace.et"
    trace.write_bytes(chakra.framed([chakra.metadata(), chakra.node(1, "kernel", 5, is_cpu_op=False)]))
    answer = ops(headroom_binary, trace)
    assert answer["trace"]["has_starts"] is False
    assert answer["bound"] == "no_starts"
    assert answer["wall_time"] is None and answer["replay"] is None
    assert answer["steps"] == [] and answer["horizon"] == []
    assert "can be held against no other" in ops(headroom_binary, trace, trace, code=3)
    page = tmp_path / "page.html"
    subprocess.run([headroom_binary, "ops", trace, "--html", page], check=True, capture_output=True)
    text = page.read_text()
    assert "id=\"operators\"" in text and "id=\"timeline\"" not in text and "Wall time" not in text


def test_starts_are_passed_over(headroom_binary, chakra, tmp_path):
    answers = []
    for apart in (0, 10):
        trace = tmp_path / "trace.et"
        nodes = [chakra.node(i, "kernel", 5, start=apart * i, is_cpu_op=False, stream=7) for i in range(1, 5)]
        trace.write_bytes(chakra.framed([chakra.metadata(), *nodes]))
        answers.append(ops(headroom_binary, trace))
    assert answers[0] == answers[1]
    assert answers[0]["wall_time"] is None and answers[0]["backlog_ms"] is None
    assert answers[0]["kernel_time"]["total_ms"] == pytest.approx(0.020)


def test_older_schemas_are_refused_in_words(headroom_binary, chakra, tmp_path):
    """0.0.3 had texts where there are times now (fields 5 to 10) and attributes at 11."""
    old = b"\x08\x01" + b"\x12\x01a" + b"\x18\x04" + b"\x2a\x02[]" + b"\x32\x02[]" + b"\x3a\x02[]"
    trace = tmp_path / "trace.et"
    trace.write_bytes(chakra.framed([chakra.metadata()]) + bytes([len(old)]) + old)
    assert "before 0.0.4" in ops(headroom_binary, trace, code=3)
