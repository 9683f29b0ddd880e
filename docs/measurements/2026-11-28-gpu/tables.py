"""The tables of tables.md, of the files beside this one: allocators, the largest micro-batch, steps in turns.

    python3 tables.py HEADROOM > tables.md

HEADROOM is asked for step times of the trainings, and for the published pipelines of 405B.
"""

import json
import statistics
import subprocess
import sys
import tempfile
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


def asked(headroom, words):
    """What `headroom fit` answers, as a dict."""
    done = subprocess.run([headroom, "fit", *words.split(), "--search", "false", "--json"], capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


def configuration(name, folder):
    """The file of a training's model, without transformers: allocator.py's figures, which are all that sizes depend on."""
    sys.path.insert(0, str(HERE.parents[2] / "perf" / "gpu"))
    import allocator
    family, values = allocator.MODELS[name]
    path = Path(folder) / f"{name}.json"
    path.write_text(json.dumps({"model_type": family, "hidden_act": "silu", "tie_word_embeddings": family == "gpt2", "use_cache": False, **values}
                               | ({"vocab_size": 50257, "activation_function": "gelu_new"} if family == "gpt2" else {})))
    return path


def predicted_times(headroom):
    print("\n## A step by `fit`, milliseconds, and its 90 % interval\n")
    print("| model | batch x tokens | with h100.calibration.json | without |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, batch in (("gpt2", 8), ("llama", 4)):
            words = (f"{configuration(name, folder)} --batch {batch} --seq 1024 --attention sdpa --keep-outputs false "
                     "--device h100-sxm-80gb --torch 2.11 --transformers 5.17")
            steps = [asked(headroom, words + more)["time"] for more in (f" --calibration {HERE / 'h100.calibration.json'}", "")]
            print(f"| {name} | {batch} x 1024 | " + " | ".join(
                f"{1e3 * step['step_seconds']:.1f} ({1e3 * step['step_seconds_low']:.0f} to {1e3 * step['step_seconds_high']:.0f})"
                for step in steps) + " |")


# torchtitan's tables 5 and 6 of December 2024, GiB reserved: method, sequences of a micro-batch, tokens.
PUBLISHED = (("fsdp2:8,tp:8,pp:8", 4, 8192, 82.5), ("fsdp2:8,tp:8,pp:8,vpp:2", 4, 8192, 72.7), ("fsdp2:8,tp:8,pp:8", 1, 32768, 75.3),
             ("fsdp2:4,cp:2,tp:8,pp:8", 1, 65536, 75.9), ("fsdp2:2,cp:4,tp:8,pp:8", 1, 131072, 77.1),
             ("fsdp2:1,cp:8,tp:8,pp:8", 1, 262144, 84.9))


def pipelines(headroom):
    print("\n## Llama 3.1 405B on 512 GPUs, reserved, GiB\n")
    print("| method | micro-batch x tokens | published | predicted | % |\n|---|---|---|---|---|")
    for method, batch, seq, published in PUBLISHED:
        answer = asked(headroom, f"meta-llama/Llama-3.1-405B --device h100-sxm-96gb --method {method} --batch {batch} --seq {seq} "
                       "--sequence-parallel true --dtype fp32 --mixed-precision bf16 --reduce-dtype fp32 --checkpointing full --grad-accum 8 "
                       "--compile layers --float8 tensorwise --allocator expandable_segments:True --torch 2.6 --clip 1.0 "
                       "--optimizer adamw-foreach --attention sdpa --loss hf --keep-outputs false")
        said = answer["memory"]["peak_reserved_bytes"] / GIB
        print(f"| {method} | {batch} x {seq} | {published} | {said:.1f} | {100 * (said / published - 1):.1f} |")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    allocators()
    largest()
    times()
    predicted_times(sys.argv[1])
    pipelines(sys.argv[1])


if __name__ == "__main__":
    main()
