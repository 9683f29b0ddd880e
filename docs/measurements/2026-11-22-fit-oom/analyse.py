"""Errors of predicted peaks, and probabilities of out of memory beside what happened.

    headroom fit --against measured.csv --json -o ran.json
    headroom fit --against out.csv --json -o ended.json     # of runs.py
    python3 analyse.py ran.json ended.json
"""

import json
import sys

SHARES = (0, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 1)
BINS = (0.01, 0.99, 1)


def rows_of(path, metric):
    return [row for row in json.load(open(path))["rows"]
            if row["metric"] == metric and row["status"] == "ok"]


def peak_errors(path):
    errors = sorted(row["measured_bytes"] / row["predicted_bytes"] - 1
                    for row in rows_of(path, "peak_allocated") if row["source"] != "liger-op")
    print(f"{len(errors)} measured peaks of steps; (measured - predicted) / predicted")
    for share in SHARES:
        print(f"{share:5.2f} {errors[round(share * (len(errors) - 1))]:8.4f}")


def outcomes(ran, ended):
    runs = [(row["oom_probability"], False, row["id"]) for row in rows_of(ran, "device_used")
            if row["source"] == "fms-acceleration"]
    runs += [(row["oom_probability"], True, row["id"]) for row in rows_of(ended, "device_used")]
    below = 0
    for above in BINS:
        some = [run for run in runs if below <= run[0] < above]
        print(f"called {below:.2f} to {above:.2f}: {len(some):4d} runs, "
              f"{sum(run[0] for run in some):6.2f} expected to end, {sum(run[1] for run in some)} did"
              + (": " + " ".join(f"{run[2]} {run[0]:.2f} {'ended' if run[1] else 'ran'}"
                                 for run in some) if len(some) < 10 else ""))
        below = above
    error = sum((run[0] - run[1]) ** 2 for run in runs) / len(runs)
    share = sum(run[1] for run in runs) / len(runs)
    print(f"all {len(runs)} runs: {sum(run[0] for run in runs):.2f} expected to end, "
          f"{sum(run[1] for run in runs)} did; Brier score {error:.4f}, "
          f"of calling each {share:.2f} {share * (1 - share):.4f}")


if __name__ == "__main__":
    peak_errors(sys.argv[1])
    outcomes(sys.argv[1], sys.argv[2])
