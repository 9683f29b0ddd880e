"""What kernels take within a training step, as a multiple of what the laws say of them alone, and what the host adds.

Learned from published runs, which docs/measurements/2026-11-22-fit-time/judge.py reads and sorts. Of one model
("learned"), Mistral-7B:

    dequantize_ratio  runs on one GPU, by least squares of relative errors: what grows with the batch, what unpacking
                      weights of 4 bits takes, and what comes before the first of 100 steps, which is not kept
    host_*_seconds    runs on several GPUs: such that measured / predicted varies least
    ratio             the median of measured / predicted with these

    half_width_log    within exp(+-half_width_log) of that lie 90 % of the runs of another ("width")
    median_error_pct  of the runs of all others ("aside"), which no figure here has seen

    python3 tools/timing/step.py --headroom build/dev/src/cli/headroom --data ../shared/data --refs FOLDER

writes the "steps" of data/timing.json. Needs numpy. Other devices: HALF_WIDTH_ELSEWHERE is chosen. No run of
theirs takes part; what they show is in the measurement's page.
"""

import json
import math
import os
import pathlib
import statistics
import sys

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/measurements/2026-11-22-fit-time"))
import judge  # noqa: E402
from document import dump  # noqa: E402

HALF_WIDTH_ELSEWHERE = 0.4
NAME = "eager-training"
# What the host takes for an operator, and around a gather or a reduction of FSDP1's, on a processor of ours
# (docs/measurements/2026-11-24-fit-time/host_cost.py): how they compare. How long they are on the hosts of those
# runs is learned.
HOST = {"host_launch_seconds": 14.5e-6, "host_unit_seconds": 750e-6}
SCALES = (0, 0.75, 1, 1.25, 1.5, 1.75, 2)
FIRST_RATIO = 1.1


class Learner:
    def __init__(self, arguments):
        self.arguments = arguments
        self.path = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"headroom-step-{os.getpid()}.json"

    def rows(self, ratio=1.0, dequantize=1.0, scale=0.0):
        """fms-acceleration's runs with what is predicted of them by these figures."""
        step = {"name": NAME, "source": "", "devices": [], "ratio": ratio, "dequantize_ratio": dequantize,
                "half_width_log": 0, "half_width_log_elsewhere": 0, "median_error_pct": 0,
                **{key: scale * seconds for key, seconds in HOST.items()}}
        self.path.write_text(json.dumps({"schema": "headroom.timing/1", "steps": [step], "laws": []}))
        rows = [{**row, "predicted": row["time"]["expected"]}
                for row in judge.rows_of_settings(self.arguments, {"HEADROOM_TIMING": str(self.path)}) if row["time"]]
        self.path.unlink()
        return rows

    def dequantize_ratio(self):
        """float16's runs have a ratio of their own: they take longer a sequence, and nothing else of them differs."""
        equations = []
        for once, twice in zip(self.rows(), self.rows(dequantize=2.0)):
            if once["part"] != "learned" or once["gpus"] != 1:
                continue
            unpacking = twice["predicted"] - once["predicted"]
            kernels = once["predicted"] - unpacking
            is_half = "GPTQ" in once["model"]
            terms = (1.0, 0.0 if is_half else kernels, kernels if is_half else 0.0, unpacking)
            equations.append([term / once["measured"] for term in terms])
        before, ratio, ratio_of_half, of_unpacking = numpy.linalg.lstsq(
            numpy.array(equations), numpy.ones(len(equations)), rcond=None)[0]
        print(f"{len(equations)} runs on one GPU: ratio {ratio:.4f} (float16 {ratio_of_half:.4f}), "
              f"unpacking {of_unpacking / ratio:.3f} times that, {before:.3f} s a step of what comes before the first")
        return of_unpacking / ratio

    def ratio(self, dequantize, scale):
        """With which half of the runs take longer than predicted, and how far they are off on average."""
        ratio = FIRST_RATIO  # the host is in the way less often where kernels take longer: so more than once
        for _ in range(3):
            logs = self.logs("learned", ratio, dequantize, scale)
            ratio *= math.exp(statistics.median(logs))
        logs = self.logs("learned", ratio, dequantize, scale)
        off = statistics.fmean(abs(log) for log in logs)
        print(f"host {scale}: {len(logs)} runs off by {100 * off:.2f} % on average, ratio {ratio:.4f}", flush=True)
        return off, scale, ratio, len(logs)

    def logs(self, part, *figures):
        return [math.log(r["measured"] / r["predicted"]) for r in self.rows(*figures) if r["part"] == part]


def main():
    arguments = judge.parser(__doc__)
    arguments.add_argument("--output", type=pathlib.Path, default=ROOT / "data/timing.json")
    arguments = arguments.parse_args()
    learner = Learner(arguments)
    dequantize = learner.dequantize_ratio()
    _, scale, ratio, learned = min(learner.ratio(dequantize, scale) for scale in SCALES)
    off = sorted(abs(log) for log in learner.logs("width", ratio, dequantize, scale))
    aside = [abs(math.expm1(-log)) for log in learner.logs("aside", ratio, dequantize, scale)]
    step = {
        "name": NAME,
        "devices": ["a100-sxm-80gb"],
        "ratio": round(ratio, 4),
        "dequantize_ratio": round(dequantize, 3),
        "half_width_log": round(off[math.ceil(0.9 * len(off)) - 1], 4),
        "half_width_log_elsewhere": HALF_WIDTH_ELSEWHERE,
        "median_error_pct": round(100 * statistics.median(aside), 2),
        **{key: round(scale * seconds, 7) for key, seconds in HOST.items()},
        "source": f"fms-acceleration (commit 876e2ed), Apache-2.0, on A100 80 GB: {learned} runs of Mistral-7B; "
                  f"interval from {len(off)} of santacoder; error on {len(aside)} of Mixtral-8x7B; "
                  f"host: {scale} times what a processor of ours took",
    }
    document = json.loads(arguments.output.read_text())
    document["steps"] = [step] + [one for one in document["steps"] if one["name"] != NAME]
    arguments.output.write_text(dump(document))
    print(json.dumps(step, indent=2))


if __name__ == "__main__":
    main()
