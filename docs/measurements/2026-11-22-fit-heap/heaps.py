"""Times whole questions under other heaps than the C library's, in turns.

    heaps.py BINARY [--runs N]
"""

import argparse
import os
import resource
import statistics
import subprocess
import time

QUESTIONS = {"Mistral-7B": ["mistralai/Mistral-7B-v0.1", "--seq", "4096"],
             "Mistral-7B, LoRA": ["mistralai/Mistral-7B-v0.1", "--method", "lora"]}
FOLDER = "/usr/lib/x86_64-linux-gnu/"
HEAPS = {"the C library's": "", "mimalloc": FOLDER + "libmimalloc.so.2.0",
         "jemalloc": FOLDER + "libjemalloc.so.2", "tcmalloc": FOLDER + "libtcmalloc_minimal.so.4"}


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def ask(binary, question, heap):
    """Milliseconds of wall time and of the processor."""
    used, start = processor_seconds(), time.perf_counter()
    subprocess.run([binary, "fit", *question, "--device", "a100-sxm-80gb", "--batch", "4"],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
                   env={**os.environ, "LD_PRELOAD": heap})
    return 1e3 * (time.perf_counter() - start), 1e3 * (processor_seconds() - used)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    for name, question in QUESTIONS.items():
        samples = {heap: [] for heap in HEAPS}
        for _ in range(options.runs):
            for heap, library in HEAPS.items():
                samples[heap].append(ask(options.binary, question, library))
        for heap, taken in samples.items():
            walls, processor = zip(*taken)
            print(f"{name:18} {heap:16} wall best {min(walls):4.0f} median {statistics.median(walls):4.0f} ms"
                  f"   processor best {min(processor):4.0f} median {statistics.median(processor):4.0f} ms")


if __name__ == "__main__":
    main()
