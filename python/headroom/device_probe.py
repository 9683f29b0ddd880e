"""Measures the operators of a language model on this machine, as PyTorch runs them.

    python -m headroom.device_probe --on cpu --seconds 60 --out points.json

The runner behind `headroom bench device`, which makes laws of the points. Shapes are drawn at random
(a fixed seed) from what models use, within what the machine does in a few tens of milliseconds;
operands take turns, so that weights and caches come from memory as they do in a model, unless the
machine's own cache holds all of the turns. A point is the median of samples of at least a
millisecond each, taken until the median is sure or the point's share of the time is spent. Outputs are memory that
the process has already (kept_memory.py).

Decode steps of models that are nearly all host are measured before, between and after the rounds, reductions among
processes at the end.

Prints `headroom: machine {...}` on stderr before anything is measured, and `headroom: progress DONE OF WHAT`. Exit codes: 0, 2 (usage), 4 (no PyTorch, no such
device), 5 (interrupted, or the device failed: nothing is written).
"""

import argparse
import json
import math
import os
import platform
import random
import statistics
import sys
import time

from headroom import collective_probe
from headroom.fresh_memory import take_fresh_memory
from headroom.kept_memory import keep_freed_memory, touch
from headroom.waiting import Waiting

EXIT_UNAVAILABLE, EXIT_PARTIAL = 4, 5
SCHEMA = "headroom.probe/1"

CLASSES = ("gemm_fp32", "gemm", "attention_decode", "attention_prefill", "elementwise", "normalization",
           "softmax", "rms_norm", "rope", "gated_activation", "embedding")
# Linear layers that quantize what goes in and give floats back, which PyTorch has kernels of on processors alone; and what
# there takes longer than moving its bytes does: copies whose innermost dimension becomes another, GELU, and its
# approximation by tanh.
PROCESSOR_CLASSES = ("linear_int8", "permuted_copy", "activation", "gelu_tanh")
# A call takes at most the first, less where there is little time, but never less than the second.
LONGEST_CALL_SECONDS, LEAST_LONGEST_SECONDS = 0.05, 0.012
CALLS_A_POINT = 10       # about so many at least: warm-up, and five samples
MOST_OPERAND_BYTES = 256 << 20
SPARE_OPERANDS = 4       # of the largest size, in memory that is there before the first call
POOL_BYTES = 1 << 30     # random numbers that all operands are views of
PEAK_POOL_BYTES = 1 << 28
LEAST_RATE_EDGE = 1024
LEAST_OF_A_SAMPLE = 0.05  # clocks differ: what a thread waited is never all of the time
MOST_TURNS = 16
LEAST_SAMPLE_SECONDS = 1e-3
SURE = 0.01              # half width of the median's interval, of the median
POINT_SECONDS = 0.25     # about what a point takes; the number of points follows from the time
LEAST_POINTS, MOST_POINTS = 18, 64  # of a class; a law needs 12, and some may be disturbed
SHORT_SECONDS = 20       # a run below it is a look: one round, as many points of each class, operators alone
MORE_POINTS = 2          # times as many of the products and of decode attention, which most of a step is
LEAST_OVERRUN_SECONDS = 60
MEMORY_BYTES = [1 << exponent for exponent in range(16, 29, 2)]  # 64 KiB to 256 MiB
BEYOND_CACHES = (2, 4, 8, 16)  # and blocks of so many caches, of which little or nothing is left in one
LATENCY_CALLS = 200
ROUNDS = 2               # a point is measured at so many times of the run: what is between them drifts


def say(words):
    print(f"headroom: {words}", file=sys.stderr, flush=True)


class Machine:
    """The device that is measured: what it is, its clock, and the caches that operands must leave."""

    def __init__(self, torch, name):
        self.torch = torch
        self.device = torch.device("cuda:0" if name == "cuda" else name)
        self.is_cuda = self.device.type == "cuda"
        self.pools, self.pool_bytes = {}, POOL_BYTES
        self.waiting = Waiting()
        if self.is_cuda:
            if not torch.cuda.is_available():
                raise RuntimeError("PyTorch sees no GPU here")
            torch.cuda.set_device(self.device)
            properties = torch.cuda.get_device_properties(self.device)
            self.product = properties.name
            self.memory_bytes = properties.total_memory
            self.cache_bytes = getattr(properties, "L2_cache_size", 0)
            self.units = properties.multi_processor_count
        else:
            self.product = cpu_product()
            self.memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            self.cache_bytes = last_cache_bytes()
            self.units = torch.get_num_threads()

    def free_bytes(self):
        if self.is_cuda:
            return self.torch.cuda.mem_get_info(self.device)[0]
        return available_host_bytes()

    def seconds_of(self, call, times):
        """Of `times` calls one after the other, on the device's own clock where it has one; on a processor less what
        other programs took of it, as far as the system says."""
        if self.is_cuda:
            start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for turn in range(times):
                call(turn)
            end.record()
            end.synchronize()
            return start.elapsed_time(end) * 1e-3
        waited, start = self.waiting.seconds(), time.perf_counter()
        for turn in range(times):
            call(turn)
        taken = time.perf_counter() - start
        return max(taken - (self.waiting.seconds() - waited), LEAST_OF_A_SAMPLE * taken)

    def operand(self, dtype, *sizes):
        """Random numbers, a view of a pool: the next ones each time, so that none stays in a cache."""
        count = math.prod(sizes)
        if dtype not in self.pools:
            bytes_ = min(self.pool_bytes, max(self.free_bytes() // 8, 2 * self.cache_bytes))
            pool = self.torch.empty(bytes_ // dtype.itemsize, dtype=dtype, device=self.device)
            self.pools[dtype] = [pool.uniform_(), 0]
        pool, at = self.pools[dtype]
        if at + count > pool.numel():
            at = 0
        self.pools[dtype][1] = at + -(-count // 64) * 64
        return pool[at:at + count].view(sizes)

    def identity(self):
        return {"product": self.product, "kind": self.device.type, "memory_bytes": self.memory_bytes,
                "cache_bytes": self.cache_bytes, "units": self.units, "torch": self.torch.__version__,
                "python": platform.python_version(), "system": platform.system(),
                "load": os.getloadavg()[0]}


def cpu_product():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def available_host_bytes():
    """What could be had without taking it from a program: pages of files count as free."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def last_cache_bytes():
    """Of the largest cache that the first processor sees; 8 MiB where the system does not say."""
    largest, folder = 0, "/sys/devices/system/cpu/cpu0/cache"
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    for index in os.listdir(folder) if os.path.isdir(folder) else ():
        try:
            with open(os.path.join(folder, index, "size"), encoding="ascii") as file:
                words = file.read().strip()
            largest = max(largest, int(words[:-1]) * units[words[-1]])
        except (OSError, ValueError, KeyError):
            continue
    return largest or 8 << 20


# ---- shapes -------------------------------------------------------------------------------------

def between(rng, low, high, grain=1):
    """Log-uniform, a multiple of `grain`."""
    value = math.exp(rng.uniform(math.log(low), math.log(high)))
    return max(grain, round(value / grain) * grain)


def draw_gemm(rng):
    """Of one row often, since that is another kernel; and as wide as a vocabulary now and then."""
    rows = 1 if rng.random() < 0.2 else between(rng, 2, 1024)
    if rng.random() < 0.15:
        return {"batch": 1, "m": rows, "n": between(rng, 16384, 160000, 64), "k": between(rng, 256, 4096, 64)}
    return {"batch": 1, "m": rows, "n": between(rng, 256, 16384, 64), "k": between(rng, 256, 8192, 64)}


def draw_heads(rng):
    sharing = rng.choice((1, 1, 4, 8))
    return {"heads": sharing * rng.choice((2, 4, 8, 12)), "sharing": sharing, "head_dim": rng.choice((64, 128))}


def draw_decode(rng):
    heads = draw_heads(rng)
    return {"batch": between(rng, 1, 128), "heads": heads["heads"],
            "kv_heads": heads["heads"] // heads["sharing"], "head_dim": heads["head_dim"],
            "queries": 1, "context": between(rng, 32, 8192)}


def draw_prefill(rng):
    heads, tokens = draw_heads(rng), between(rng, 64, 4096, 16)
    return {"batch": between(rng, 1, 8), "heads": heads["heads"],
            "kv_heads": heads["heads"] // heads["sharing"], "head_dim": heads["head_dim"],
            "queries": tokens, "context": tokens, "is_causal": rng.random() < 0.5}


def draw_permuted(rng):
    """From a matrix on its side."""
    return {"rows": between(rng, 16, 16384, 8), "width": between(rng, 16, 16384, 8)}


def draw_rows(rng):
    return {"rows": between(rng, 1, 32768), "width": between(rng, 256, 16384, 64)}


DRAW = {"gemm": draw_gemm, "gemm_fp32": draw_gemm, "linear_int8": draw_gemm, "attention_decode": draw_decode,
        "attention_prefill": draw_prefill, "permuted_copy": draw_permuted}

# Operands that are read or written, each of rows x width.
ROW_OPERANDS = {"elementwise": 3, "permuted_copy": 2, "activation": 2, "gelu_tanh": 2, "normalization": 2, "softmax": 2, "rms_norm": 2, "rope": 4,
                "gated_activation": 3, "embedding": 2}
VOCABULARY = 32768


def work_of(kind, shape, size):
    """Multiplications and additions, and bytes that must move."""
    if kind in ("gemm", "gemm_fp32"):
        m, n, k = shape["m"], shape["n"], shape["k"]
        return 2.0 * m * n * k, size * (m * k + n * k + m * n)
    if kind == "linear_int8":
        m, n, k = shape["m"], shape["n"], shape["k"]
        return 2.0 * m * n * k, size * (m * k + m * n) + n * k
    if kind.startswith("attention"):
        batch, queries, context, width = (shape[key] for key in ("batch", "queries", "context", "head_dim"))
        pairs = queries * context - (queries * (queries - 1) / 2 if shape.get("is_causal", True) else 0)
        flops = 4.0 * batch * shape["heads"] * pairs * width
        cache = 2 * shape["kv_heads"] * context
        return flops, size * batch * width * (cache + 2 * shape["heads"] * queries)
    return 0.0, size * ROW_OPERANDS[kind] * shape["rows"] * shape["width"]


def coarse(rates):
    """To powers of two, so that two runs on one machine choose the same shapes."""
    return {name: 2.0 ** round(math.log2(rate)) for name, rate in rates.items()}


def draw_shape(rng, kind, size, rates, longest, least_bytes, most_bytes):
    """One that the machine does in `longest` seconds, of at least `least_bytes`; None where none is found."""
    draw = DRAW.get(kind, draw_rows)
    for _ in range(2000):
        shape = draw(rng)
        flops, moved = work_of(kind, shape, size)
        seconds = flops / rates["flops"] + moved / rates["bytes"]
        if least_bytes <= moved <= most_bytes and seconds <= longest:
            return shape
    return None


def draw_shapes(seed, kind, size, count, rates, longest, cache_bytes, most_bytes):
    """Every other one beyond the cache, as most of a model is; the rest of any size. Each by a generator of its
    own, so that what one shape is does not depend on how often another was drawn."""
    shapes = []
    for turn in range(count):
        rng = random.Random(f"{seed} {kind} {turn}")
        least = 2 * cache_bytes if turn % 2 else 0
        shape = (draw_shape(rng, kind, size, rates, longest, least, most_bytes)
                 or draw_shape(rng, kind, size, rates, longest, 0, most_bytes))
        if shape:
            shapes.append(shape)
    return shapes


# ---- operators ----------------------------------------------------------------------------------

def packed_int8(torch, weight):
    """As quantize_dynamic packs a linear layer's: a scale for all of it."""
    scale = max(float(weight.abs().max()), 1e-6) / 127
    quantized = torch.quantize_per_tensor(weight, scale, 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(quantized, None)


def make_call(machine, kind, shape, dtype, turns):
    """call(turn), its operands one of `turns` sets."""
    torch, functional = machine.torch, machine.torch.nn.functional

    def random_tensor(*sizes):
        return machine.operand(dtype, *sizes)

    if kind in ("gemm", "gemm_fp32"):
        inputs = [random_tensor(shape["m"], shape["k"]) for _ in range(turns)]
        weights = [random_tensor(shape["n"], shape["k"]) for _ in range(turns)]
        return lambda turn: functional.linear(inputs[turn % turns], weights[turn % turns])
    if kind == "linear_int8":
        inputs = [random_tensor(shape["m"], shape["k"]) for _ in range(turns)]
        weights = [packed_int8(torch, random_tensor(shape["n"], shape["k"])) for _ in range(turns)]
        linear = torch.ops.quantized.linear_dynamic  # reduce_range, as torch.ao's own layers give it
        return lambda turn: linear(inputs[turn % turns], weights[turn % turns], True)
    if kind.startswith("attention"):
        def operand(heads, tokens):
            return [random_tensor(shape["batch"], heads, tokens, shape["head_dim"]) for _ in range(turns)]
        queries = operand(shape["heads"], shape["queries"])
        keys, values = (operand(shape["kv_heads"], shape["context"]) for _ in range(2))
        options = {"is_causal": shape.get("is_causal", False), "enable_gqa": shape["heads"] != shape["kv_heads"]}
        return lambda turn: functional.scaled_dot_product_attention(
            queries[turn % turns], keys[turn % turns], values[turn % turns], **options)
    rows, width = shape["rows"], shape["width"]
    if kind == "embedding":
        table = random_tensor(max(64, min(VOCABULARY, MOST_OPERAND_BYTES // (width * dtype.itemsize))), width)
        words = [torch.randint(len(table), (rows,), device=machine.device) for _ in range(turns)]
        return lambda turn: functional.embedding(words[turn % turns], table)
    if kind == "permuted_copy":  # of three dimensions, as models have them: PyTorch has a kernel of its own for two
        sources = [random_tensor(1, width, rows) for _ in range(turns)]
        return lambda turn: sources[turn % turns].transpose(1, 2).contiguous()
    operands = [random_tensor(rows, width) for _ in range(turns)]
    if kind == "elementwise":
        others = [random_tensor(rows, width) for _ in range(turns)]
        return lambda turn: torch.add(operands[turn % turns], others[turn % turns])
    if kind == "activation":
        return lambda turn: functional.gelu(operands[turn % turns])
    if kind == "gelu_tanh":
        return lambda turn: functional.gelu(operands[turn % turns], approximate="tanh")
    if kind == "gated_activation":
        others = [random_tensor(rows, width) for _ in range(turns)]
        return lambda turn: functional.silu(operands[turn % turns]) * others[turn % turns]
    if kind == "rope":  # queries and keys, as transformers writes it
        others = [random_tensor(rows, width) for _ in range(turns)]
        angles = random_tensor(rows, width)

        def rotate(x):
            return x * angles + torch.cat((-x[:, width // 2:], x[:, :width // 2]), dim=-1) * angles
        return lambda turn: (rotate(operands[turn % turns]), rotate(others[turn % turns]))
    weight = random_tensor(width)
    if kind == "normalization":
        return lambda turn: functional.layer_norm(operands[turn % turns], (width,), weight, weight)
    if kind == "rms_norm":
        return lambda turn: functional.rms_norm(operands[turn % turns], (width,), weight)
    return lambda turn: torch.softmax(operands[turn % turns], dim=-1)


def turns_for(machine, moved):
    """Enough sets of operands that the cache cannot hold them all, within reason."""
    return int(min(MOST_TURNS, max(1, math.ceil(2 * machine.cache_bytes / max(moved, 1)))))


# ---- measuring ----------------------------------------------------------------------------------

def half_width(samples):
    """Of a median's 95 % interval, as a share of it: 1.57 interquartile ranges over the root of the count (McGill,
    Tukey and Larsen 1978)."""
    low, middle, high = statistics.quantiles(samples, n=4)
    return 1.57 * (high - low) / math.sqrt(len(samples)) / middle


def take_samples(machine, call, seconds):
    """Seconds a call, until their median is sure or the time is up; and how sure it is."""
    machine.seconds_of(call, 1)
    once = max(machine.seconds_of(call, 1), 1e-7)
    times = max(1, math.ceil(LEAST_SAMPLE_SECONDS / once))
    samples, deadline = [], time.perf_counter() + seconds
    while True:
        samples.append(machine.seconds_of(call, times) / times)
        if len(samples) < 5:
            continue
        half = half_width(samples)
        if half <= SURE or time.perf_counter() >= deadline or len(samples) >= 1000:
            return samples, half


def rough_rates(machine, dtype, product="gemm"):
    """What the machine does per second, to choose shapes by: the best of some samples."""
    size = dtype.itemsize
    edge, flops = 512, 0.0
    while True:
        call = make_call(machine, product, {"m": edge, "n": edge, "k": edge}, dtype, 1)
        taken = min(take_samples(machine, call, 0.05)[0])
        flops = max(flops, 2.0 * edge ** 3 / taken)
        # A small one may be disturbed throughout, while threads start: that is no rate.
        if edge >= LEAST_RATE_EDGE and taken > 5e-3 or edge >= 8192:
            break
        edge *= 2
    rows = max(64, int(min(MOST_OPERAND_BYTES, 4 * machine.cache_bytes) / (3 * 4096 * size)))
    call = make_call(machine, "elementwise", {"rows": rows, "width": 4096}, dtype, 1)
    moving = min(take_samples(machine, call, 0.2)[0])
    return {"flops": flops, "bytes": size * 3.0 * rows * 4096 / moving}


def dtypes_of(machine, words):
    torch = machine.torch
    names = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    return {"gemm_fp32": ("fp32", torch.float32), "gemm": ("bf16", torch.bfloat16),
            "linear_int8": ("int8", torch.float32), None: (words, names[words])}


def classes_of(machine):
    """What can be measured there. Quantized products need an engine that this build of PyTorch may lack."""
    if machine.is_cuda:
        return CLASSES
    has_engine = machine.torch.backends.quantized.engine != "none"
    return CLASSES + tuple(kind for kind in PROCESSOR_CLASSES if has_engine or kind != "linear_int8")


def rates_of(machine, table, classes):
    """By the name of the arithmetic."""
    rates = {}
    for kind in classes:
        name, dtype = table.get(kind, table[None])
        if name not in rates:
            rates[name] = coarse(rough_rates(machine, dtype, kind if kind == "linear_int8" else "gemm"))
    return rates


def peak_rates(machine, dtype):
    """The most that the machine was seen to do per second: traffic that is only read too, as decoding reads."""
    torch, machine.pool_bytes = machine.torch, PEAK_POOL_BYTES
    rates = rough_rates(machine, dtype)
    width = 4096
    rows = max(64, int(min(PEAK_POOL_BYTES / 2, 8 * machine.cache_bytes) / (width * dtype.itemsize)))
    matrix, vector = machine.operand(dtype, rows, width), machine.operand(dtype, width)
    size = dtype.itemsize * rows * width
    reading = min(min(take_samples(machine, call, 0.2)[0])
                  for call in (lambda _: torch.mv(matrix, vector), lambda _: matrix.sum()))
    machine.pools, machine.pool_bytes = {}, POOL_BYTES
    return {"flops": rates["flops"], "bytes": max(rates["bytes"], size / reading)}


def take_memory(machine):
    """Bandwidth by size, of one block again and again: what a cache holds comes from it. Of the median sample: the best
    one of many is a clock that erred, or what the machine does not do again."""
    torch, found = machine.torch, []
    for size in sorted({*MEMORY_BYTES, *(times * machine.cache_bytes // 4 * 4 for times in BEYOND_CACHES)} - {0}):
        if size > machine.free_bytes() // 8:
            break
        source = torch.ones(size // 4, dtype=torch.float32, device=machine.device)
        target = torch.empty_like(source)
        copying, reading = (statistics.median(take_samples(machine, call, 0.1)[0])
                            for call in (lambda _: target.copy_(source), lambda _: source.sum()))
        found.append({"bytes": size, "copy_bytes_per_second": 2 * size / copying, "read_bytes_per_second": size / reading})
    return found


def take_latency(machine):
    """Of an addition of one number: what issuing it takes, and until it is done."""
    torch = machine.torch
    number = torch.zeros(1, device=machine.device)

    def finish():
        if machine.is_cuda:
            torch.cuda.synchronize(machine.device)

    launches, trips = [], []
    for _ in range(5):
        finish()
        start = time.perf_counter()
        for _ in range(LATENCY_CALLS):
            number.add_(1)
        launches.append((time.perf_counter() - start) / LATENCY_CALLS)
        finish()
        start = time.perf_counter()
        number.add_(1)
        finish()
        trips.append(time.perf_counter() - start)
    return {"launch_seconds": statistics.median(launches), "round_trip_seconds": statistics.median(trips)}


def clock_hertz(machine):
    """Now; None where nobody says."""
    if machine.is_cuda:
        try:
            return 1e6 * machine.torch.cuda.clock_rate(machine.device)
        except Exception:  # noqa: BLE001  without NVIDIA's library for Python, or the right to ask
            return None
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            clocks = [float(line.split(":")[1]) for line in file if line.startswith("cpu MHz")]
    except (OSError, ValueError, IndexError):
        return None
    return 1e6 * statistics.fmean(clocks) if clocks else None


def take_points(machine, arguments, between=lambda: None):
    """`between` is called before the first round and after each."""
    rng = random.Random(arguments.seed)
    table = dtypes_of(machine, arguments.dtype)
    classes = classes_of(machine)
    rates = rates_of(machine, table, classes)
    most_bytes = min(MOST_OPERAND_BYTES, machine.free_bytes() // 8)
    if not machine.is_cuda:
        touch(machine.torch, SPARE_OPERANDS * most_bytes)
    is_short = arguments.seconds < SHORT_SECONDS
    main = set() if is_short else {"attention_decode", "gemm_fp32" if arguments.dtype == "fp32" else "gemm"}
    rounds = 1 if is_short else ROUNDS
    wanted = arguments.seconds / ((len(classes) + len(main) * (MORE_POINTS - 1)) * POINT_SECONDS)
    count = min(MOST_POINTS, max(LEAST_POINTS, round(wanted)))
    longest = arguments.seconds / (len(classes) * count * CALLS_A_POINT)
    longest = min(LONGEST_CALL_SECONDS, max(LEAST_LONGEST_SECONDS, longest))
    plan = []
    for kind in classes:
        name, dtype = table.get(kind, table[None])
        many = count * (MORE_POINTS if kind in main else 1)
        if kind == "linear_int8":  # the shapes of those in float32: the quotient of the two is what is asked for
            # Weights of one byte are made of floats.
            shapes = [shape for other, _, other_dtype, shape in plan if other == "gemm_fp32"
                      and work_of(other, shape, other_dtype.itemsize)[1] <= most_bytes // dtype.itemsize][:many]
            # Where caches are small many of those are too large.
            shapes += draw_shapes(arguments.seed, kind, dtype.itemsize, many - len(shapes), rates[name], longest,
                                  machine.cache_bytes, most_bytes // dtype.itemsize)
        else:
            shapes = draw_shapes(arguments.seed, kind, dtype.itemsize, many, rates[name], longest, machine.cache_bytes,
                                 most_bytes)
        plan += [(kind, name, dtype, shape) for shape in shapes]
    between()
    taken, started, done, of = {}, time.perf_counter(), 0, rounds * len(plan)
    for _ in range(rounds):
        # In an order of its own, so that what else the machine does falls on no class alone.
        for index in rng.sample(range(len(plan)), len(plan)):
            left = arguments.seconds - (time.perf_counter() - started)
            # On a busy machine calls take longer than they should: a second round is no must, and a first one ends
            # when it is over by as much again. The order is random, so that every class has its share by then.
            if left < (0 if index in taken else -max(arguments.seconds, LEAST_OVERRUN_SECONDS)):
                break
            kind, name, dtype, shape = plan[index]
            say(f"progress {done} {of} {kind}")
            moved = work_of(kind, shape, dtype.itemsize)[1]
            call = make_call(machine, kind, shape, dtype, turns_for(machine, moved))
            taken.setdefault(index, []).append(take_samples(machine, call, max(0.02, left / (of - done))))
            done += 1
        between()
    say(f"progress {of} {of} done")
    return [point_of(plan[index], taken[index]) for index in sorted(taken)]


def point_of(planned, rounds):
    """Of the medians of the rounds their geometric mean, as unsure as the worse of them; and how far apart they
    are, as a logarithm: what a run at another time differs by."""
    kind, name, dtype, shape = planned
    medians = [statistics.median(samples) for samples, _ in rounds]
    return {"class": kind, "rate": name, "shape": shape, "bytes": work_of(kind, shape, dtype.itemsize)[1],
            "seconds": math.exp(statistics.fmean(map(math.log, medians))),
            "uncertainty": max(half for _, half in rounds), "samples": sum(len(samples) for samples, _ in rounds),
            "drift_log": math.log(max(medians) / min(medians))}


# Models so small that most of a decode step is the host's: between operators, in Python. Of the shapes of
# two common families, since each calls its operators through modules of its own.
STEP_MODELS = (
    {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 8, "hidden_size": 256,
     "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512},
    {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 8, "n_embd": 256, "n_head": 4,
     "n_positions": 256, "vocab_size": 512},
)
STEP_CONTEXT, STEP_SECONDS = 64, 0.5


class Steps:
    """Decode steps of those models, measured at several times of the run, since what the host takes drifts more than
    anything else does."""

    def __init__(self, machine, words):
        from headroom import nongemm_models
        self.machine, self.calls, self.taken = machine, [], []
        self.name, dtype = dtypes_of(machine, words)[None]
        try:
            self.calls = [self._call(config, dtype) for config in STEP_MODELS]
        except (nongemm_models.Refused, ImportError) as refusal:  # no transformers, or one without these caches
            say(f"no host time: {refusal}")

    def _call(self, config, dtype):
        from headroom import decode_step, nongemm_models
        recipe = nongemm_models.Recipe(self.machine.torch, {"name": config["model_type"], "config": config, "inputs": {}})
        module = recipe.make(None, dtype).to(self.machine.device)
        return decode_step.make_step(self.machine, module, dtype, 1, STEP_CONTEXT, self.machine.free_bytes())[0]

    def take(self):
        self.taken.append([take_samples(self.machine, lambda _, step=call: step(), STEP_SECONDS) for call in self.calls])

    def points(self):
        """Of each model the median of what its rounds say."""
        points = []
        for config, rounds in zip(STEP_MODELS, zip(*self.taken)):
            points.append({"config": config, "batch": 1, "context": STEP_CONTEXT, "dtype": self.name,
                           "seconds": statistics.median(statistics.median(samples) for samples, _ in rounds),
                           "uncertainty": max(half for _, half in rounds),
                           "samples": sum(len(samples) for samples, _ in rounds)})
        return points


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--dtype", choices=("fp32", "bf16", "fp16"), default=None,
                        help="of everything but products, which are measured in fp32 and bf16")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: as many as PyTorch takes")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        say(f"PyTorch cannot be imported: {error}")
        return EXIT_UNAVAILABLE
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    try:
        machine = Machine(torch, arguments.on)
        torch.empty(1, device=machine.device)
    except (RuntimeError, AssertionError, ValueError) as error:
        say(f"there is no device {arguments.on}: {str(error).splitlines()[0]}")
        return EXIT_UNAVAILABLE
    arguments.dtype = arguments.dtype or ("bf16" if machine.is_cuda else "fp32")
    identity = {**machine.identity(), "clock_hertz": clock_hertz(machine)}  # with the load before ours
    say(f"machine {json.dumps(identity)}")
    try:
        with torch.inference_mode():
            # What a GPU's host does between launches is hidden behind its kernels.
            has_steps = not machine.is_cuda and arguments.seconds >= SHORT_SECONDS
            steps = Steps(machine, arguments.dtype) if has_steps else None
            memory, latency, fresh = take_memory(machine), take_latency(machine), take_fresh_memory(machine)
            points = take_points(machine, arguments, steps.take if steps else lambda: None)
            points += collective_probe.take_collectives(machine, arguments.seconds)
    except (KeyboardInterrupt, RuntimeError, MemoryError) as error:
        say(f"measuring stopped: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
        return EXIT_PARTIAL
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump({"schema": SCHEMA, "machine": identity, "seconds": arguments.seconds,
                   "seed": arguments.seed, "points": points, "bandwidth": memory, "latency": latency, "fresh_memory": fresh,
                   "steps": steps.points() if steps else []}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
