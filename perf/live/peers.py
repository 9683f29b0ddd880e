#!/usr/bin/env python3
"""Our load generator beside vLLM's and GuideLLM's own: tokens by second, and by second of processor.

    peers.py --build build/release --vllm PYTHON --guidellm PYTHON [--streams 64 256] [--jsonl FILE]
    peers.py --table FILE

PYTHON is the interpreter of the environment that has the peer. One that is not there is skipped, loudly.

Each client keeps so many streams open against a test server of its own, and is watched from outside for --seconds
in the middle of its run: tokens by the server's own counter, processor time by the kernel's account of the
client's threads, of all its processes. What a client does before and behind (imports, prompts, percentiles) is
not counted. Servers: `ceiling` answers as fast as it can, which may be its limit and not the client's;
`behind` does, too, but writes 68 events (16 KB) at a time: what a client that is behind finds in the kernel, so
that none is limited by the server (`behind_20`: 20 of them); `paced` takes 20 ms a step, so that each token comes alone, as a model's do.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

INPUT, OUTPUT = 60, 340
FAST = ("base_ms=0.05", "per_sequence_ms=0")
SERVERS = {"behind": (*FAST, "chunks_per_write=68"), "behind_20": (*FAST, "chunks_per_write=20"), "ceiling": FAST,
           "paced": ("base_ms=20", "per_sequence_ms=0")}
ALWAYS = ("prefill_us=0", "max_running=4096", "has_all_fields=1")
VLLM_MAIN = ("import argparse; from vllm.benchmarks.serve import add_cli_args, main; "
             "p = argparse.ArgumentParser(); add_cli_args(p); main(p.parse_args())")


def ours(words, url, streams):
    return [f"{words.build}/perf/headroom_live_perf", "ceiling", url, str(streams), "600", str(INPUT), str(OUTPUT)]


def vllm(words, url, streams):
    return [words.vllm, "-c", VLLM_MAIN, "--backend", "openai", "--base-url", url, "--endpoint", "/v1/completions",
            "--model", "test", "--tokenizer", words.tokenizer, "--dataset-name", "custom", "--dataset-path",
            words.prompts, "--skip-chat-template", "--custom-output-len", str(OUTPUT), "--num-prompts",
            str(words.requests), "--max-concurrency", str(streams), "--disable-tqdm", "--ignore-eos"]


def guidellm(words, url, streams):
    # The test server has no /health.
    return [words.guidellm, "-m", "guidellm", "run", "--backend",
            f"kind=openai_http,target={url},model=test,validate_backend=false,request_format=/v1/completions",
            "--profile", f"kind=concurrent,streams={streams}", "--constraint", "kind=max_duration,seconds=600",
            "--data", f"kind=json_file,path={words.prompts}", "--tokenizer",
            f"kind=huggingface_auto,model={words.tokenizer}", "--disable-console-interactive"]


CLIENTS = {"headroom": ours, "vllm": vllm, "guidellm": guidellm}


def version_of(python, name):
    """None where it is not installed."""
    if not python:
        return None
    asked = subprocess.run([python, "-c", f"from importlib.metadata import version; print(version('{name}'))"],
                           capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def make_inputs(words, folder):
    """A tokenizer of a thousand words, and prompts: what the peers' command lines ask for."""
    made = ("import sys; from tokenizers import Tokenizer, models, pre_tokenizers; "
            "from transformers import PreTrainedTokenizerFast; "
            "t = Tokenizer(models.WordLevel({'<unk>': 0} | {f'w{i}': i + 1 for i in range(1000)}, unk_token='<unk>')); "
            "t.pre_tokenizer = pre_tokenizers.WhitespaceSplit(); "
            "PreTrainedTokenizerFast(tokenizer_object=t, unk_token='<unk>').save_pretrained(sys.argv[1])")
    words.tokenizer, words.prompts = f"{folder}/tokenizer", f"{folder}/prompts.jsonl"
    python = words.vllm or words.guidellm
    if python:
        subprocess.run([python, "-c", made, words.tokenizer], check=True, capture_output=True)
    lines = (json.dumps({"prompt": f"{number} " + "w7 " * (INPUT - 1), "output_tokens_count": OUTPUT})
             for number in range(words.requests))
    Path(words.prompts).write_text("\n".join(lines) + "\n")


@contextlib.contextmanager
def server(words, law):
    with subprocess.Popen([f"{words.build}/tests/headroom_test_server", *SERVERS[law], *ALWAYS],
                          stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGTERM)


@contextlib.contextmanager
def client(command, log):
    with subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True,
                          env={**os.environ, "HF_HUB_OFFLINE": "1"}) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def tokens_sent(url):
    with urllib.request.urlopen(url + "/metrics", timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("vllm:generation_tokens_total"):
                return float(line.split()[-1])
    raise SystemExit("the test server tells no tokens")


def family(pid):
    """A process and what it has started, and what those have."""
    found = [pid]
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in thread.read_text().split():
                found += family(int(child))
    return found


def processor_seconds(pid):
    nanoseconds = 0
    for one in family(pid):
        for thread in Path(f"/proc/{one}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                nanoseconds += int(thread.read_text().split()[0])
    return nanoseconds * 1e-9


def wait_for_load(url, process, log):
    """Until tokens flow, and the first prompts and connections are behind."""
    until = time.monotonic() + 180
    while tokens_sent(url) == 0:
        if process.poll() is not None or time.monotonic() > until:
            log.seek(0)
            raise SystemExit("no token was asked for:\n" + log.read().decode()[-2000:])
        time.sleep(0.2)
    time.sleep(4)


def measure(words, name, law, streams):
    with server(words, law) as (server_pid, url), tempfile.TemporaryFile() as log, \
            client(CLIENTS[name](words, url, streams), log) as process:
        wait_for_load(url, process, log)
        began, tokens = time.monotonic(), tokens_sent(url)
        used, served = processor_seconds(process.pid), processor_seconds(server_pid)
        time.sleep(words.seconds)
        if process.poll() is not None:
            raise SystemExit(f"{name} ended before its time: more --requests")
        tokens = tokens_sent(url) - tokens
        used, served = processor_seconds(process.pid) - used, processor_seconds(server_pid) - served
        passed = time.monotonic() - began
    return {"client": name, "server": law, "streams": streams, "seconds": round(passed, 3), "tokens": int(tokens),
            "tokens_per_second": round(tokens / passed), "processor_us_per_token": round(1e6 * used / tokens, 3),
            "client_cores": round(used / passed, 3), "server_cores": round(served / passed, 3)}


def table(rows):
    """Markdown, of the medians; a ratio is the peer's to ours, so that more is better for us in both."""
    print("| server | streams | client | tokens/s | ours, times | us of processor a token | ours, times less | "
          "cores of client, server |\n|---|---|---|---|---|---|---|---|")
    for law, streams in dict.fromkeys((row["server"], row["streams"]) for row in rows):
        def middle(name, key, law=law, streams=streams):
            return statistics.median(row[key] for row in rows
                                     if (row["client"], row["server"], row["streams"]) == (name, law, streams))
        for name in dict.fromkeys(row["client"] for row in rows):
            rate, cost = middle(name, "tokens_per_second"), middle(name, "processor_us_per_token")
            more = middle("headroom", "tokens_per_second") / rate
            print(f"| {law} | {streams} | {name} | {rate:,.0f} | {more:.1f} | "
                  f"{cost:.2f} | {cost / middle('headroom', 'processor_us_per_token'):.1f} | "
                  f"{middle(name, 'client_cores'):.2f}, {middle(name, 'server_cores'):.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--vllm")
    parser.add_argument("--guidellm")
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--servers", nargs="+", default=["behind", "ceiling", "paced"], choices=list(SERVERS))
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--requests", type=int, default=8000, help="of vLLM's, whose number is fixed before")
    parser.add_argument("--clients", nargs="+", default=list(CLIENTS), choices=list(CLIENTS))
    parser.add_argument("--jsonl")
    parser.add_argument("--table", help="of a file that --jsonl wrote; nothing is measured")
    words = parser.parse_args()
    if words.table:
        table([json.loads(line) for line in Path(words.table).read_text().splitlines()])
        return
    names = ["headroom"]
    for name in (name for name in words.clients if name != "headroom"):
        version = version_of(getattr(words, name), name)
        print(f"{name} {version}" if version else
              f"SKIPPED: {name} is not installed where --{name} says; nothing is compared with it", file=sys.stderr)
        names += [name] if version else []
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        make_inputs(words, folder)
        # One after another within a round, so that what else the machine does meets all alike.
        for _ in range(words.rounds):
            for law in words.servers:
                for streams in words.streams:
                    for name in names:
                        rows.append(measure(words, name, law, streams))
                        print(json.dumps(rows[-1]), file=sys.stderr)
                        if words.jsonl:
                            Path(words.jsonl).write_text("".join(json.dumps(row) + "\n" for row in rows))
    table(rows)


if __name__ == "__main__":
    main()
