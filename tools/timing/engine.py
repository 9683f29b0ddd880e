"""What a serving engine adds to its kernels: host time and sampling, by sequences in the batch.

    host = base + per_sequence * batch            sampling = per_logit * batch * vocabulary

Fitted on OPT-1.3B of the memory-gap paper's profile runs (vLLM 0.6.3, fp16, H100 64 GB) and judged
on its other models, which no coefficient has seen: the half width is theirs.
"""

import csv

import numpy as np

FITTED_ON = "opt-1.3b"
VOCABULARY = {"opt-1.3b": 50272, "opt-2.7b": 50272, "llama-2-7b": 32000}
LEAST_BATCH = 32  # below it the paper's "other" holds kernels of split products


def points(data):
    """(model, batch, seconds of the step, shares) of the runs that the paper broke down."""
    folder = data / "performance/paper_mindgap"
    steps = {}
    for row in csv.DictReader((folder / "offline_prefill_decode_times.csv").open()):
        if row["experiment"] == "decode_kernels/distinct_kernels":
            steps[row["model"], int(row["batch"])] = float(row["decode_step_ms"]) * 1e-3
    for row in csv.DictReader((folder / "decode_time_shares_by_kernel.csv").open()):
        key = row["model"], int(row["batch"])
        shares = {k[:-4]: float(v) / 100 for k, v in row.items() if k.endswith("_pct")}
        if key in steps:
            yield *key, steps[key], shares


def relative_line(x, y):
    """(a, b) of y = a + b x with the least squared relative error."""
    columns = np.stack([1 / y, x / y], axis=1)
    return np.linalg.lstsq(columns, np.ones(len(y)), rcond=None)[0]


def fit(data):
    rows = list(points(data))
    mine = [r for r in rows if r[0] == FITTED_ON]
    batch = np.array([r[1] for r in mine], float)
    base, per_sequence = relative_line(batch, np.array([r[2] * r[3]["cpu_gap"] for r in mine]))
    large = [r for r in mine if r[1] >= LEAST_BATCH]
    x = np.array([r[1] for r in large], float)
    _, sampling = relative_line(x, np.array([r[2] * r[3]["other"] for r in large]))
    errors = []
    for model, count, step, shares in rows:
        if model != FITTED_ON:
            errors.append(np.log(step * shares["cpu_gap"] / (base + per_sequence * count)))
    return {
        "name": "vllm-0.6.3",
        # Its V1 engine, the default since 0.8, works otherwise: serving-2026 (tools/batch/host_law.py).
        "serves": "vllm",
        "before": "0.8",
        "prompts_whole": True,
        "host_base_seconds": round(float(base), 7),
        "host_seconds_per_sequence": round(float(per_sequence), 9),
        "sampling_seconds_per_logit": float(f"{sampling / VOCABULARY[FITTED_ON]:.3e}"),
        "half_width_log": round(float(np.quantile(np.abs(errors), 0.9)), 4),
        "median_error_pct": round(float(100 * np.median(np.abs(np.expm1(-np.array(errors))))), 2),
        "source": "vLLMBatchingMemoryGap (commit a9186347), Apache-2.0: OPT-1.3B's profile runs on an H100 64 GB;"
        " errors on OPT-2.7B and Llama-2-7B",
    }
