"""The rows of AIConfigurator's silicon_sample.csv, read as they were measured.

Most of its rows are runs of InferenceX (github.com/SemiAnalysisAI/InferenceX, Apache-2.0; as of commit 843c6254f and its
history), whose configurations say what the rows leave out or have wrong; no time decides any of it:

- tp_size is tp x ep in the imports of 2026-04: measurements that are in the file twice, equal in all digits, have 4 and
  4 once and 16 and 4 once (8 and 64). More GPUs than are in such a machine, and tp_size = moe_tp_size x moe_ep_size with
  moe_tp_size = moe_ep_size: tp_size is moe_tp_size.
- The same measurement is there up to three times, also under two names (DeepSeek-R1's as DeepSeek-V3's): once is enough.
- TensorRT-LLM 1.2.0rc6.post3 was the image of the runs with multi-token prediction alone (dsr1-*-trt-mtp; without it
  rc6.post2), and what was measured with 1.1.0rc2.post2 on 2026-01-14 is that of the same configurations, added on
  2026-01-07: the time of a token is not that of a step, and the rows do not say how many tokens a step makes.
- Its scripts of weights in fp8 and fp4 have the cache in fp8, of vLLM, TensorRT-LLM and SGLang; those in bf16 do not.
"""

import collections
import csv

SETTING = ("backend", "backend_version", "model_path", "system", "precision", "isl", "osl", "tp_size", "pp_size",
           "attention_dp_size", "moe_tp_size", "moe_ep_size", "kv_dtype")
DEEPSEEK = ("deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V3")
MOST_IN_A_MACHINE = 8
# Of the files of other people's runs, which name no script.
OTHER_RUNS = "aic-auto-gap-analysis"


def with_true_parallelism(row):
    tp, moe_tp, moe_ep = (int(row[name] or 1) for name in ("tp_size", "moe_tp_size", "moe_ep_size"))
    if tp > MOST_IN_A_MACHINE and tp == moe_tp * moe_ep and moe_tp == moe_ep:
        row.update(tp_size=str(moe_tp), moe_tp_size="1")


def speculates(row):
    if row["model_path"] not in DEEPSEEK or row["backend"] != "trtllm":
        return False
    version = row["backend_version"]
    return version == "1.2.0rc6.post3" or (
        version == "1.1.0rc2.post2" and "measured=2026-01-14" in row["silicon_data_source"])


def cache_type(row):
    is_of_scripts = OTHER_RUNS not in row["silicon_data_source"]
    return "fp8" if is_of_scripts and row["precision"] in ("fp8", "fp4") else ""


def measurement(row):
    """What is equal of the same measurement, some of which are rounded to a hundredth."""
    return (row["system"], row["precision"], row["isl"], row["osl"], row["batch_size"], row["tp_size"],
            row["attention_dp_size"], f"{float(row['silicon_ttft_ms']):.1f}", f"{float(row['silicon_tpot_ms']):.2f}")


def read(path, as_written=False):
    """(rows of one-pool servers, {why: rows that stand apart}). as_written: no row is mended or left out."""
    apart = collections.Counter()
    rows, seen = [], set()
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            row["kv_dtype"] = ""
            if row["mode"] != "agg":
                apart["disaggregated"] += 1
                continue
            if not as_written:
                with_true_parallelism(row)
                if measurement(row) in seen:
                    apart["a measurement that is there already"] += 1
                    continue
                seen.add(measurement(row))
                row["kv_dtype"] = cache_type(row)
                if speculates(row):
                    apart["speculating (multi-token prediction)"] += 1
                    continue
            rows.append(row)
    return rows, apart


def settings(rows):
    """{setting: its rows}"""
    grouped = collections.defaultdict(list)
    for row in rows:
        grouped[tuple(row[name] for name in SETTING)].append(row)
    return dict(sorted(grouped.items()))
