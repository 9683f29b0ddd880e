"""What `headroom bench nongemm --keep FOLDER` measured on a GPU, engine by engine, beside what the replay of each trace says.

    python3 perf/gpu/nongemm_table.py FOLDER... [HEADROOM]

Of each model and number of layers: times, then for each trace the horizon of `headroom ops`: how many times as fast with its
launches in a graph, with a host twice as fast, with products that take no time. "times eager" is what was measured.
"""

import json
import subprocess
import sys
from pathlib import Path

ENGINES = ("pytorch", "compiled", "graphed")
CHANGES = ("cuda_graph", "host_2x", "gemm_instant")


def records_of(folder):
    """By model, layers and type, of each engine the record."""
    found = {}
    for line in (Path(folder) / "results.jsonl").read_text().splitlines()[1:]:
        record = json.loads(line)
        setting = record["setting"]
        found.setdefault((setting["model"], record.get("layers"), setting["dtype"]), {})[setting["engine"]] = record
    return found


def horizon_of(headroom, folder, record):
    trace = Path(folder) / record["trace"]
    if not trace.exists():
        return ["no trace"] * len(CHANGES)
    capture = record.get("capture_trace")
    more = ["--capture", str(Path(folder) / capture)] if capture else []
    done = subprocess.run([headroom, "ops", str(trace), *more, "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        return [done.stderr.strip().splitlines()[0][:60]] + [""] * (len(CHANGES) - 1)
    told = {change["change"]: change for change in json.loads(done.stdout)["horizon"]}
    return [f"{told[name]['speedup']:.2f} ({told[name]['speedup_low']:.2f} to {told[name]['speedup_high']:.2f})" if name in told else ""
            for name in CHANGES]


def rows_of(headroom, folder):
    for (model, layers, dtype), records in records_of(folder).items():
        eager = records.get("pytorch", {}).get("seconds")
        for engine in ENGINES:
            record = records.get(engine)
            if record is None:
                continue
            name = [model + (f", {layers} layers" if layers else ""), dtype, engine]
            if record["status"] != "measured":
                yield name + [record["reason"][:90], ""] + [""] * len(CHANGES)
                continue
            quotient = f"{eager / record['seconds']:.2f}" if eager else ""
            yield name + [f"{1e3 * record['seconds']:.2f}", quotient] + horizon_of(headroom, folder, record)


def main():
    folders, headroom = sys.argv[1:], "headroom"
    if folders and not Path(folders[-1]).is_dir():
        headroom = folders.pop()
    if not folders:
        print(__doc__, file=sys.stderr)
        return 2
    print("| " + " | ".join(("model", "type", "engine", "ms", "times eager", *CHANGES)) + " |\n|" + "---|" * (5 + len(CHANGES)))
    for folder in folders:
        for row in rows_of(headroom, folder):
            print("| " + " | ".join(row) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
