"""What kernels and the host add to a step of Megatron-LM, and how far whole steps are from what is predicted.

Learned from published steps, which docs/measurements/2026-11-29-megatron-times/runs.py has. Half of the models, in the
alphabet's order every other one, is learned from, half is kept aside (judge.py beside it says which; steps whose sending
ran beside products, which is not modelled, are neither):

    ratios               of a device on which "eager-training" was learned, that of it: no step here takes part
    host_launch_seconds  of several multiples of what a processor of ours takes for an operator: the one by which steps of
                         models so small that the host decides (runs.HOST) are off least; no other step takes part
    ratio                of kernels on DEVICE: such that half of the learned steps on it take longer than predicted
    half_width_log       within exp(+-) are 90 % of the learned steps on these devices, those on DEVICE each predicted by
                         the ratio of the other models
    ..._elsewhere        the worst of the learned steps on other devices, if it is wider
    whole_steps          how many steps taught these, and of how many of other models how many came out inside

    python3 tools/timing/megatron.py --headroom build/dev/src/cli/headroom

writes the step "megatron-training" of data/timing.json.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/measurements/2026-11-29-megatron-times"))
import judge  # noqa: E402
from document import dump  # noqa: E402

NAME = "megatron-training"
OF_KERNELS = "eager-training"
DEVICE = "h100-sxm-80gb"
# What an operator takes the host, on a processor of ours (docs/measurements/2026-11-24-fit-time/host_cost.py).
HOST_LAUNCH_SECONDS = 14.5e-6
SCALES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)
FIRST_RATIO = 1.1


class Learner:
    def __init__(self, headroom, known):
        """`known`: ratios by device."""
        self.headroom = headroom
        self.known = known
        self.path = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"headroom-megatron-{os.getpid()}.json"

    def step(self, ratio, scale, **more):
        return {"name": NAME, "devices": [*self.known, DEVICE], "ratio": round(ratio, 4),
                "ratios": [{"device": device, "ratio": known} for device, known in self.known.items()],
                "half_width_log": 0, "half_width_log_elsewhere": 0, "median_error_pct": 0,
                "host_launch_seconds": round(scale * HOST_LAUNCH_SECONDS, 7),
                "whole_steps": {"learned": 1, "aside": 0, "inside": 0}, "source": "", **more}

    def rows(self, part, step):
        """Of each, with its log(measured / predicted) by these figures."""
        self.path.write_text(json.dumps({"schema": "headroom.timing/1", "steps": [step], "laws": []}))
        rows = list(judge.rows_of(self.headroom, {"HEADROOM_TIMING": str(self.path)}, part))
        self.path.unlink()
        return [{**row, "log": math.log(row["measured"] / row["predicted"])} for row in rows]

    def host_off(self, scale):
        """How far the small models' steps are off on average."""
        off = statistics.fmean(abs(row["log"]) for row in self.rows("host", self.step(FIRST_RATIO, scale)))
        print(f"host {scale}: off by {100 * off:.1f} % on average", flush=True)
        return off

    def ratio(self, scale):
        """What is sent is not stretched, nor what the host does: so it is learned more than once."""
        ratio = FIRST_RATIO
        for _ in range(8):
            logs = [row["log"] for row in self.rows("learned", self.step(ratio, scale)) if row["gpu"] == DEVICE]
            ratio *= math.exp(statistics.median(logs))
            print(f"ratio {ratio:.4f}, of {len(logs)} steps", flush=True)
        return ratio


def off(row, rows):
    """How far a learned step is off, as one of a model that nobody saw."""
    if row["gpu"] != DEVICE:
        return abs(row["log"])
    return abs(row["log"] - statistics.median(one["log"] for one in rows if one["gpu"] == DEVICE and one["model"] != row["model"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headroom", required=True)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "data/timing.json")
    arguments = parser.parse_args()
    document = json.loads(arguments.output.read_text())
    kernels = next(step for step in document["steps"] if step["name"] == OF_KERNELS)
    learner = Learner(arguments.headroom, {device: kernels["ratio"] for device in kernels["devices"]})
    scale = min(SCALES, key=learner.host_off)
    ratio = learner.ratio(scale)
    learned = learner.rows("learned", learner.step(ratio, scale))
    of_devices = sorted(off(row, learned) for row in learned if row["gpu"] in (*learner.known, DEVICE))
    half_width = of_devices[math.ceil(0.9 * len(of_devices)) - 1]
    elsewhere = max([half_width] + [off(row, learned) for row in learned if row["gpu"] not in (*learner.known, DEVICE)])
    widths = {"half_width_log": round(half_width, 4), "half_width_log_elsewhere": round(elsewhere, 4)}
    aside = learner.rows("aside", learner.step(ratio, scale, **widths))
    models = [len({row["model"] for row in rows}) for rows in (learned, aside)]
    step = learner.step(ratio, scale, **widths, **{
        "median_error_pct": round(statistics.median(abs(row["error_pct"]) for row in aside), 2),
        "whole_steps": {"learned": len(learned), "aside": len(aside), "inside": sum(map(judge.is_inside, aside))},
        "source": f"{len(learned)} published steps of {models[0]} models; aside: {len(aside)} of {models[1]} others; "
                  "each with its source in docs/measurements/2026-11-29-megatron-times/runs.py",
    })
    document["steps"] = [one for one in document["steps"] if one["name"] != NAME] + [step]
    arguments.output.write_text(dump(document))
    print(json.dumps(step, indent=2))


if __name__ == "__main__":
    main()
