"""Wholes composed of few layers, by the difference of two runs and by what the longer run has beyond the shorter one.

    python3 layers.py A.jsonl B.jsonl    # the same settings, composed, measured twice: how far apart shares are
    python3 layers.py --whole COMPOSED.jsonl WHOLE.jsonl    # beside the model run as a whole
"""

import json
import statistics
import sys


def records(file):
    found = {}
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if "profile" in record:
                s = record["setting"]
                found[(s["model"], s["engine"], s["quantize"], s["fusion"]), record["layers"]] = record
    return found


def groups(account):
    return {group["name"]: group["ms"] for group in account["groups"]}


def share(by_group):
    total = sum(by_group.values())
    return 100 * (total - by_group.get("gemm", 0) - by_group.get("attention", 0)) / total


def composed(few, more, by_difference):
    """Share and seconds of the whole, or None where they cannot be told."""
    missing = more["layers_of_model"] - more["layers"]
    base, added = groups(more["profile"]), more["profile"].get("added_layers")
    if by_difference:
        seconds = more["seconds"] - few["seconds"]
        if seconds <= 0:
            return None
        before = groups(few["profile"])
        layer = {name: base.get(name, 0) - before.get(name, 0) for name in {*base, *before}}
    elif added is None:
        return None
    else:
        seconds, layer = more["seconds"] * added["wall_ms"] / more["profile"]["wall_ms"], groups(added)
    whole = {name: max(0.0, base.get(name, 0) + missing * layer.get(name, 0)) for name in {*base, *layer}}
    return share(whole), more["seconds"] + missing * seconds


def words(value, form):
    return form % value if value is not None else "-"


def compare(first, second, is_whole):
    a, b = records(first), records(second)
    apart = {True: [], False: []}
    print("| setting | by difference | within one run |" if not is_whole else
          "| setting | whole | by difference | within one run |")
    print("|---|---|---|" if not is_whole else "|---|---|---|---|")
    for setting in sorted({setting for setting, layers in a if layers == 2}):
        cells = []
        for by_difference in (True, False):
            one = composed(a[setting, 1], a[setting, 2], by_difference)
            if is_whole:
                whole = b[setting, None]
                other = share(groups(whole["profile"])), whole["seconds"]
            else:
                other = composed(b[setting, 1], b[setting, 2], by_difference)
            if one and other:
                apart[by_difference].append((abs(one[0] - other[0]), abs(one[1] / other[1] - 1)))
            cells.append(f"{words(one and one[0], '%.1f')} %, {words(one and one[1], '%.3g')} s" + ("" if is_whole else
                         f"; {words(other and other[0], '%.1f')} %, {words(other and other[1], '%.3g')} s"))
        if is_whole:
            cells.insert(0, f"{other[0]:.1f} %, {other[1]:.3g} s")
        print(f"| {', '.join(setting)} | " + " | ".join(cells) + " |")
    for by_difference, name in ((True, "by difference"), (False, "within one run")):
        points, times = zip(*apart[by_difference])
        print(f"\n{name}: {len(points)} settings, apart {statistics.median(points):.1f} points in the median and "
              f"{max(points):.1f} at most, times {100 * statistics.median(times):.0f} and {100 * max(times):.0f} %")


if __name__ == "__main__":
    whole = sys.argv[1] == "--whole"
    compare(*sys.argv[2 if whole else 1:][:2], whole)
