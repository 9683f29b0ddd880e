"""What `headroom batch` writes to start servers with: the manifest is YAML of the right shape, and command lines are
accepted by the engines' own parsers where these are installed."""

import argparse
import json
import shlex
import subprocess

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
    assert " ".join(words) == told["commands"][0]["command"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1}
    port, = container["ports"]
    assert port["containerPort"] == service["spec"]["ports"][0]["port"]


def test_replicas_on_one_gpu_start_in_order(headroom_binary, tmp_path):
    yaml = pytest.importorskip("yaml")
    file, script = tmp_path / "serve.yaml", tmp_path / "serve.sh"
    # Half of a step waits for the host: two servers gain.
    words = ("--host-gap", "0.5", "--min-efficiency", "0.02", "--slo", "itl=8x@32", "--most-replicas", "2")
    assert batch(headroom_binary, *words, "--emit", f"kubernetes={file}").returncode == 0
    if "StatefulSet" in file.read_text(encoding="utf-8"):
        workload, _, sharing = yaml.safe_load_all(file.read_text(encoding="utf-8"))
        assert workload["spec"]["podManagementPolicy"] == "OrderedReady"
        offered = yaml.safe_load(sharing["data"]["config"])["sharing"]["mps"]["resources"][0]
        assert offered["replicas"] == workload["spec"]["replicas"] == 2
    assert batch(headroom_binary, *words, "--emit", f"shell={script}").returncode == 0
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0


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
             ("--slo", "ttft_p95=500ms", "--no-chunked-prefill"))
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


def test_a_file_that_cannot_be_written_leaves_the_answer(headroom_binary, tmp_path):
    done = batch(headroom_binary, "--emit", f"kubernetes={tmp_path}/no/such/folder.yaml")
    assert done.returncode == 3 and "B_opt" in done.stdout and "folder.yaml" in done.stderr
    done = batch(headroom_binary, "--slo", "itl=1us", "--emit", f"shell={tmp_path}/serve.sh")
    assert done.returncode == 2 and "no batch meets the target" in done.stdout
