"""Every setting of a training step divided among N GPUs, each asked of `headroom fit` by itself, beside the search's answer.

    python3 every_setting.py --binary build/dev/src/cli/headroom

The words of --method are put together here from what divides N alone, and not from the search's rows, so that what the
search does not look at shows. For each question: the search's first row, the fastest that fits for sure of all settings,
what can be asked and has no row, and how many were asked and took how long.
"""

import argparse
import itertools
import json
import math
import os
import subprocess
import time
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool

# By themselves, or with a number of ranks; Colossal-AI's Gemini is another engine's.
DIVISIONS = ("", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2")
CHECKPOINTINGS = ("none", "selective", "full")
SCHEDULES = ("1f1b", "gpipe", "zero-bubble", "zbv", "dualpipev")
CHUNKS = (1, 2, 4)
PRECISIONS = {"bf16": ["--dtype", "bf16"], "any": ["--mixed-precision", "any"]}
OF_ANY = (("--dtype", "bf16"), ("--mixed-precision", "bf16"), ("--dtype", "fp32"))


@dataclass(frozen=True)
class Way:
    """How a step is divided: a row of the search's, but for its schedule and micro-batch."""
    words: str
    data_ranks: int  # that have sequences of their own
    stages: int = 1
    divides_sequences: bool = False
    checkpointing: str = "none"
    precision: tuple = ()

    def flags(self):
        return (["--checkpointing", self.checkpointing, *self.precision]
                + ["--sequence-parallel", "true"] * self.divides_sequences)


@dataclass(frozen=True)
class Setting:
    way: Way
    batch: int
    grad_accum: int
    chunks: int = 1
    schedule: str = ""

    def flags(self):
        method = self.way.words + (f",vpp:{self.chunks}" if self.chunks > 1 else "")
        return (["--method", method, *self.way.flags(), "--batch", str(self.batch), "--grad-accum", str(self.grad_accum)]
                + (["--pipeline-schedule", self.schedule] if self.schedule else []))


@dataclass
class Question:
    name: str
    words: list  # the model, the device, the sequence, the network
    gpus: int
    global_batch: int
    precision: str = "bf16"

    def search(self):
        return [*self.words, "--gpus", str(self.gpus), "--global-batch", str(self.global_batch),
                *PRECISIONS[self.precision]]

    def gpus_of_a_machine(self):
        return self.gpus // (int(self.words[self.words.index("--nodes") + 1]) if "--nodes" in self.words else 1)


def divisors(count):
    return [n for n in range(1, count + 1) if count % n == 0]


def divisions(gpus):
    """The words of --method that divide a step among so many, each with its data ranks and stages."""
    for division, (ranks, replicas, tensor, context, stages) in itertools.product(
            DIVISIONS, itertools.product(divisors(gpus), repeat=5)):
        if ranks * replicas * tensor * context * stages != gpus or (not division and ranks > 1):
            continue
        for experts in divisors(ranks):
            counts = (("replicate", replicas), ("cp", context), ("ep", experts), ("tp", tensor), ("pp", stages))
            words = [f"{division}:{ranks}"] * bool(division) + [f"{word}:{n}" for word, n in counts if n > 1]
            yield ",".join(words), ranks * replicas, stages


def ways(question):
    precisions = [tuple(words) for words in ([PRECISIONS["bf16"]] if question.precision == "bf16" else OF_ANY)]
    for (words, data_ranks, stages), checkpointing, precision in itertools.product(
            divisions(question.gpus), CHECKPOINTINGS, precisions):
        if question.global_batch % data_ranks == 0:
            yield Way(words, data_ranks, stages, False, checkpointing, precision)
            if "tp:" in words:
                yield Way(words, data_ranks, stages, True, checkpointing, precision)


def settings(question):
    for way in ways(question):
        sequences = question.global_batch // way.data_ranks
        schedules = [(1, "")] if way.stages == 1 else list(itertools.product(CHUNKS, SCHEDULES))
        for batch, (chunks, schedule) in itertools.product(divisors(sequences), schedules):
            yield Setting(way, batch, sequences // batch, chunks, schedule)


def asked(binary, words):
    """The answer; nothing where it cannot be asked."""
    done = subprocess.run([binary, "fit", *words, "--json", "--quiet"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 2, 4), done.stderr  # a refusal is a contradiction, or not available
    return json.loads(done.stdout) if done.returncode < 2 else None


@dataclass
class Alone:
    """What a setting is answered by itself."""
    setting: Setting
    fits: str
    seconds: float


def ask_each(binary, question):
    """Of what can be asked at all."""
    every = list(settings(question))
    # A way that no micro-batch of one sequence under 1F1B can be asked of cannot be asked.
    first = {s.way: s for s in reversed(every) if s.batch == 1 and s.chunks == 1 and s.schedule in ("", "1f1b")}

    def ask(setting):
        answer = asked(binary, [*question.words, *setting.flags(), "--search", "false"])
        if answer is None:
            return None
        return Alone(setting, answer["fits"], (answer.get("time") or {}).get("step_seconds") or math.inf)

    with ThreadPool(os.cpu_count()) as pool:
        can_be_asked = dict(zip(first, pool.map(ask, first.values())))
        rest = [s for s in every if can_be_asked[s.way] is not None and s != first[s.way]]
        answers = [a for a in (*can_be_asked.values(), *pool.map(ask, rest)) if a is not None]
    return answers, len(first) + len(rest)


def way_of_row(row, question):
    """(words, whether sequences are divided, checkpointing, precision) of a row of the search's."""
    words = ",".join(w for w in row["method"].split(",") if not w.startswith("vpp:"))
    precision = tuple(PRECISIONS["bf16"])
    if question.precision == "any":
        precision = (("--dtype", row["dtype"]) if row["mixed_precision"] == "none"
                     else ("--mixed-precision", row["mixed_precision"]))
    return (words, row.get("sequence_parallel", False), row["checkpointing"], precision)


def key_of(way):
    return (way.words, way.divides_sequences, way.checkpointing, way.precision)


@dataclass
class Compared:
    question: Question
    first: dict     # the search's row
    fastest: Alone  # of every setting, by itself
    rows: dict      # by way, the search's row
    of_ways: dict   # by way, what every setting of it is answered
    searched: dict
    asked: int
    search_seconds: float
    each_seconds: float

    def without_row(self):
        """Ways that can be asked and have no row; ZeRO's mixed precision is its 16 bits, and has theirs."""
        return [key for key in self.of_ways
                if key not in self.rows and not (key[0].startswith("zero") and key[3][0] == "--mixed-precision")]

    def is_left_out(self, key):
        """By what the search says of itself: tensor parallel groups stay within a machine, sequences are shared beside
        replicas, tensor parallel ranks and stages where sharing them comes first, and fully_shard of one rank, which copies
        what nobody else has, is no better than stages or tensor parallel ranks alone."""
        counts = {word.split(":")[0]: int(word.split(":")[1]) for word in key[0].split(",")}
        is_beside = "cp" in counts and len(counts.keys() & {"replicate", "tp", "pp"}) > 0
        copies_alone = counts.get("fsdp2") == 1 and "cp" not in counts and not {"tp", "pp"} <= counts.keys()
        return (copies_alone or counts.get("tp", 1) > self.question.gpus_of_a_machine()
                or is_beside and "cp:" not in self.first["method"])

    def alone(self, key):
        """What the setting of a row is answered by itself."""
        row = self.rows[key]
        schedule = row.get("pipeline_schedule", "1f1b" if "pp:" in row["method"] else "")
        chunks = int(row["method"].split("vpp:")[1]) if "vpp:" in row["method"] else 1
        return next(a for a in self.of_ways[key] if (a.setting.batch, a.setting.chunks, a.setting.schedule)
                    == (row["batch"], chunks, schedule))

    def fastest_of(self, key, only_1f1b=False):
        """In seconds, of what fits for sure; of pipelines of every schedule's, or of 1F1B's that is not interleaved."""
        return min((a.seconds for a in self.of_ways[key] if a.fits == "yes"
                    and (not only_1f1b or (a.setting.chunks, a.setting.schedule) in ((1, ""), (1, "1f1b")))), default=math.inf)


def compare(binary, question):
    begin = time.monotonic()
    answer = asked(binary, question.search())
    between = time.monotonic()
    answers, count = ask_each(binary, question)
    end = time.monotonic()
    rows = {way_of_row(row, question): row for row in answer["methods"] if "refused" not in row}
    of_ways = {}
    for one in answers:
        of_ways.setdefault(key_of(one.setting.way), []).append(one)
    sure = [a for a in answers if a.fits == "yes"]
    return Compared(question, answer["methods"][0], min(sure, key=lambda a: a.seconds, default=None), rows, of_ways,
                    answer["searched"], count, between - begin, end - between)


NETWORK = ["--nodes", "4", "--link", "eth-10g"]
QUESTIONS = [
    Question("Llama-3.2-1B, 4 x a100-sxm-80gb",
             ["meta-llama/Llama-3.2-1B", "--device", "a100-sxm-80gb", "--seq", "4096"], 4, 16),
    Question("Llama-3.2-1B, 4 x a100-sxm-80gb on 4 machines, eth-10g",
             ["meta-llama/Llama-3.2-1B", "--device", "a100-sxm-80gb", "--seq", "1024", *NETWORK], 4, 16),
    Question("Llama-3.2-1B, 4 x a100-sxm-80gb, 65,536 tokens",
             ["meta-llama/Llama-3.2-1B", "--device", "a100-sxm-80gb", "--seq", "65536"], 4, 4),
    Question("Qwen3-0.6B, 4 x rtx-4090 on 4 machines, eth-10g, any precision",
             ["Qwen/Qwen3-0.6B", "--device", "rtx-4090", "--seq", "1024", *NETWORK], 4, 16, "any"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="headroom")
    binary = parser.parse_args().binary
    for question in QUESTIONS:
        compared = compare(binary, question)
        fastest, first, searched = compared.fastest, compared.first, compared.searched
        print(question.name)
        print(f"  search      {1e3 * first['time']['step_seconds']:9.1f} ms  {first['flags']}")
        print(f"  one by one  {1e3 * fastest.seconds:9.1f} ms  {' '.join(fastest.setting.flags())}")
        print(f"  {len(compared.of_ways)} ways in {compared.asked} settings asked in {compared.each_seconds:.0f} s; "
              f"the search {compared.search_seconds:.1f} s: {json.dumps(searched)}")
        left_out = [compared.fastest_of(key) for key in compared.without_row() if compared.is_left_out(key)]
        print(f"  left out: {len(left_out)} ways" + (f", the fastest {1e3 * min(left_out):.1f} ms" if left_out else ""), flush=True)
        for key in compared.without_row():
            if not compared.is_left_out(key):
                print(f"  no row: {key}: {1e3 * compared.fastest_of(key):.1f} ms", flush=True)


if __name__ == "__main__":
    main()
