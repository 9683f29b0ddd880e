"""tools/batch/silicon_rows.py mends rows as the benchmark's own configurations say, and no others."""

import csv
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/batch"))

import silicon_rows  # noqa: E402

PLAIN = {"silicon_data_source": "source_file=a.csv; measured=2026-03-01", "backend": "sglang",
         "backend_version": "0.5.9", "model_path": "Qwen/Qwen3.5-397B-A17B", "system": "b200_sxm", "precision": "fp8",
         "mode": "agg", "isl": "1024", "osl": "1024", "batch_size": "4", "tp_size": "4", "pp_size": "1",
         "attention_dp_size": "1", "moe_tp_size": "1", "moe_ep_size": "4", "silicon_ttft_ms": "100.25",
         "silicon_tpot_ms": "5.0896"}


def read(folder, rows, **more):
    path = folder / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, PLAIN)
        writer.writeheader()
        writer.writerows({**PLAIN, **row} for row in rows)
    return silicon_rows.read(path, **more)


def test_gpus_that_were_multiplied_are_divided_again_and_counted_once(tmp_path):
    rows, apart = read(tmp_path, [{}, {"tp_size": "16", "moe_tp_size": "4", "silicon_tpot_ms": "5.09"}])
    assert [row["tp_size"] for row in rows] == ["4"]
    assert apart == {"a measurement that is there already": 1}


def test_as_many_gpus_as_a_machine_has_stay(tmp_path):
    rows, _ = read(tmp_path, [{"moe_tp_size": "2", "moe_ep_size": "2"}, {"tp_size": "72", "moe_tp_size": "72",
                                                                         "moe_ep_size": "1"}])
    assert [row["tp_size"] for row in rows] == ["4", "72"]


def test_speculation_stands_apart(tmp_path):
    r1 = {"model_path": "deepseek-ai/DeepSeek-R1", "backend": "trtllm"}
    rows, apart = read(tmp_path, [
        {**r1, "backend_version": "1.2.0rc6.post3"},
        {**r1, "backend_version": "1.2.0rc6.post2", "batch_size": "8"},
        {**r1, "backend_version": "1.1.0rc2.post2", "batch_size": "16",
         "silicon_data_source": "measured=2026-01-14T00:00:00"},
        {**r1, "backend_version": "1.1.0rc2.post2", "batch_size": "32",
         "silicon_data_source": "measured=2025-12-15T00:00:00"}])
    assert [row["batch_size"] for row in rows] == ["8", "32"]
    assert apart == {"speculating (multi-token prediction)": 2}


def test_the_cache_is_in_fp8_where_the_scripts_say_so(tmp_path):
    other = {"silicon_data_source": "/data/aic-auto-gap-analysis/x.csv", "batch_size": "16"}
    rows, _ = read(tmp_path, [{}, {"precision": "bf16", "batch_size": "8"}, other])
    assert [row["kv_dtype"] for row in rows] == ["fp8", "", ""]


def test_as_written_leaves_all_as_it_is(tmp_path):
    rows, apart = read(tmp_path, [{"tp_size": "64", "moe_tp_size": "8", "moe_ep_size": "8"}, {}, {},
                                  {"mode": "disagg"}], as_written=True)
    assert [row["tp_size"] for row in rows] == ["64", "4", "4"]
    assert apart == {"disaggregated": 1}
    assert all(row["kv_dtype"] == "" for row in rows)
