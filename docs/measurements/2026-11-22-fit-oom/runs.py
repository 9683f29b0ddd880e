"""Runs that ended out of memory, as rows that `headroom fit --against` reads.

    git clone https://github.com/foundation-model-stack/fms-acceleration   # at 876e2ed
    python3 runs.py measured.csv fms-acceleration/scripts/benchmarks/refs out.csv

The benchmark's tables have a line for each setting; one that ended has no figure of torch's and no
time, only what nvidia-smi showed last. Each becomes a copy of a row of measured.csv that differs in
the batch alone (or, of Mixtral, in batch and model), since only such a row says the whole setting.
Settings without such a row are counted and left out.
"""

import csv
import pathlib
import sys

TABLES = ("a100_80gb", "a100_80gb_granite", "a100_80gb_liger")
PEAK, SHOWN = "mem_peak_torch_mem_alloc_in_bytes", "mem_nvidia_mem_reserved"


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def setting(line, model=None):
    return (line["framework_config"], model or line["model_name_or_path"], line["num_gpus"],
            line["peft_method"], line["torch_dtype"])


def whole(figure):
    return int(float(figure))


def known_settings(measured, table, lines):
    """By setting, a row of measured.csv that says all of it."""
    ran = {(whole(line[PEAK]), line["num_gpus"], whole(line[SHOWN])): line
           for line in lines if line[PEAK]}
    known = {}
    for row in measured:
        if f"/{table}.csv" not in row["url"]:
            continue
        line = ran.get((whole(row["value_bytes"]), row["n_gpus"], whole(row["nvidia_smi_mib"])))
        if line:
            known.setdefault(setting(line), row)
    return known


def main():
    file, folder, out = sys.argv[1:4]
    measured = [row for row in rows_of(file) if row["source"] == "fms-acceleration"]
    ended, left_out = [], 0
    for table in TABLES:
        lines = rows_of(pathlib.Path(folder) / f"{table}.csv")
        known = known_settings(measured, table, lines)
        for number, line in enumerate(lines, start=2):
            if line[PEAK]:
                continue
            row = known.get(setting(line))
            if row is None and "Mixtral" in line["model_name_or_path"]:
                row = known.get(setting(line, "mistralai/Mistral-7B-v0.1"))
            if row is None:
                left_out += 1
                continue
            ended.append(row | {"id": f"{table}:{number}", "model": line["model_name_or_path"],
                                "micro_batch": line["per_device_train_batch_size"],
                                "value": "", "value_bytes": "", "alloc_after_step_bytes": "",
                                "nvidia_smi_mib": str(whole(line[SHOWN]))})
    with open(out, "w", newline="") as file:
        writer = csv.DictWriter(file, measured[0].keys())
        writer.writeheader()
        writer.writerows(ended)
    print(f"{len(ended)} runs that ended, {left_out} without a row that says their setting")


if __name__ == "__main__":
    main()
