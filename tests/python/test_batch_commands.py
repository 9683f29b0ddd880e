"""What `headroom batch` writes to start servers with: the manifest is YAML of the right shape, the script ends with
its servers, and command lines are accepted by the engines' own parsers where these are installed."""

import argparse
import json
import os
import shlex
import signal
import subprocess
import time

import pytest

ASK = ("facebook/opt-1.3b", "--device", "h100-sxm-64gb", "--slo", "itl=2x@32")


def batch(binary, *words):
    return subprocess.run([binary, "batch", *ASK, *words], capture_output=True, text=True, timeout=60, check=False)


def test_the_manifest_is_what_kubernetes_reads(headroom_binary, tmp_path):
    yaml = pytest.importorskip("yaml")
    file = tmp_path / "serve.yaml"
    done = batch(headroom_binary, "--emit", f"kubernetes={file}", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    workload, service = yaml.safe_load_all(file.read_text(encoding="utf-8"))
    assert (workload["kind"], service["kind"]) == ("Deployment", "Service")
    pod = workload["spec"]["template"]
    assert pod["metadata"]["labels"] == workload["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    container, = pod["spec"]["containers"]
    words = container["command"] + container["args"]
    assert " ".join(words).replace(" --host 0.0.0.0", "") == told["commands"][0]["command"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1}
    port, = container["ports"]
    assert port["containerPort"] == service["spec"]["ports"][0]["port"]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_a_manifest_of_every_engine_can_become_ready(headroom_binary, tmp_path, engine):
    yaml = pytest.importorskip("yaml")
    file = tmp_path / "serve.yaml"
    done = batch(headroom_binary, "--engine", engine, "--emit", f"kubernetes={file}")
    assert done.returncode == 0, done.stderr
    workload, service = yaml.safe_load_all(file.read_text(encoding="utf-8"))
    container, = workload["spec"]["template"]["spec"]["containers"]
    words = container["args"]
    assert words[words.index("--host") + 1] == "0.0.0.0"  # where the probe and the service ask
    port = int(words[words.index("--port") + 1])
    assert port == container["readinessProbe"]["httpGet"]["port"] == service["spec"]["ports"][0]["port"]


def test_a_card_of_amds_gets_its_own_resource(headroom_binary, tmp_path):
    file = tmp_path / "serve.yaml"
    assert batch(headroom_binary, "--device", "mi300x", "--emit", f"kubernetes={file}").returncode == 0
    text = file.read_text(encoding="utf-8")
    assert "amd.com/gpu: 1" in text and "nvidia" not in text and "vllm-openai" not in text


# Half of a step waits for the host and no target bounds the batch: two servers gain.
REPLICATED = ("facebook/opt-1.3b", "--device", "h100-sxm-64gb", "--host-gap", "0.5", "--min-efficiency", "0.15",
              "--most-replicas", "2")


def emit(binary, kind, file, *words):
    done = subprocess.run([binary, "batch", *REPLICATED, *words, "--emit", f"{kind}={file}", "--json"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), file.read_text(encoding="utf-8")


def test_replicas_on_one_gpu_start_in_order(headroom_binary, tmp_path):
    yaml = pytest.importorskip("yaml")
    told, text = emit(headroom_binary, "kubernetes", tmp_path / "serve.yaml")
    workload, _, sharing = yaml.safe_load_all(text)
    assert workload["kind"] == "StatefulSet"
    assert workload["spec"]["podManagementPolicy"] == "OrderedReady"
    offered = yaml.safe_load(sharing["data"]["config"])["sharing"]["mps"]["resources"][0]
    assert offered["replicas"] == workload["spec"]["replicas"] == 2
    container, = workload["spec"]["template"]["spec"]["containers"]
    share = float(container["args"][container["args"].index("--gpu-memory-utilization") + 1])
    assert 0 < 2 * share < 0.91
    replicas = next(r for r in told["replicas"] if r["sharing"] == "mps")
    assert f"{replicas['itl_ms']['expected']:.3g} ms" in text.splitlines()[1]


def stub(folder, name, script):
    path = folder / name
    path.write_text("#!/bin/sh\n" + script + "\n")
    path.chmod(0o755)


def run_script(file, folder):
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.Popen(["sh", str(file)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_script_ends_where_a_server_dies(headroom_binary, tmp_path):
    script, log = tmp_path / "serve.sh", tmp_path / "log"
    emit(headroom_binary, "shell", script)
    stub(tmp_path, "nvidia-cuda-mps-control", f'if [ "$1" ]; then echo start >>{log}; else cat >>{log}; fi')
    stub(tmp_path, "curl", "case $* in *:8000/*) exit 0;; esac; exit 7")  # the first one answers
    stub(tmp_path, "vllm", "case $* in *8001*) exit 1;; esac; sleep 30")  # the second one dies
    process = run_script(script, tmp_path)
    assert process.wait(timeout=20) == 1
    assert log.read_text().split() == ["start", "quit"]


def test_a_daemon_that_runs_already_is_left_running(headroom_binary, tmp_path):
    script, log = tmp_path / "serve.sh", tmp_path / "log"
    emit(headroom_binary, "shell", script)
    stub(tmp_path, "nvidia-cuda-mps-control", f'if [ "$1" ]; then echo refused >>{log}; exit 1; else cat >>{log}; fi')
    stub(tmp_path, "curl", "case $* in *:8000/*) exit 0;; esac; exit 7")
    stub(tmp_path, "vllm", "case $* in *8001*) exit 1;; esac; sleep 30")
    process = run_script(script, tmp_path)
    assert process.wait(timeout=20) == 1
    assert log.read_text().split() == ["refused", "get_server_list"]


def test_a_signal_ends_the_script_and_its_servers(headroom_binary, tmp_path):
    script, log = tmp_path / "serve.sh", tmp_path / "log"
    emit(headroom_binary, "shell", script)
    stub(tmp_path, "nvidia-cuda-mps-control", f'if [ "$1" ]; then echo start >>{log}; else cat >>{log}; fi')
    stub(tmp_path, "curl", "exit 7")  # nothing is ever ready
    stub(tmp_path, "vllm", f"trap 'echo ended >>{log}; exit 0' TERM; while :; do sleep 0.1; done")
    process = run_script(script, tmp_path)
    for _ in range(100):
        if log.exists() and "start" in log.read_text():
            break
        time.sleep(0.05)
    time.sleep(0.5)  # until the server has its trap
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 143
    for _ in range(100):
        if len(log.read_text().split()) == 3:
            break
        time.sleep(0.05)
    assert sorted(log.read_text().split()) == ["ended", "quit", "start"]


def test_what_is_asked_of_types_reaches_the_command_or_a_note(headroom_binary):
    done = batch(headroom_binary, "--dtype", "float16", "--quantize", "fp8", "--kv-dtype", "fp8", "--json")
    line = json.loads(done.stdout)["commands"][0]["command"].split()
    assert line[line.index("--dtype") + 1] == "float16"
    assert line[line.index("--quantization") + 1] == "fp8_per_tensor"
    assert line[line.index("--kv-cache-dtype") + 1] == "fp8"
    told = json.loads(batch(headroom_binary, "--quantize", "int4", "--json").stdout)
    assert any("a checkpoint that is quantized already" in note for note in told["notes"])


def test_the_file_is_of_the_server_that_the_first_line_names(headroom_binary, tmp_path):
    file = tmp_path / "serve.sh"
    # A limit and a rate of its own: the best of them are some hundred simulations.
    done = batch(headroom_binary, "--slo", "ttft_p95=5s", "--rate", "2", "--limit", "48", "--emit", f"shell={file}", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert file.read_text(encoding="utf-8").splitlines()[-1] == "exec " + told["commands"][0]["command"]
    assert "--max-num-seqs 48 " in told["commands"][0]["command"] and told["batch_opt"]["value"] != 48


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_each_engine_has_its_words(headroom_binary, engine):
    done = batch(headroom_binary, "--engine", engine, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    line = told["commands"][0]["command"]
    assert told["engine"] == engine and str(told["batch_opt"]["value"]) in line.split()


def test_what_is_no_place_or_engine_says_so(headroom_binary):
    for words in (("--tp", "3"), ("--emit", "helm=x"), ("--emit", "kubernetes"), ("--engine", "ollama"), ("--price", "cheap")):
        done = batch(headroom_binary, *words)
        assert done.returncode == 2 and words[0] in done.stderr, done.stderr


def lines_of(binary, engine):
    asked = (("--slo", "itl=2x@32"), ("--tp", "2", "--pp", "2"), ("--slo", "ttft_p95=500ms"),
             ("--slo", "ttft_p95=500ms", "--no-chunked-prefill"),
             ("--dtype", "float16", "--quantize", "fp8", "--kv-dtype", "fp8"))
    for words in asked:
        done = batch(binary, *words, "--engine", engine, "--json")
        for command in json.loads(done.stdout)["commands"]:
            if not command["command"].startswith(("nvidia-cuda-mps-control", "echo")):
                yield shlex.split(command["command"].split(" & ")[0])


# Installed by hand where this is to be known: both bring a PyTorch and some fifty packages along.
def test_vllms_own_parser_takes_them(headroom_binary):
    pytest.importorskip("vllm", reason="vllm is not installed")
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    for words in lines_of(headroom_binary, "vllm"):
        assert words[:2] == ["vllm", "serve"]
        assert parser.parse_args(words[2:]).max_num_seqs == int(words[words.index("--max-num-seqs") + 1])


def test_sglangs_own_parser_takes_them(headroom_binary):
    pytest.importorskip("sglang", reason="sglang is not installed")
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    for words in lines_of(headroom_binary, "sglang"):
        limit = int(words[words.index("--max-running-requests") + 1])
        assert parser.parse_args(words[3:]).max_running_requests == limit


def test_a_flag_that_counts_once_and_is_given_twice_is_said(headroom_binary):
    done = batch(headroom_binary, "--slo", "itl=20ms", "--slo", "itl=30ms")
    assert done.returncode == 0 and "--slo is given twice: itl=30ms counts" in done.stderr


def test_percentiles_alone_have_no_server_of_the_closed_loop(headroom_binary):
    words = ("--slo", "itl_p99=100ms", "--limit", "8", "--rate", "1000", "--json")
    told = json.loads(batch(headroom_binary, *words).stdout)
    assert [c["title"].startswith("one server for requests as they come") for c in told["commands"]] == [True]
    assert told["open_load"]["is_all_it_can"]  # nothing bounds the wait
    bounded = json.loads(batch(headroom_binary, "--slo", "itl_p99=100ms,ttft_p95=1s", *words[2:]).stdout)
    assert not bounded["open_load"]["is_all_it_can"]


def test_a_file_that_cannot_be_written_leaves_the_answer(headroom_binary, tmp_path):
    done = batch(headroom_binary, "--emit", f"kubernetes={tmp_path}/no/such/folder.yaml")
    assert done.returncode == 3 and "B_opt" in done.stdout and "folder.yaml" in done.stderr


def test_both_kinds_are_written_at_once(headroom_binary, tmp_path):
    script, manifest = tmp_path / "serve.sh", tmp_path / "serve.yaml"
    done = batch(headroom_binary, "--emit", f"shell={script}", "--emit", f"kubernetes={manifest}", "--colocate", "facebook/opt-2.7b")
    assert done.returncode == 0, done.stderr
    assert "vllm serve" in script.read_text() and "kind:" in manifest.read_text()


def test_a_target_that_is_missed_writes_nothing(headroom_binary, tmp_path):
    file = tmp_path / "serve.sh"
    done = batch(headroom_binary, "--slo", "itl=1us", "--emit", f"shell={file}")
    assert done.returncode == 1 and "no batch meets the target" in done.stdout
    assert "is not written" in done.stderr and not file.exists()


MODEL = ("facebook/opt-1.3b", "--device", "h100-sxm-64gb")
URL = ("--url", "http://127.0.0.1:9")  # where nobody answers: 4, if it came to that


@pytest.mark.parametrize("words, place", [
    ((*URL, "--colocate", "facebook/opt-2.7b"), "--colocate"),
    ((*URL, *MODEL, "--tp", "3"), "--tp"),
    ((*URL, *MODEL, "--tp", "100"), "--tp"),
    ((*URL, "--most-replicas", "99"), "--most-replicas"),
    ((*URL, *MODEL, "--colocate", "nobody/knows"), "nobody/knows"),
    ((*URL, *MODEL, "--tp", "2", "--colocate", "facebook/opt-2.7b"), "--colocate"),
    ((*URL, "--rate", "1,2,4", "--time-limit", "60"), "--time-limit"),
    ((*URL, "--rate", "4", "--emit", "shell=x"), "--emit"),
    ((*URL, "--rate", "4", *MODEL, "--colocate", "facebook/opt-2.7b"), "--colocate"),
    ((*URL, "--rate", "4", "--price", "cloud=1"), "--price"),
    ((*URL, "--rate", "4", "--engine", "sglang"), "--engine"),
    ((*URL, "--batches", "1,32", "--most-batch", "64"), "--most-batch"),
    ((*MODEL, "--engine", "llama.cpp", "--tp", "4"), "--engine llama.cpp"),
    ((*MODEL, "--engine", "llama.cpp", "--rate", "4", "--no-chunked-prefill"), "--engine llama.cpp"),
    (("facebook/opt-1.3b", "--device", "mi300x", "--engine", "tensorrt-llm"), "--engine tensorrt-llm"),
    (("facebook/opt-1.3b", "--device", "mi300x", "--colocate", "facebook/opt-2.7b"), "--colocate"),
    (("--watch", "http://127.0.0.1:9", "--emit", "shell=x"), "--emit"),
    (("--watch", "http://127.0.0.1:9", "--price", "cloud=1"), "--price"),
    (("--watch", "http://127.0.0.1:9", "--engine", "sglang"), "--engine"),
    (("--watch", "http://127.0.0.1:9", "--colocate", "x"), "--colocate"),
    (("--watch", "http://127.0.0.1:9", "--batches", "1,2"), "--batches"),
])
def test_what_would_have_no_effect_is_refused_before_anything_is_asked(headroom_binary, words, place):
    done = subprocess.run([headroom_binary, "batch", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and place in done.stderr, (done.returncode, done.stderr)


def test_the_page_shows_what_several_gpus_wait_for(headroom_binary, tmp_path):
    page = tmp_path / "page.html"
    for words, is_there in ((("--tp", "2"), True), ((), False)):
        assert batch(headroom_binary, *words, "--html", str(page)).returncode == 0
        text = page.read_text(encoding="utf-8")
        assert ("collectives at batch" in text) == ("on each of 2 GPUs" in text) == is_there


def test_points_alone_say_nothing_of_types_or_models(headroom_binary, tmp_path):
    points = tmp_path / "sweep.csv"
    points.write_text("batch,throughput_tokens_per_second,itl_ms\n1,250,4\n32,4000,8\n")
    for words, place in ((("--emit", "shell=x"), "--emit"),
                         (("facebook/opt-1.3b", "--quantize", "fp8"), "--quantize")):
        done = subprocess.run([headroom_binary, "batch", "--points", str(points), *words], capture_output=True, text=True,
                              timeout=60, check=False)
        assert done.returncode == 2 and place in done.stderr, done.stderr
