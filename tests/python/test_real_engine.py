"""`headroom batch --url` on a real engine: llama.cpp's server on this machine's processors, with a
model of random weights (tests/tools/llama_server.py).

What is tested is that a real engine is understood: paths, usage, lengths, metrics, its own limit. How
long its steps take is this machine's business, and measured by perf/live/engine.py.
"""

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from conftest import REPO

# In a process of its own: beside PyTorch its library ends the process.
if subprocess.run([sys.executable, "-c", "import gguf, xllamacpp"], capture_output=True, check=False).returncode != 0:
    pytest.skip("xllamacpp (llama.cpp's server) or gguf is not installed", allow_module_level=True)

SLOTS = 8


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    log = open(tmp_path_factory.mktemp("engine") / "log", "w", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, str(REPO / "tests/tools/llama_server.py"), "--slots", str(SLOTS), "--layers", "2",
         "--width", "128"], stdout=subprocess.PIPE, stderr=log, text=True)
    url = process.stdout.readline().strip()
    assert url.startswith("http://"), "the engine did not start"
    yield url
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0
    log.close()


def batch(binary, *words):
    # The engine and other tests share the processors: that the client refuses to measure then is right, and no fault.
    for _ in range(3):
        done = subprocess.run([binary, "batch", *words, "--json"], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "NO_COLOR": "1"}, check=False)
        if "too busy to drive" not in done.stderr:
            return done, json.loads(done.stdout) if done.stdout else {}
    pytest.skip("this machine is too busy to measure a real engine")


LENGTHS = ("--input-tokens", "60", "--output-tokens", "40", "--length-variation", "0.3")


def test_the_best_batch_of_a_real_engine(engine, headroom_binary, tmp_path):
    points = tmp_path / "points.csv"
    done, told = batch(headroom_binary, "--url", engine, "--slo", "itl=3x@2", "--most-batch", str(SLOTS),
                       "--window", "2", *LENGTHS, "--save-points", str(points), "--engine", "llama.cpp")
    # 0: sure or not, an answer; 1: no batch meets the target, on a machine that is taken.
    assert done.returncode in (0, 1), done.stderr
    live = told["live"]
    assert live["api"] == "completions" and live["served_model"].endswith(".gguf")
    assert {1, 2, SLOTS} <= {m["concurrency"] for m in live["measurements"]}
    for measured in live["measurements"]:
        assert measured["failed"] == 0 and measured["ended_early"] == 0
        assert measured["throughput_tokens_per_second"] > 0
        # What its own metrics count is what was asked of it.
        assert measured["server"]["running_mean"] is not None
        assert measured["server"]["running_mean"] <= measured["concurrency"] + 0.5
    # Prompts are as long as was asked, by its own tokenizer.
    assert abs(told["input_tokens_mean"] / 60 - 1) < 0.25
    assert points.read_text(encoding="utf-8").count("\n") == 1 + len(live["measurements"])
    if told["batch_opt"]["value"]:
        assert any(f"--parallel {told['batch_opt']['value']} " in c["command"] for c in told["commands"])


def test_its_own_limit_is_known(engine, headroom_binary):
    done, told = batch(headroom_binary, "--url", engine, "--batches", f"1,{4 * SLOTS}", "--window", "2", *LENGTHS)
    assert done.returncode in (0, 1), done.stderr
    most = told["live"]["measurements"][-1]
    assert most["concurrency"] == 4 * SLOTS and most["server"]["waiting_mean"] > 0
    assert most["batch"] <= SLOTS + 1


def test_the_engine_counts_as_we_do(engine, headroom_binary):
    def written():
        with urllib.request.urlopen(engine + "/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("llamacpp:tokens_predicted_total"))

    before = written()
    done, told = batch(headroom_binary, "--url", engine, "--rate", "8", "--window", "4", *LENGTHS)
    assert done.returncode in (0, 1, 5), done.stderr
    row = told["measured_load"]["rates"][0]
    assert row["failed"] == 0
    # It wrote what came in the window, and what warmed it up before.
    assert written() - before >= 0.8 * 40 * row["requests"]
