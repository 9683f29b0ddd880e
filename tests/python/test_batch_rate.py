"""`headroom batch --url --rate` against a server of a known law (tests/tools/test_server_main.cpp).

What is tested holds on a busy machine too: there a run may be void (exit 5), which is an answer.
"""

import json

import pytest

from test_batch_live import batch, serve  # noqa: F401: a fixture

SMALL = ("--input-tokens", "20", "--output-tokens", "8", "--length-variation", "0", "--window", "1.5", "--json")
LOW = 20  # requests a second: about one in flight


def rate_of(done, codes=(0, 1, 5)):
    assert done.returncode in codes, done.stderr
    told = json.loads(done.stdout)
    return told, told["measured_load"]["rates"][0]


def test_a_rate_is_measured_and_counts_from_when_it_was_to_be_sent(serve):
    url = serve(base_ms=5, per_sequence_ms=0, prefill_us=0)
    told, load = rate_of(batch("--url", url, "--rate", str(LOW), "--slo", "ttft_p95=60s,itl_p99=60s", *SMALL))
    assert load["requests"] > 20
    assert load["failed"] == 0
    assert abs(load["requests"] / load["window_seconds"] - load["came_per_second"]) < 1e-6
    assert load["ttft"]["p50_ms"] >= 4  # a step, at least, but for the clocks
    assert load["e2e"]["p50_ms"] >= 8 * 4
    assert load["itl"]["count"] == 7 * (load["requests"] - load["unanswered"])
    assert load["output_tokens_mean"] == 8
    assert load["send_lag"]["count"] == load["requests"]
    assert [t["name"] for t in told["measured_load"]["targets"]] == ["ttft_p95", "itl_p99"]
    assert len(load["at_targets_ms"]) == 2
    assert load["provenance"] == "measured"
    assert told["open_load"] is None and told["curve"] == []


def test_what_the_points_predict_stands_beside_it(serve, tmp_path):
    url = serve(base_ms=5, per_sequence_ms=0.5, prefill_us=0)
    points = tmp_path / "sweep.csv"
    law = {n: (5 + 0.5 * n) / 1e3 for n in (1, 8, 64)}
    points.write_text("batch,throughput_tokens_per_second,itl_ms\n" +
                      "".join(f"{n},{n / t:.1f},{t * 1e3:.3f}\n" for n, t in law.items()))
    page = tmp_path / "page.html"
    told, load = rate_of(batch("--url", url, "--rate", str(LOW), "--points", str(points), "--html", str(page), *SMALL))
    predicted = told["open_load"]["rates"][0]
    assert predicted["requests_per_second"] == load["requests_per_second"] == LOW
    assert 5 < predicted["itl"]["p50_ms"]["expected"] < 7  # one or two in flight
    assert load["itl"]["p50_ms"] > 4
    assert "Requests as they come, measured" in page.read_text()


def test_failures_are_counted_and_meet_no_target(serve):
    url = serve(base_ms=2, per_sequence_ms=0, refuse_every=4)
    done = batch("--url", url, "--rate", "40", "--slo", "ttft_p50=60s", "--attain", "0.99", *SMALL)
    _, load = rate_of(done, codes=(1, 5))
    assert load["failures"]["status"] > 0
    assert load["attained_pct"] < 90
    assert load["kept"] == "no"


def test_a_server_that_answers_nothing_is_said(serve):
    url = serve(base_ms=2, refuse_every=1)
    done = batch("--url", url, "--rate", "40", *SMALL)
    assert done.returncode == 4
    assert "was answered" in done.stderr and "503" in done.stderr
    assert batch("--url", "http://127.0.0.1:9", "--rate", "4").returncode == 4


def test_a_search_keeps_what_it_measured_before_the_server_died(serve):
    # 40 requests at 20 a second are kept, 80 at 40 too; it dies in the run behind.
    url = serve(base_ms=2, per_sequence_ms=0, prefill_us=0, die_after=150)
    done = batch("--url", url, "--rate", "search", "--slo", "ttft_p95=60s", *SMALL)
    assert done.returncode == 5, (done.returncode, done.stderr)
    record = json.loads(done.stdout)["measured_load"]
    assert record["search"]["is_stopped"] and record["rates"]
    assert all(rate["kept"] == "yes" or rate["failed"] > 0 or rate["is_void"] for rate in record["rates"])


@pytest.mark.parametrize("words, place", [
    (("--slo", "itl=2x@32"), "--slo"),
    (("--save-points", "x.csv"), "--save-points"),
    (("--rate", "0"), "--rate"),
    (("--rate", "recorded"), "--rate recorded"),
    (("--rate", "1", "--window", "1"), "--window"),
])
def test_what_makes_no_sense_is_refused(serve, words, place):
    url = serve(base_ms=2)
    done = batch("--url", url, "--rate", "40", *words)
    assert done.returncode == 2
    assert place in done.stderr
