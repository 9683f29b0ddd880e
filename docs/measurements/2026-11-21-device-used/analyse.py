"""How true and how narrow device_used's interval is, and what its shares should be, by model.

    headroom fit --against measured.csv --json -o against.json
    python3 analyse.py against.json [--context-mib LOW EXPECTED HIGH] [--offered-mib N] [--slack N]

What nvidia-smi showed falls apart into the context, what the replayed allocator held (reserved), and
a rest. The rest is taken as a share of what comes and goes within a step: reserved, less what is
allocated between steps. Runs with a fused loss over whole logits are a kind of their own, and so are
runs among several ranks (--ranks; --context-mib then has the communicator in it). Printed are
those parts by row; then, for each model held aside in turn, the shares that the other models' rows of
the same kind give (their median; SLACK times their least and largest) and how the rows of the model
held aside lie in the interval that follows; then the shares of all rows, which are the constants of
src/fit/device_used.cpp; and last how the interval that headroom itself printed does, which is in
sample.

An interval is good when it covers 85 to 97 % of cases that nothing was derived from, and its median
full width is at most eight times the median absolute error. Models with the same architecture and
sizes (a quantized copy) are one model.
"""

import argparse
import json
import re
import statistics
from dataclasses import dataclass

MIB = 2**20
SLACK = 1.25  # few models, so the largest share seen is no bound


@dataclass
class Run:
    key: str
    model: str
    measured: float  # MiB, as all here
    allocated: float
    reserved: float
    between_steps: float
    fused_loss: bool
    printed: tuple  # low, expected, high

    @property
    def comes_and_goes(self):
        return max(self.reserved - self.between_steps, 1.0)

    def share(self, context):
        return (self.measured - self.reserved - context) / self.comes_and_goes


def base_model(name):
    """TheBloke/Mistral-7B-v0.1-GPTQ has the sizes of mistralai/Mistral-7B-v0.1."""
    return re.sub(r"-GPTQ$", "", name.split("/")[-1])


def runs(path, several):
    found = {}
    for row in json.load(open(path))["rows"]:
        if row["status"] == "ok":
            found.setdefault((row["source"], row["id"]), {})[row["metric"]] = row
    for (_, key), metrics in sorted(found.items()):
        if not {"device_used", "peak_allocated", "after_step"} <= metrics.keys():
            continue
        used = metrics["device_used"]
        if (used["ranks"] > 1) != several:
            continue
        printed = tuple(used["interval_bytes"][name] / MIB for name in ("low", "expected", "high"))
        yield Run(key, base_model(used["model"]), used["measured_bytes"] / MIB,
                  metrics["peak_allocated"]["predicted_bytes"] / MIB,
                  used["peak_reserved_bytes"] / MIB,
                  metrics["after_step"]["predicted_bytes"] / MIB, used["fused_loss"], printed)


def shares_of(rows, context, offered, slack):
    """By kind, of rows that are not near the device's end: `slack` times the least share below
    nothing, the median, `slack` times the largest."""
    shares = {}
    for fused in {r.fused_loss for r in rows}:
        far = [r for r in rows if r.fused_loss == fused
               and r.reserved + context[2] + 0.1 * r.comes_and_goes < offered]
        shares[fused] = (min(0, slack * min(r.share(context[0]) for r in far)),
                         statistics.median(r.share(context[1]) for r in far),
                         slack * max(r.share(context[2]) for r in far))
    return shares


def interval(run, shares, context, offered):
    """As src/fit/device_used.cpp and prediction.cpp make it, of a step that fits its device."""
    low, expected, high = (run.reserved + c + share * run.comes_and_goes
                           for c, share in zip(context, shares[run.fused_loss]))
    low = max(run.allocated + context[0], 0 if high > offered else low)
    return low, min(expected, offered), min(high, offered)


def verdict(rows, intervals):
    inside = [low <= r.measured <= high for r, (low, _, high) in zip(rows, intervals)]
    error = statistics.median(abs(r.measured - i[1]) for r, i in zip(rows, intervals))
    width = statistics.median(high - low for low, _, high in intervals)
    outside = " ".join(r.key for r, ok in zip(rows, inside) if not ok)
    return (f"{len(rows):4d} rows  covered {100 * sum(inside) / len(rows):5.1f} %  "
            f"width {width:6.0f} MiB  error {error:6.0f} MiB  "
            f"width/error {width / error if error else float('inf'):5.1f}"
            + (f"  outside: {outside}" if outside else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("file")
    parser.add_argument("--context-mib", type=float, nargs=3, default=(400, 550, 1000),
                        metavar=("LOW", "EXPECTED", "HIGH"), help="of the device (A100)")
    parser.add_argument("--offered-mib", type=float, default=81053, help="of the device (A100 80 GB)")
    parser.add_argument("--slack", type=float, default=SLACK, help="on the extremes that were seen")
    parser.add_argument("--ranks", action="store_true", help="the runs among several ranks")
    arguments = parser.parse_args()
    context, offered = arguments.context_mib, arguments.offered_mib
    slack = arguments.slack
    rows = list(runs(arguments.file, arguments.ranks))
    print("id      measured  reserved  allocated  between  rest   share  (MiB)")
    for r in sorted(rows, key=lambda r: (r.model, int(r.key))):
        print(f"{r.key:7s} {r.measured:8.0f}  {r.reserved:8.0f}  {r.allocated:9.0f}  "
              f"{r.between_steps:7.0f} {r.measured - r.reserved:6.0f}  "
              f"{r.share(context[1]):6.3f}  {r.model}{', fused loss' if r.fused_loss else ''}")
    print("\nheld aside: derived from the other models")
    all_rows, all_intervals = [], []
    for model in sorted({r.model for r in rows}):
        aside = [r for r in rows if r.model == model]
        shares = shares_of([r for r in rows if r.model != model], context, offered,
                           slack)
        intervals = [interval(r, shares, context, offered) for r in aside]
        all_rows += aside
        all_intervals += intervals
        print(f"{model:28s} {verdict(aside, intervals)}")
    print(f"{'all':28s} {verdict(all_rows, all_intervals)}\n")
    for fused, (low, expected, high) in sorted(shares_of(rows, context, offered, slack).items()):
        print(f"shares of all rows, {'a fused loss' if fused else 'other losses'}: "
              f"{low:.3f} at least, {expected:.3f} expected, {high:.3f} at most")
    print(f"{'as printed (in sample)':28s} {verdict(rows, [r.printed for r in rows])}")


if __name__ == "__main__":
    main()
