"""`headroom batch --watch` beside a server of a known law under traffic (tests/tools/test_server_main.cpp).

What is decided when is tested in simulated time (src/batch/watch_test.cpp); here, that the program does it. Nothing
depends on how fast the machine is: traffic changes after what was waited for has been said, and bounds are wide.
"""

import http.client
import json
import os
import signal
import subprocess
import threading
from urllib.parse import urlsplit

import pytest

from test_batch_live import built, serve  # noqa: F401  (a fixture)

POINTS = "batch,throughput_tokens_per_second,itl_ms\n1,95,10.5\n8,571,14\n64,1523,42\n"
LAW = {"base_ms": 10, "per_sequence_ms": 0.5, "kv_us": 5, "prefill_us": 0}


class Traffic:
    """Some streams in a closed loop, whose prompts have `words` words."""

    def __init__(self, url, key, streams=8):
        self.place = urlsplit(url)
        self.headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        self.words = 10
        self.is_over = False
        self.threads = [threading.Thread(target=self.ask, daemon=True) for _ in range(streams)]

    def ask(self):
        while not self.is_over:
            body = json.dumps({"model": "test", "prompt": "word " * self.words, "max_tokens": 20, "stream": True})
            try:
                connection = http.client.HTTPConnection(self.place.hostname, self.place.port, timeout=20)
                connection.request("POST", "/v1/completions", body, self.headers)
                connection.getresponse().read()
                connection.close()
            except (OSError, http.client.HTTPException):  # the server ends before we do
                pass

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True


def start_watch(url, *words, **environment):
    binary = built("src/cli/headroom", "HEADROOM_BINARY")
    return subprocess.Popen([binary, "batch", "--watch", url, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env={**os.environ, **environment})


def wait_for(watch, event):
    for line in watch.stdout:
        report = json.loads(line)
        assert report["schema"] == "headroom.batch.watch/1"
        if report["event"] == event:
            return report
    raise AssertionError(watch.stderr.read())


def changes_until_settled(watch):
    changes = [wait_for(watch, "change")]
    for line in watch.stdout:
        report = json.loads(line)
        if report["event"] == "none":  # the command has ended
            return changes
        changes += [report] if report["event"] == "change" else []
    raise AssertionError(watch.stderr.read())


def test_longer_prompts_are_said_and_a_command_runs(serve, tmp_path):  # noqa: F811
    points = tmp_path / "sweep.csv"
    points.write_text(POINTS)
    told, metrics = tmp_path / "told", tmp_path / "metrics.prom"
    script = tmp_path / "on change.sh"
    script.write_text(f'#!/bin/sh\necho "$1 $HEADROOM_BATCH_BEFORE $HEADROOM_BATCH [$HEADROOM_API_KEY]" >> {told}\n')
    script.chmod(0o755)
    url = serve(api_key="sesame", **LAW)
    with Traffic(url, "sesame") as traffic:
        watch = start_watch(url, "--points", str(points), "--slo", "itl=60ms", "--every", "0.5", "--for", "100",
                            "--json", "--metrics-file", str(metrics), "--on-change", f"'{script}' \"a b\"",
                            HEADROOM_API_KEY="sesame")
        first = wait_for(watch, "first")
        traffic.words = 2000
        changes = changes_until_settled(watch)
        watch.send_signal(signal.SIGINT)
        _, said = watch.communicate(timeout=30)
    # 10 + 0.55 n: 60 ms are reached beyond the largest that was measured.
    assert first["batch_opt"]["value"] == 64 and first["limit_after"] == 64
    assert first["law"] == {"source": str(points), "provenance": "measured"}
    assert 3 < first["present"]["in_flight_mean"] <= 8.5
    # 10 + 10.5 n where all prompts are long: four in flight, or one less. As many as there are streams where it is decided
    # while short ones are in flight still; a step from there to four may be too small to be said.
    values = [change["batch_opt"]["value"] for change in changes]
    assert [change["limit"] for change in changes] == [64, *values[:-1]] and 3 <= values[-1] <= 8
    change = changes[-1]
    assert changes[0]["at_limit"]["itl_ms"]["expected"] > 5 * change["at_batch_opt"]["itl_ms"]["expected"]
    assert told.read_text().splitlines() == [f"a b {old} {new} []" for old, new in zip([64, *values], values)]
    assert f'headroom_batch_changes_total{{url="{url}"}} {len(changes)}\n' in metrics.read_text()
    assert "sesame" not in said + metrics.read_text() + json.dumps(changes)
    assert watch.returncode == 130


def test_the_law_is_learned_and_a_dead_server_is_said(serve):  # noqa: F811
    server = serve(**LAW)
    watch = start_watch(server, "--every", "0.3", "--slo", "itl=60ms", "--for", "4")
    out, said = watch.communicate(timeout=60)
    assert out == "" and watch.returncode == 5  # no traffic, nothing known
    assert "learns" in said and "hardly any tokens" in said and "before B_opt was known" in said


@pytest.mark.parametrize("words, code, said", [
    (("--watch", "http://127.0.0.1:1"), 4, "no server answers"),
    (("--watch", "http://localhost", "--url", "http://localhost"), 2, "no use"),
    (("--watch", "http://localhost", "--slo", "itl=0.5x@32"), 2, "1 at least"),
    (("--watch", "http://localhost", "--on-change", "'a"), 2, "does not end"),
    (("--watch", "http://localhost", "--on-change", " "), 2, "no command"),
    (("--watch", "http://localhost", "--every", "0"), 2, "--every"),
    (("--watch", "http://localhost", "--html", "x.html"), 2, "no use"),
    (("--limit", "4"), 2, "--watch"),
])
def test_what_cannot_be_watched_is_refused(words, code, said):
    done = subprocess.run([built("src/cli/headroom", "HEADROOM_BINARY"), "batch", *words], capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == code
    assert said in done.stderr


def test_servers_whose_metrics_say_nothing(serve):  # noqa: F811
    for law, said in (({"absurd_metrics": 1}, "no histogram of times between tokens"),
                      ({"has_metrics": 0}, "--enable-metrics"), ({"redirects": 1}, "not followed")):
        watch = start_watch(serve(**law), "--for", "2")
        _, told = watch.communicate(timeout=60)
        assert watch.returncode == 4 and said in told, told
