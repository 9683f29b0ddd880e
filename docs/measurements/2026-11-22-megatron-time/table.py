#!/usr/bin/env python3
"""Steps of Megatron-LM, predicted beside measured: python3 table.py HEADROOM

Measured: the median "iteration-time" of each golden file of Megatron-LM's functional tests at d98e8a64,
with eight GPUs in one machine.
"""

import json
import pathlib
import subprocess
import sys

GOLDEN = "tests/functional_tests/test_cases/"
MEASURED = [
    ("gpt-7b.sh", "a100-sxm-80gb", 2.94791, GOLDEN + "gpt/gpt3_7b_tp1_pp4_memory_speed/golden_values_dev_dgx_a100.json"),
    ("gpt-7b.sh", "h100-sxm-80gb", 1.15077, GOLDEN + "gpt/gpt3_7b_tp1_pp4_memory_speed/golden_values_dev_dgx_h100.json"),
    ("gpt-7b.sh", "gb200-186gb", 0.78729, GOLDEN + "gpt/gpt3_7b_tp1_pp4_memory_speed/golden_values_dev_dgx_gb200.json"),
    ("t5-11b.sh", "a100-sxm-80gb", 0.97178, GOLDEN + "t5/t5_11b_mcore_tp4_pp1/golden_values_dev_dgx_a100.json"),
    ("t5-11b.sh", "h100-sxm-80gb", 0.39302, GOLDEN + "t5/t5_11b_mcore_tp4_pp1/golden_values_dev_dgx_h100.json"),
]


def main():
    here = pathlib.Path(__file__).parent
    print("| script | GPU | measured s | predicted s | error |\n|---|---|---|---|---|")
    for script, gpu, measured, _ in MEASURED:
        done = subprocess.run([sys.argv[1], "fit", "--from", str(here / script), "--device", gpu, "--gpus", "8",
                               "--search", "false", "--json"], capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            sys.exit(done.stderr)
        said = json.loads(done.stdout)["time"]["step_seconds"]
        print(f"| {script} | {gpu} | {measured:.3f} | {said:.3f} | {100 * (said / measured - 1):+.0f} % |")


if __name__ == "__main__":
    main()
