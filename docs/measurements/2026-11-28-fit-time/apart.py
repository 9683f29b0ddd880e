"""What each of the findings does by itself, and what Mistral's steps take beyond what grows with the batch.

    python3 apart.py --headroom build/dev/src/cli/headroom --data ../shared/data --refs FOLDER

The first table is of fms-acceleration's runs kept aside, the ratio learned anew in each line as tools/timing/step.py
does; the second of Mistral's on one GPU, a line through each setting's smallest and largest batch.
"""

import collections
import math
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/timing"))
import step  # noqa: E402


def settings_apart(learner, dequantize):
    for name, *figures in (("neither", 1.0, 0), ("host", 1.0, 1.5), ("unpacking", dequantize, 0), ("both", dequantize, 1.5)):
        ratio = learner.ratio(*figures)[2]
        off = sorted(100 * abs(math.expm1(-log)) for log in learner.logs("aside", ratio, *figures))
        print(f"| {name} | {ratio:.3f} | {statistics.median(off):.1f} | {off[math.ceil(0.9 * len(off)) - 1]:.1f} | {off[-1]:.1f} |")


def beyond_the_batch(arguments):
    groups = collections.defaultdict(list)
    for setting, seconds in step.judge.fms_runs(arguments):
        if "Mistral" in setting["model"] and setting["n_gpus"] == "1":
            words = setting["method"].split()[0], setting["framework"].split("=")[-1], setting["url"].rsplit("/", 1)[-1]
            groups[words].append((int(setting["micro_batch"]), seconds))
    for words, runs in sorted(groups.items()):
        (few, short), (many, long) = min(runs), max(runs)
        beyond = short - few * (long - short) / (many - few)
        print(f"| {' | '.join(words)} | {few} to {many} | {beyond:.3f} s |")


def main():
    arguments = step.judge.parser(__doc__).parse_args()
    learner = step.Learner(arguments)
    settings_apart(learner, learner.dequantize_ratio())
    beyond_the_batch(arguments)


if __name__ == "__main__":
    main()
