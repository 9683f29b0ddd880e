"""Times whole questions asked of a built binary, searches included.

    question.py BINARY [BINARY...] [--runs N]

Prints wall time and time of the processor (user and system, all threads), the best and the median of
the runs. On a machine that others use, run it with a priority above theirs (nice -n -19), and trust
the time of the processor.
"""

import argparse
import os
import resource
import statistics
import subprocess
import time

DEVICE = ["--device", "a100-sxm-80gb", "--batch", "4"]
QUESTIONS = {
    "Mistral-7B": ["mistralai/Mistral-7B-v0.1", "--seq", "4096"],
    "gpt2": ["openai-community/gpt2"],
    "Mixtral-8x7B, QLoRA": ["mistralai/Mixtral-8x7B-v0.1", "--method", "qlora"],
    "Mistral-7B, LoRA": ["mistralai/Mistral-7B-v0.1", "--method", "lora"],
}


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(binary, question, runs):
    walls, processor = [], []
    for _ in range(runs):
        used, start = processor_seconds(), time.perf_counter()
        subprocess.run([binary, "fit", *question, *DEVICE], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
        walls.append(1e3 * (time.perf_counter() - start))
        processor.append(1e3 * (processor_seconds() - used))
    return walls, processor


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries", nargs="+")
    parser.add_argument("--runs", type=int, default=25)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name, question in QUESTIONS.items():
        for binary in options.binaries:
            walls, processor = measure(binary, question, options.runs)
            print(f"{name:22} wall best {min(walls):4.0f} median {statistics.median(walls):4.0f} ms"
                  f"   processor best {min(processor):4.0f} median "
                  f"{statistics.median(processor):4.0f} ms   {binary}")


if __name__ == "__main__":
    main()
