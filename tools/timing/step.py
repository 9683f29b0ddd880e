"""What kernels take within a training step, as a multiple of what the laws say of them alone.

Learned from published runs, which docs/measurements/2026-11-22-fit-time/judge.py reads and sorts:

    ratio             median of measured / predicted over the runs of one model ("learned")
    half_width_log    within exp(+-half_width_log) of that lie 90 % of the runs of another ("width")
    median_error_pct  of the runs of all others ("aside"), which no figure here has seen

    python3 tools/timing/step.py --headroom build/dev/src/cli/headroom --data ../shared/data --refs FOLDER

writes the "steps" of data/timing.json. Other devices: HALF_WIDTH_ELSEWHERE is chosen. No run of
theirs takes part; what they show is in the measurement's page.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/measurements/2026-11-22-fit-time"))
import judge  # noqa: E402
from document import dump  # noqa: E402

HALF_WIDTH_ELSEWHERE = 0.4
NAME = "eager-training"


def neutral(path):
    """A copy of the laws by which kernels in a step take what they take alone."""
    step = {"name": NAME, "source": "", "devices": [], "ratio": 1, "half_width_log": 0,
            "half_width_log_elsewhere": 0, "median_error_pct": 0}
    path.write_text(json.dumps({"schema": "headroom.timing/1", "steps": [step], "laws": []}))
    return path


def main():
    arguments = judge.parser(__doc__)
    arguments.add_argument("--output", type=pathlib.Path, default=ROOT / "data/timing.json")
    arguments = arguments.parse_args()
    folder = pathlib.Path(os.environ.get("TMPDIR", "/tmp"))
    plain = neutral(folder / f"headroom-neutral-step-{os.getpid()}.json")
    rows = judge.predicted_rows(arguments, {"HEADROOM_TIMING": str(plain)})
    plain.unlink()
    learned = [math.log(r["measured"] / r["predicted"]) for r in rows if r["part"] == "learned"]
    middle = statistics.median(learned)
    off = sorted(abs(math.log(r["measured"] / r["predicted"]) - middle) for r in rows if r["part"] == "width")
    aside = [r for r in rows if r["part"] == "aside" and r["source"] == "fms-acceleration"]
    errors = [abs(r["predicted"] * math.exp(middle) / r["measured"] - 1) for r in aside]
    step = {
        "name": NAME,
        "devices": ["a100-sxm-80gb"],
        "ratio": round(math.exp(middle), 4),
        "half_width_log": round(off[math.ceil(0.9 * len(off)) - 1], 4),
        "half_width_log_elsewhere": HALF_WIDTH_ELSEWHERE,
        "median_error_pct": round(100 * statistics.median(errors), 2),
        "source": f"fms-acceleration (commit 876e2ed), Apache-2.0, on A100 80 GB: {len(learned)} runs of Mistral-7B; "
                  f"interval from {len(off)} of santacoder; error on {len(aside)} of Mixtral-8x7B",
    }
    document = json.loads(arguments.output.read_text())
    document["steps"] = [step]
    arguments.output.write_text(dump(document))
    print(json.dumps(step, indent=2))


if __name__ == "__main__":
    main()
