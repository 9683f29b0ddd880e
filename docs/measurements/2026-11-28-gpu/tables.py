"""The tables of tables.md, of the files beside this one: allocators, the largest micro-batch, steps in turns.

    python3 tables.py > tables.md
"""

import json
import statistics
from pathlib import Path

HERE = Path(__file__).resolve().parent
GIB = 2**30

def read(name):
    return json.loads((HERE / name).read_text())


def allocators():
    rows = {}
    for row in read("allocator.json"):
        rows.setdefault((row["model"], row["pattern"]), {})[row["allocator"]] = row
    print("## Reserved, GiB, from the fifteenth iteration on, and how much of it was allocated\n")
    print("| model | training | PyTorch | expandable segments | Headroom | plan | losses the same to the bit |")
    print("|---|---|---|---|---|---|---|")
    for (model, pattern), by in rows.items():
        figures = [f"{row['peak_reserved_bytes'] / GIB:.3f} ({100 * row['peak_allocated_bytes'] / row['peak_reserved_bytes']:.2f} %)"
                   for row in (by["default"], by["expandable"], by["headroom"])]
        device = by["headroom"]["headroom_run"]["processes"][0]["devices"][0]
        plan = f"{100 * device['planned'] / device['requests']:.2f} % planned" if device["requests"] else "none"
        same = "yes" if len({tuple(row["losses"]) for row in by.values()}) == 1 else "NO"
        print(f"| {model} | {pattern} | {' | '.join(figures)} | {plan} | {same} |")


def largest():
    print("\n## The largest micro-batch within a limit\n")
    print("| model | training | tokens | limit, GiB | allocator | largest | failed at | tries |")
    print("|---|---|---|---|---|---|---|---|")
    for row in read("largest.json"):
        found = str(row["largest_batch"]) if row["status"] == "ok" else f"{row['largest_batch']} or more ({row['status']})"
        print(f"| {row['model']} | {row['pattern']} | {row['seq']} | {row['limit_bytes'] / GIB:.0f} | {row['allocator']} | {found} | "
              f"{row['least_that_failed']} | {len(row['tries'])} |")


def times():
    print("\n## A step, milliseconds, in turns (no deterministic mode)\n")
    print("| model | training | rounds | PyTorch: median, least | Headroom: median, least | ratio in a round: median, least, most |")
    print("|---|---|---|---|---|---|")
    rows = read("times.json")
    for base, ours in zip(rows[::2], rows[1::2]):
        ratios = sorted(statistics.median(mine) / statistics.median(theirs) for mine, theirs in zip(ours["rounds"], base["rounds"]))
        words = [f"{statistics.median(sum(row['rounds'], [])):.1f}, {min(sum(row['rounds'], [])):.1f}" for row in (base, ours)]
        print(f"| {base['model']} | {base['pattern']} | {len(ratios)} | {words[0]} | {words[1]} | "
              f"{statistics.median(ratios):.3f}, {ratios[0]:.3f}, {ratios[-1]:.3f} |")


def main():
    allocators()
    largest()
    times()


if __name__ == "__main__":
    main()
