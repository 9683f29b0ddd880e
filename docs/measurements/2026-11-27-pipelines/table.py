"""The table of README.md: python3 table.py HEADROOM > table.md"""

import json
import subprocess
import sys

SETTINGS = [("pp:4", "1f1b"), ("pp:4,vpp:2", "1f1b"), ("pp:4", "gpipe"), ("pp:4", "zero-bubble"),
            ("pp:4,vpp:2", "zero-bubble"), ("fsdp2:2,pp:4", "1f1b"), ("fsdp2:2,pp:4", "gpipe")]


def answer(headroom, method, schedule):
    command = [headroom, "fit", "meta-llama/Llama-2-7b-hf", "--device", "h100-sxm-80gb", "--method", method,
               "--pipeline-schedule", schedule, "--grad-accum", "16", "--seq", "4096", "--search", "false", "--json"]
    # 1 says that it does not fit, which is an answer.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def main():
    print("| method | schedule | peak allocated by stage, GiB | in flight | step, s | of it waiting for stages, ms |")
    print("|---|---|---|---|---|---|")
    for method, schedule in SETTINGS:
        said = answer(sys.argv[1], method, schedule)
        peaks = ", ".join(f"{stage['peak_allocated_bytes'] / 2**30:.1f}" for stage in said["stages"])
        held = ", ".join(f"{stage['micro_batches_in_flight']:g}" for stage in said["stages"])
        time = said["time"]
        print(f"| {method} | {schedule} | {peaks} | {held} | {time['step_seconds']:.2f} | "
              f"{1000 * time['pipeline_waiting_seconds']:.0f} |")


if __name__ == "__main__":
    main()
