"""`headroom batch --watch` beside the test server while prompts get 200 times as long, and short again; then it goes.

Prints what the watch says, with the seconds since it began. Four minutes. With --stationary SECONDS nothing changes for
so long: prompts and answers have exponential lengths, and all that should be said is the first B_opt.
"""

import argparse
import http.client
import json
import random
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

LAW = ("base_ms=10", "per_sequence_ms=0.5", "kv_us=5", "prefill_us=0", "noise=0.05")
POINTS = "batch,throughput_tokens_per_second,itl_ms\n1,95,10.5\n8,571,14\n64,1523,42\n"
WORDS = {"prompt": 10}
ANSWER = 20


def length(mean, is_fixed):
    return mean if is_fixed else max(1, round(random.expovariate(1 / mean)))


def stream(place, is_fixed):
    while True:
        body = json.dumps({"prompt": "word " * length(WORDS["prompt"], is_fixed),
                           "max_tokens": length(ANSWER, is_fixed), "stream": True})
        try:
            connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--stationary", type=float, metavar="SECONDS", help="nothing changes for so long")
    asked = parser.parse_args()
    with subprocess.Popen([asked.server, *LAW], stdout=subprocess.PIPE, text=True) as server, \
            tempfile.TemporaryDirectory() as folder:
        url = server.stdout.readline().strip()
        points = Path(folder) / "sweep.csv"
        points.write_text(POINTS)
        for _ in range(8):
            threading.Thread(target=stream, args=(urlsplit(url), asked.stationary is None), daemon=True).start()
        began = time.monotonic()
        watch = subprocess.Popen([asked.binary, "batch", "--watch", url, "--points", str(points), "--slo", "itl=60ms",
                                  "--limit", "64"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        def told(words):
            print(f"{time.monotonic() - began:.0f} s: {words.strip()}", flush=True)

        threading.Thread(target=lambda: [told(line) for line in watch.stdout], daemon=True).start()
        changes = ((10, 120), (2000, 75), (10, 75)) if asked.stationary is None else ((10, asked.stationary),)
        for words, seconds in changes:
            WORDS["prompt"] = words
            told(f"prompts of {words} words")
            time.sleep(seconds)
        server.send_signal(signal.SIGTERM)
        told("the server ends")
        time.sleep(8)
        watch.send_signal(signal.SIGINT)
        told(f"the watch ended with {watch.wait(timeout=20)}")


main()
