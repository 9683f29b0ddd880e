"""Whether `headroom fit --gpus` misses a schedule: each pipeline of its rows is asked by itself with every schedule.

    python3 every_schedule.py --binary build/dev/src/cli/headroom

For each question: the search's answer with 1F1B held, its answer without, and the fastest that fits for sure of all
pipelines asked one by one, in milliseconds a step.
"""

import argparse
import json
import subprocess

QUESTIONS = [
    ("meta-llama/Llama-3.2-1B", "a100-sxm-80gb", 4, "eth-1g", 4, 1024),
    ("meta-llama/Llama-2-7b-hf", "a100-sxm-80gb", 4, "eth-10g", 4, 1024),
    ("meta-llama/Llama-2-7b-hf", "a100-sxm-80gb", 8, "eth-10g", 2, 2048),
    ("Qwen/Qwen3-0.6B", "l40s-48gb", 4, "eth-10g", 4, 512),
]
SCHEDULES = ("1f1b", "zero-bubble", "zbv", "dualpipev")


def asked(binary, words):
    done = subprocess.run([binary, "fit", *words, "--json", "--quiet"], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.stdout else None


def question_words(question):
    model, device, gpus, link, nodes, seq = question
    return [model, "--device", device, "--seq", str(seq), "--link", link, "--nodes", str(nodes), "--dtype", "bf16"], gpus


def first(answer):
    row = answer["methods"][0]
    return row["flags"], row["time"]["step_seconds"]


def one_by_one(binary, words, rows):
    """The fastest pipeline that fits for sure, of every row's under every schedule, and how many were asked."""
    fastest, count = (None, float("inf")), 0
    for row in rows:
        if "pp:" not in row["method"]:
            continue
        for chunks in ("", ",vpp:2", ",vpp:4"):
            for schedule in SCHEDULES:
                flags = row["flags"].replace(row["method"], row["method"] + chunks, 1)
                flags = flags + " --pipeline-schedule " + schedule
                answer = asked(binary, [*words, *flags.split(), "--search", "false"])
                if answer is None:  # cannot be asked: too few layers or micro-batches
                    continue
                count += 1
                seconds = (answer.get("time") or {}).get("step_seconds")
                if answer["fits"] == "yes" and seconds and seconds < fastest[1]:
                    fastest = (flags, seconds)
    return fastest, count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="headroom")
    binary = parser.parse_args().binary
    for question in QUESTIONS:
        words, gpus = question_words(question)
        search = [*words, "--gpus", str(gpus)]
        held = asked(binary, [*search, "--pipeline-schedule", "1f1b"])
        free = asked(binary, search)
        (flags, seconds), count = one_by_one(binary, words, held["methods"])
        print(f"{question[0]}, {gpus} x {question[1]} on {question[4]} machines, {question[3]}, {question[5]} tokens")
        print(f"  1F1B held  {1e3 * first(held)[1]:9.1f}  {first(held)[0]}")
        print(f"  search     {1e3 * first(free)[1]:9.1f}  {first(free)[0]}")
        print(f"  one by one {1e3 * seconds:9.1f}  {flags}, of {count} asked", flush=True)


if __name__ == "__main__":
    main()
