"""Published tables of measured operators, read into one shape: a Sample a row.

The tables are other people's and stay outside the repository (HEADROOM_DATA names the folder); which
they are, and under which licence, is said in its README. Nothing is filtered here but rows that
cannot be used at all: no time, or a type that the laws do not know.

Units: seconds, bytes, floating-point operations (a multiply-add is two). Bytes are what the
algorithm must move at least once, the same count as in the step model (operator/sink.h).
"""

import csv
import gzip
import importlib.util
import json
import pathlib
from dataclasses import dataclass, field

BF16 = 2  # bytes an element
FP32 = 4


@dataclass(frozen=True)
class Device:
    """What the laws need to know of a device. Rates are dense."""

    name: str
    flops: dict  # rate name -> FLOP/s
    bandwidth: float  # bytes/s
    l2: float  # bytes
    sm: int
    link: float = 0.0  # bytes/s to the other devices, one direction


@dataclass
class Sample:
    kind: str  # "gemm", "attention_decode", ...
    device: str
    source: str
    seconds: float
    flops: float
    bytes: float
    rate: str
    group: str = ""  # a model or table, for leave-one-out by something else than the device
    shape: dict = field(default_factory=dict)


# Devices of the tables that data/devices.json does not have.
# P4, P100: NeuSight's device_configs.
OTHER_DEVICES = {
    "p4": Device("p4", {"fp32": 5.699e12}, 192e9, 2 * 2**20, 20),
    "p100-pcie-16gb": Device("p100-pcie-16gb", {"fp32": 9.519e12}, 732e9, 4 * 2**20, 56),
}

NEUSIGHT_NAMES = {
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm-80gb",
    "NVIDIA L4": "l4-24gb",
    "Tesla P100-PCIE-16GB": "p100-pcie-16gb",
    "Tesla P4": "p4",
    "Tesla T4": "t4-16gb",
    "Tesla V100-PCIE-32GB": "v100-pcie-32gb",
}


def devices(repository):
    """Name -> Device, from the repository's data/devices.json and the few that it lacks."""
    found = dict(OTHER_DEVICES)
    entries = json.loads((repository / "data/devices.json").read_text())["devices"]
    whole = {}
    for entry in entries:
        merged = {**whole.get(entry.get("like"), {}), **entry}
        whole[entry["name"]] = merged
        rates = merged.get("dense_flops_per_second", {})
        found[entry["name"]] = Device(
            name=entry["name"],
            flops={rate: figure["value"] for rate, figure in rates.items() if figure},
            bandwidth=_figure(merged, "bandwidth_bytes_per_second"),
            l2=_figure(merged, "l2_bytes"),
            sm=int(_figure(merged, "sm_count")),
            link=_figure(merged, "link_bytes_per_second"),
        )
    return found


def _figure(entry, key):
    return (entry.get(key) or {}).get("value", 0)


# --- what an operator does, counted ---------------------------------------------------------------


def gemm(batch, m, n, k, element):
    """(flops, bytes) of `batch` products of m x k by k x n."""
    return 2.0 * batch * m * n * k, float(element) * batch * (m * k + k * n + m * n)


def attention(batch, heads, kv_heads, head_dim, queries, context, element):
    """(flops, bytes) of attention; `queries` tokens a sequence, the last of `context`, causal."""
    pairs = queries * (context - queries) + queries * (queries + 1) / 2
    flops = 4.0 * batch * heads * head_dim * pairs
    moved = 2 * queries * heads * head_dim + 2 * context * kv_heads * head_dim
    return flops, float(element) * batch * moved


def all_reduce(devices, size):
    """Bytes that each device sends over its links to reduce `size` bytes among `devices`: a ring's."""
    return 2.0 * (devices - 1) / devices * size


# --- the tables -----------------------------------------------------------------------------------


def neusight(data):
    """NeuSight's measured operators (FP32, PyTorch 2.1): linear, bmm, elementwise, norm, softmax."""
    folder = data / "operator_traces/neusight/op_test"
    for file in ("linear", "bmm", "elem", "ln", "softmax"):
        with gzip.open(folder / f"{file}.csv.gz", "rt") as text:
            for row in csv.DictReader(text):
                sample = _neusight_row(file, row)
                if sample:
                    yield sample


def _neusight_row(file, row):
    seconds = float(row["Latency"]) * 1e-3
    device = NEUSIGHT_NAMES.get(row["Device"])
    if not device or not seconds > 0:
        return None
    if file in ("linear", "bmm"):
        batch, m, n, k = (int(row[c]) for c in "BMNK")
        shape = {"batch": batch, "m": m, "n": n, "k": k}
        return Sample("gemm", device, "neusight", seconds, *gemm(batch, m, n, k, FP32), "fp32", f"{n}x{k}", shape)
    rows, width = int(row["B"]), int(row["H"])
    binary = row["OPName"] in ("add", "mul", "div", "pow")
    moved = float(FP32) * rows * width * (3 if binary else 2)
    kind = {"elem": "elementwise", "ln": "normalization", "softmax": "softmax"}[file]
    shape = {"rows": rows, "width": width}
    return Sample(kind, device, "neusight", seconds, 0.0, moved, "fp32", row["OPName"], shape)


AIC_DEVICES = {"a100_sxm": "a100-sxm-80gb", "h100_sxm": "h100-sxm-80gb", "l40s": "l40s-48gb"}


def aiconfigurator(data):
    """AIConfigurator's kernels under vLLM: bf16 GEMM (m <= 2048), decode and prefill attention."""
    folder = data / "performance/aiconfigurator"
    for path in sorted(folder.glob("*_gemm_bf16_*.csv")):
        device = AIC_DEVICES[path.name.split("_gemm")[0]]
        for row in csv.DictReader(path.open()):
            yield _gemm_sample("aiconfigurator", device, row, float(row["latency_ms"]) * 1e-3)
    for path in sorted(folder.glob("*_attention_decode_bf16_*.csv")):
        device = AIC_DEVICES[path.name.split("_attention")[0]]
        for row in csv.DictReader(path.open()):
            yield _decode_sample("aiconfigurator", device, row, float(row["latency_ms"]) * 1e-3)
    for path in sorted(folder.glob("parquet/*_context_attention_perf.parquet")):
        device = AIC_DEVICES[path.name.split("_attention")[0]]
        for row in _parquet(data, path):
            if row["kv_cache_dtype"] == "bfloat16" and not row.get("window_size"):
                yield _prefill_sample("aiconfigurator", device, row, row["latency"] * 1e-3)


def _parquet(data, path):
    """Rows of a parquet file, by the reader that lies beside the data."""
    spec = importlib.util.spec_from_file_location("read_parquet", data.parent / "tools/read_parquet.py")
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    count, columns = reader.read(path.read_bytes())
    return ({key: values[i] for key, values in columns.items()} for i in range(count))


def _gemm_sample(source, device, row, seconds):
    m, n, k = int(row["m"]), int(row["n"]), int(row["k"])
    shape = {"batch": 1, "m": m, "n": n, "k": k}
    return Sample("gemm", device, source, seconds, *gemm(1, m, n, k, BF16), "bf16", f"{n}x{k}", shape)


def _attention_shape(row):
    return int(row["batch_size"]), int(row["num_heads"]), int(row["num_key_value_heads"]), int(row["head_dim"])


def _attention_sample(kind, source, device, numbers, seconds):
    batch, heads, kv_heads, head_dim, queries, context = numbers
    flops, moved = attention(batch, heads, kv_heads, head_dim, queries, context, BF16)
    names = ("batch", "heads", "kv_heads", "head_dim", "queries", "context")
    group = f"{heads}/{kv_heads}x{head_dim}"
    return Sample(kind, device, source, seconds, flops, moved, "bf16", group, dict(zip(names, numbers)))


def _decode_sample(source, device, row, seconds):
    numbers = (*_attention_shape(row), 1, int(row["step"]) + 1)
    return _attention_sample("attention_decode", source, device, numbers, seconds)


def _prefill_sample(source, device, row, seconds):
    numbers = (*_attention_shape(row), int(row["isl"]), int(row["isl"]))
    return _attention_sample("attention_prefill", source, device, numbers, seconds)


INFERSIM_DEVICES = {"h20": "h20-96gb", "h800": "h800-sxm-80gb"}


def infersim(data):
    """InferSim's GEMM and decode attention (32 heads, 8 for keys and values) on H20 and H800."""
    folder = data / "performance/infersim"
    for short, device in INFERSIM_DEVICES.items():
        for row in csv.DictReader((folder / f"gemm_{short}_data.csv").open()):
            yield _fp8_gemm_sample(device, row)
        for row in csv.DictReader((folder / f"mha_decode_{short}_32-8-128.csv").open()):
            if row["kv_dtype"] != "bf16":
                continue
            numbers = (int(row["batch_size"]), 32, 8, 128, 1, int(row["kv_len"]))
            seconds = float(row["latency_us"]) * 1e-6
            yield _attention_sample("attention_decode", "infersim", device, numbers, seconds)


def _fp8_gemm_sample(device, row):
    """InferSim's GEMM is FP8 with a bf16 result: its own mfu column is a share of the FP8 rate."""
    sample = _gemm_sample("infersim", device, row, float(row["latency_us"]) * 1e-6)
    m, n, k = (sample.shape[axis] for axis in "mnk")
    sample.bytes = float(m * k + k * n + BF16 * m * n)
    sample.rate = "fp8"
    return sample


def llmcompass(data):
    """LLMCompass's products on an A100, fp16: no class has them among its sources, they judge."""
    for row in csv.reader((data / "performance/llmcompass/matmul_A100.csv").open()):
        shape = dict(zip("mnk", map(int, row[:3])))
        yield _gemm_sample("llmcompass", "a100-sxm-80gb", shape, float(row[3].strip().removesuffix("ms")) * 1e-3)


VIDUR_DEVICES = {"a100": "a100-sxm-80gb", "h100": "h100-sxm-80gb"}


def vidur(data):
    """Vidur's Llama-2-7B layer by number of tokens and tensor-parallel degree (fp16)."""
    for short, device in VIDUR_DEVICES.items():
        path = data / f"performance/vidur/profiling_compute_{short}_meta-llama_Llama-2-7b-hf_mlp.csv"
        for row in csv.DictReader(path.open()):
            yield from _vidur_row(device, row)


def _vidur_row(device, row):
    tokens, tp = int(row["num_tokens"]), int(row["num_tensor_parallel_workers"])
    hidden, inner = int(row["n_embd"]), int(row["n_expanded_embd"]) // tp
    products = {
        "attn_pre_proj": (3 * hidden // tp, hidden),
        "attn_post_proj": (hidden, hidden // tp),
        "mlp_up_proj": (2 * inner, hidden),
        "mlp_down_proj": (hidden, inner),
    }
    for name, (n, k) in products.items():
        yield _gemm_sample("vidur", device, {"m": tokens, "n": n, "k": k}, _vidur_seconds(row, name))
    elements = {  # kind, elements moved
        "emb": ("embedding", 2 * tokens * hidden),
        "input_layernorm": ("rms_norm", 2 * tokens * hidden),
        "attn_rope": ("rope", 4 * tokens * hidden // tp),
        "mlp_act": ("gated_activation", 3 * tokens * inner),
        "add": ("elementwise", 3 * tokens * hidden),
    }
    for name, (kind, moved) in elements.items():
        seconds = _vidur_seconds(row, name)
        if seconds:
            shape = {"rows": tokens, "width": hidden}
            yield Sample(kind, device, "vidur", seconds, 0.0, float(BF16) * moved, "fp16", name, shape)


def _vidur_seconds(row, name):
    return float(row[f"time_stats.{name}.median"] or 0) * 1e-3


def collectives(data):
    """All-reduce within one server: NCCL's by Vidur, and vLLM's own kernel inside a CUDA graph by
    AIConfigurator. Vidur's groups that span servers are left out: the network is not named."""
    for short, device in VIDUR_DEVICES.items():
        path = data / f"performance/vidur/profiling_network_{short}_dgx_all_reduce.csv"
        for row in csv.DictReader(path.open()):
            if row["num_workers"] == row["devices_per_node"]:
                seconds = float(row["time_stats.all_reduce.median"]) * 1e-3
                yield _collective("all_reduce", device, "vidur", int(row["num_workers"]), int(row["size"]), seconds)
    for path in sorted((data / "performance/aiconfigurator/parquet").glob("*_comm_vllm_*.parquet")):
        device = AIC_DEVICES[path.name.split("_comm")[0]]
        for row in _parquet(data, path):
            if row["kernel_source"] == "vLLM_custom_graph":
                count, size = row["num_gpus"], row["message_size"]
                seconds = row["latency"] * 1e-3
                yield _collective("all_reduce_graph", device, "aiconfigurator", count, size, seconds)


def _collective(kind, device, source, count, size, seconds):
    shape = {"group": count, "message": size}
    return Sample(kind, device, source, seconds, 0.0, all_reduce(count, size), "bf16", str(count), shape)


def load(data):
    """Every usable Sample of every table."""
    readers = (neusight, aiconfigurator, infersim, llmcompass, vidur, collectives)
    return [s for read in readers for s in read(pathlib.Path(data)) if s.seconds > 0 and s.bytes > 0]
