"""What `headroom fit` says of every setting of perf/gpu/methods_memory.py, to be written before it is run.

    python3 predict.py HEADROOM > predictions.csv

Configurations go to configs/, as the measurement writes them. Of a pipeline fit answers for the stage that needs most: of
another it says the peak, and what is reserved or left after the step stays empty.
"""

import csv
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "perf" / "gpu"))
import methods_memory  # noqa: E402
import train_memory  # noqa: E402

SETTINGS, SEED = 66, 20261121  # those that methods_memory.py has where it is not told
MACHINE = ["--device", "h100-sxm-80gb", "--torch", "2.11", "--transformers", "5.17"]
COLUMNS = ("id", "way", "family", "stage", "flags", "peak_allocated_bytes", "after_step_bytes", "peak_reserved_bytes", "refused")


def predicted(headroom, setting):
    config = HERE / "configs" / f"{setting.family}.json"
    command = [headroom, "fit", str(config), *methods_memory.flags_of(setting), *MACHINE, "--search", "false", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        return {"refused": done.stderr.strip().splitlines()[0]}
    answer = json.loads(done.stdout)
    memory = answer["memory"]
    whole = {"peak_allocated_bytes": memory["peak_allocated_bytes"], "after_step_bytes": memory["steady_allocated_bytes"],
             "peak_reserved_bytes": memory["peak_reserved_bytes"]}
    if not setting.schedule:
        return whole
    peaks = [stage["peak_allocated_bytes"] for stage in answer["stages"]]
    is_the_largest = peaks[setting.stage] == max(peaks) and peaks.count(max(peaks)) == 1
    return whole if is_the_largest else {"peak_allocated_bytes": peaks[setting.stage]}


def main():
    headroom = sys.argv[1]
    writer = csv.DictWriter(sys.stdout, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for setting in methods_memory.design(SETTINGS, SEED):
        config = HERE / "configs" / f"{setting.family}.json"
        config.parent.mkdir(exist_ok=True)
        if not config.exists():
            config.write_text(json.dumps(train_memory.make_config(setting.family, False).to_dict(), indent=1, default=str) + "\n")
        writer.writerow({"id": setting.id, "way": setting.way, "family": setting.family,
                         "stage": setting.stage if setting.schedule else "", "flags": " ".join(methods_memory.flags_of(setting)),
                         **predicted(headroom, setting)})


if __name__ == "__main__":
    main()
