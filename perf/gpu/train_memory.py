"""Real fine-tuning steps on one GPU, for measurements to hold `headroom fit` against.

Configurations of ten families, whose weights are never set: no size depends on them. The settings (method,
batch, sequence, checkpointing, attention, optimizer, dtype) follow a balanced design with a fixed seed. Each
setting runs three steps in a process of its own, forked from one that has imported everything and never
touched the GPU, so that nothing is left over from another setting and a start costs one CUDA
context. Several run at once (--beside), behind a few that run alone, of which alone it is known what the
device shows; one for which there was no memory beside others, or whose allocator had to give back what it had
cached, is run again alone. Rows are written as they come, with the columns of docs/formats/measurements.md, into two
files: families whose rows may be looked at while developing, and families held aside.

    python3 perf/gpu/train_memory.py --out DIR --seconds 540
    python3 perf/gpu/train_memory.py --list            what would be run
"""

import argparse
import csv
import dataclasses
import gc
import json
import os
import pickle
import random
import select
import signal
import statistics
import sys
import time
import typing
from pathlib import Path

# Asking whether there is a GPU must not start CUDA here: children could not, after that.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

STEPS = 3
TIMED_STEPS = 5  # more, of a setting that runs alone, whose median time counts
COLUMNS = [
    "id", "source", "quality", "scope", "model", "n_params", "method", "weights_dtype",
    "mixed_precision", "optimizer", "micro_batch", "seq_len", "grad_accum", "act_ckpt", "attention",
    "loss_impl", "framework", "gpu", "n_gpus", "parallelism", "metric", "value_bytes",
    "alloc_after_step_bytes", "nvidia_smi_mib", "notes", "torch_version", "cuda_version",
    "first_step_peak_bytes", "smi_before_mib", "step_seconds", "seconds", "status",
]

# Large enough that parameters, activations and logits all matter, small enough for seconds a run.
_COMMON = {"num_hidden_layers": 12, "hidden_size": 1536, "num_attention_heads": 16}
FAMILIES = {
    "gpt2": {"n_layer": 16, "n_embd": 1280, "n_head": 20, "n_positions": 4096},
    "llama": {**_COMMON, "intermediate_size": 4096, "num_key_value_heads": 16,
              "vocab_size": 32000, "max_position_embeddings": 4096},
    "mistral": {**_COMMON, "intermediate_size": 5376, "num_key_value_heads": 4,
                "vocab_size": 32000, "sliding_window": None},
    "qwen2": {**_COMMON, "intermediate_size": 4864, "num_key_value_heads": 4,
              "vocab_size": 151936},
    "qwen3": {**_COMMON, "intermediate_size": 4608, "num_key_value_heads": 8, "head_dim": 96,
              "vocab_size": 151936},
    "opt": {**_COMMON, "ffn_dim": 6144, "word_embed_proj_dim": 1536,
            "max_position_embeddings": 4096},
    "bloom": {"n_layer": 10, "hidden_size": 1024, "n_head": 16, "vocab_size": 250880},
    "gpt_neox": {**_COMMON, "intermediate_size": 6144, "vocab_size": 50432,
                 "max_position_embeddings": 4096},
    "gemma": {**_COMMON, "intermediate_size": 6144, "num_key_value_heads": 4, "head_dim": 128,
              "vocab_size": 256000},
    "phi": {**_COMMON, "intermediate_size": 6144, "vocab_size": 51200,
            "max_position_embeddings": 4096},
}
# As many layers as there are, and heads, so that methods which share these out do.
TINY = {"n_layer": 2, "n_embd": 32, "n_head": 2, "hidden_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 64, "ffn_dim": 64,
        "word_embed_proj_dim": 64, "head_dim": 16, "vocab_size": 128}
# Chosen before anything was measured, with relatives on both sides.
HELD_ASIDE = ("mistral", "qwen3", "bloom", "phi", "gpt2")

EAGER_ONLY = ("bloom",)  # its attention has no other implementation
MOST_SCORES = 2e8        # elements of one layer's attention matrix, where it is made
MOST_LOGITS = 1.1e9      # elements of the logits


@dataclasses.dataclass(frozen=True)
class Setting:
    id: int
    family: str
    method: str         # full, lora
    batch: int
    seq: int
    checkpointing: str  # none, full
    attention: str      # eager, sdpa
    optimizer: str      # adamw-foreach, adamw-fused, adamw-loop, sgd, adafactor
    dtype: str          # bfloat16, float32


def balanced(levels, count, rng):
    """`count` draws in which every level comes up as often as the others, give or take one."""
    draws = [levels[i % len(levels)] for i in range(count)]
    rng.shuffle(draws)
    return draws


def bounded_batch(family, config, tokens, seq, attention):
    batch = max(1, tokens // seq)
    heads = config.get("num_attention_heads", config.get("n_head"))
    vocab = config.get("vocab_size", 50304)
    while batch > 1 and batch * seq * vocab > MOST_LOGITS:
        batch //= 2
    while batch > 1 and attention == "eager" and batch * heads * seq * seq > MOST_SCORES:
        batch //= 2
    return batch


def design(count, seed):
    """The settings, in an order in which any first part is about balanced over families."""
    rng = random.Random(seed)
    factors = {
        "method": ["full", "lora"],
        "tokens": [1024, 2048, 4096, 8192],
        "seq": [256, 512, 1024, 2048],
        "checkpointing": ["none", "full"],
        "attention": ["sdpa", "eager"],
        "optimizer": ["adamw-foreach", "adamw-fused", "sgd", "adafactor"],
        "dtype": ["bfloat16", "bfloat16", "float32"],
    }
    drawn = {name: balanced(levels, count, rng) for name, levels in factors.items()}
    names = list(FAMILIES)
    settings = []
    for i in range(count):
        family = names[i % len(names)]
        one = {name: values[i] for name, values in drawn.items()}
        attention = "eager" if family in EAGER_ONLY else one["attention"]
        batch = bounded_batch(family, FAMILIES[family], one["tokens"], one["seq"], attention)
        settings.append(Setting(i, family, one["method"], batch, one["seq"], one["checkpointing"],
                                attention, one["optimizer"], one["dtype"]))
    return settings


def make_config(family, tiny):
    from transformers import AutoConfig
    values = dict(FAMILIES[family])
    if tiny:
        values = {key: TINY.get(key, value) for key, value in values.items()}
        values["vocab_size"] = TINY["vocab_size"]
    values.update(bos_token_id=1, eos_token_id=2, pad_token_id=0, use_cache=False)
    return AutoConfig.for_model(family, **values)


def make_model(family, tiny):
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights
    with no_init_weights():
        model = AutoModelForCausalLM.from_config(make_config(family, tiny))
    model.tie_weights()
    return model


def make_optimizer(name, parameters):
    import torch
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=1e-5)
    if name == "adafactor":
        from transformers.optimization import Adafactor
        return Adafactor(parameters, scale_parameter=False, relative_step=False, lr=1e-5)
    if name == "adamw-fused":
        return torch.optim.AdamW(parameters, lr=1e-5, fused=True)
    return torch.optim.AdamW(parameters, lr=1e-5, foreach=name != "adamw-loop")


def prepared(model, setting, device):
    import torch
    model.set_attn_implementation(setting.attention)
    model = model.to(getattr(torch, setting.dtype)).to(device)
    if setting.checkpointing == "full":
        model.gradient_checkpointing_enable()
    if setting.method == "lora":
        from peft import LoraConfig, get_peft_model
        if setting.checkpointing == "full":
            model.enable_input_require_grads()
        model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear",
                                                 lora_dropout=0.0, task_type="CAUSAL_LM"))
    return model.train()


class Meter:
    """What the device says, where there is one; zeros on a CPU."""

    def __init__(self, device):
        self.cuda = device.startswith("cuda")
        self.handle = None
        if self.cuda:
            try:
                import pynvml
                pynvml.nvmlInit()
                self.nvml = pynvml
                self.handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            except Exception:  # without NVML the column stays empty
                self.handle = None

    def smi_mib(self):
        if self.handle is None:
            return None
        return self.nvml.nvmlDeviceGetMemoryInfo(self.handle).used / 2**20

    def figures(self):
        import torch
        if not self.cuda:
            return {"allocated": 0, "peak": 0, "reserved": 0, "retries": 0}
        torch.cuda.synchronize()
        return {"allocated": torch.cuda.memory_allocated(),
                "peak": torch.cuda.max_memory_allocated(),
                "reserved": torch.cuda.max_memory_reserved(),
                "retries": torch.cuda.memory_stats().get("num_alloc_retries", 0)}

    def forget_peak(self):
        """Of what is allocated; what is reserved is not given back between steps."""
        if self.cuda:
            import torch
            torch.cuda.reset_peak_memory_stats()


def run_setting(model, setting, device):
    """What was measured, as a dict. In a child process."""
    vocab = model.config.vocab_size
    model = prepared(model, setting, device)
    gc.collect()
    return {**train(model, setting, device, vocab), "n_params": sum(p.numel() for p in model.parameters())}


def train(model, setting, device, vocab):
    """Steps of a plain loop, and what is seen of memory."""
    import torch
    optimizer = make_optimizer(setting.optimizer, [p for p in model.parameters() if p.requires_grad])

    def step():
        tokens = torch.randint(3, vocab, (setting.batch, setting.seq), device=device)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        del loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return tokens

    return watched(step, device, TIMED_STEPS)


def watched(step, device, timed_steps=0):
    """Three steps, and what is seen of memory; more steps, and how long they take. What one returns is held until the
    next has returned, as a loop's variables are."""
    meter = Meter(device)
    smi = before = meter.smi_mib()
    peaks, times, held = [], [], None
    for _ in range(STEPS + timed_steps):
        began = time.perf_counter()
        held = step()
        now = meter.figures()  # which waits for the device
        times.append(time.perf_counter() - began)
        peaks.append(now["peak"])
        meter.forget_peak()
        if smi is not None:
            smi = max(smi, meter.smi_mib())
    del held
    return {"after": now["allocated"], "peak": max(peaks), "reserved": now["reserved"], "first_peak": peaks[0],
            "steady_peak": max(peaks[1:]), "step_seconds": statistics.median(times[STEPS:]) if timed_steps else None,
            "smi": smi, "smi_before": before, "retries": now["retries"]}


class Child:
    """run(model, setting, device) in a forked process, which has so many seconds."""

    def __init__(self, run, model, setting, device, seconds):
        self.setting, self.seconds, self.began = setting, seconds, time.monotonic()
        self.content = b""
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.reader)
            try:
                result = run(model, setting, device)
            except BaseException as error:  # whatever it is, the parent goes on
                result = {"status": f"{type(error).__name__}: {str(error)[:160]}"}
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(pickle.dumps(result))
            os._exit(0)
        os.close(writer)

    def left(self):
        return max(0.0, self.began + self.seconds - time.monotonic())

    def has_ended(self):
        """Takes what there is to read; whether that was the last of it."""
        part = os.read(self.reader, 65536)
        self.content += part
        return not part

    def result(self, is_late):
        """Its result, or {"status": why there is none}. It ends here."""
        if is_late:
            self.content = b""
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.reader)
        os.waitpid(self.pid, 0)
        if not self.content:
            return {"status": f"ended or cut off at {self.seconds:.0f} s"}
        return pickle.loads(self.content)


def ended(children):
    """Waits for some of them to end, or for their time to be up, and takes them off the list: each with its result."""
    while True:
        ready, _, _ = select.select([child.reader for child in children], [], [],
                                    min(child.left() for child in children))
        over = {child: False for child in children if child.reader in ready and child.has_ended()}
        over.update({child: True for child in children if child not in over and child.left() == 0.0
                     and child.reader not in ready})
        if over:
            break
    for child in over:
        children.remove(child)
    return [(child, child.result(is_late)) for child, is_late in over.items()]


OPTIMIZER_WORDS = {"adamw-foreach": "AdamW (foreach)", "adamw-fused": "AdamW fused", "adamw-loop": "AdamW (loop)",
                   "sgd": "SGD", "adafactor": "transformers Adafactor"}


def rows_of(setting, result, about, seconds):
    """Two rows: one metric a row, as in the files of other people."""
    status = result.get("status", "ok")
    full = setting.method == "full"
    row = {
        "id": str(setting.id), "source": "train_memory", "quality": "A", "scope": "train_step",
        "model": f"configs/{setting.family}.json", "n_params": result.get("n_params", ""),
        "method": "full fine-tune" if full else "LoRA r=16 all modules",
        "weights_dtype": setting.dtype, "mixed_precision": "none (pure)",
        "optimizer": OPTIMIZER_WORDS[setting.optimizer], "micro_batch": setting.batch,
        "seq_len": setting.seq, "grad_accum": 1, "act_ckpt": setting.checkpointing,
        "attention": setting.attention, "loss_impl": "HF CE",
        "framework": "plain loop, gradients freed, outputs not kept", "gpu": about["gpu"],
        "n_gpus": 1, "parallelism": "none", "metric": "torch max_memory_allocated",
        "value_bytes": result.get("peak", ""), "alloc_after_step_bytes": result.get("after", ""),
        "nvidia_smi_mib": result.get("smi") or "", "smi_before_mib": result.get("smi_before") or "",
        "first_step_peak_bytes": result.get("first_peak", ""), "step_seconds": result.get("step_seconds") or "", "notes": about["notes"],
        "torch_version": about["torch"], "cuda_version": about["cuda"],
        "seconds": f"{seconds:.1f}", "status": status,
    }
    reserved = {**row, "id": f"{setting.id}r", "metric": "torch max_memory_reserved",
                "value_bytes": result.get("reserved", ""), "alloc_after_step_bytes": "",
                "nvidia_smi_mib": "", "step_seconds": ""}
    return [row, reserved] if status == "ok" else [row]


def describe(device):
    """Versions, and the GPU by name without making a context in this process."""
    import torch
    import transformers
    versions = [f"torch {torch.__version__.split('+')[0]}",
                f"transformers {transformers.__version__}"]
    try:
        import peft
        versions.append(f"peft {peft.__version__}")
    except ImportError:
        pass
    gpu = "cpu"
    if device.startswith("cuda"):
        try:
            import pynvml
            pynvml.nvmlInit()
            gpu = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
            gpu = gpu.decode() if isinstance(gpu, bytes) else gpu
            driver = pynvml.nvmlSystemGetDriverVersion()
            versions.append(f"driver {driver.decode() if isinstance(driver, bytes) else driver}")
        except Exception:
            gpu = "unknown GPU"
    return {"gpu": gpu, "torch": torch.__version__.split("+")[0], "cuda": torch.version.cuda or "",
            "notes": " ".join(versions)}


class Output:
    """One file for families that may be looked at, one for those held aside; flushed by row."""

    def __init__(self, folder, columns):
        folder.mkdir(parents=True, exist_ok=True)
        self.files = {name: open(folder / f"{name}.csv", "w", newline="")
                      for name in ("measured_look", "measured_aside")}
        self.writers = {}
        for name, file in self.files.items():
            self.writers[name] = csv.DictWriter(file, columns, lineterminator="\n")
            self.writers[name].writeheader()

    def write(self, setting, rows):
        name = "measured_aside" if setting.family in HELD_ASIDE else "measured_look"
        self.writers[name].writerows(rows)
        self.files[name].flush()


def write_config(folder, family, model):
    path = folder / "configs" / f"{family}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(model.config.to_dict(), indent=1, default=str) + "\n")


@dataclasses.dataclass(frozen=True)
class Kind:
    """What is measured: design(count, seed), run(model, setting, device), and rows(setting, result, about, seconds), of
    these columns."""

    design: typing.Callable
    run: typing.Callable
    rows: typing.Callable
    columns: tuple = tuple(COLUMNS)


class Measuring:
    """All settings: some alone, the others several at once, and what had too little memory beside others again."""

    def __init__(self, kind, settings, arguments):
        self.kind, self.settings, self.arguments = kind, settings, arguments
        self.started, self.out = time.monotonic(), Path(arguments.out)
        self.output, self.about = Output(self.out, kind.columns), describe(arguments.device)
        self.models, self.done, self.failed, self.again = {}, 0, 0, []

    def run(self):
        alone = min(self.arguments.alone, len(self.settings))
        self.run_some(self.settings[:alone], 1)
        self.run_some(self.settings[alone:], self.arguments.beside)
        self.run_some(self.again, 1)
        print(f"{self.done} of {len(self.settings)} settings run, {self.failed} failed",
              file=sys.stderr)
        return 0 if self.done == len(self.settings) and self.failed == 0 else 5

    def left(self):
        return self.arguments.seconds - (time.monotonic() - self.started)

    def run_some(self, settings, beside):
        waiting, children = list(settings), []
        while waiting or children:
            while waiting and len(children) < beside:
                if self.left() < self.arguments.least_seconds:
                    waiting = []
                    break
                children.append(self.child(waiting.pop(0)))
            for child, result in ended(children) if children else []:
                self.take(child, result, beside)

    def child(self, setting):
        if setting.family not in self.models:
            self.models[setting.family] = make_model(setting.family, self.arguments.tiny)
            write_config(self.out, setting.family, self.models[setting.family])
        return Child(self.kind.run, self.models[setting.family], setting, self.arguments.device,
                     min(self.left(), self.arguments.setting_seconds))

    def take(self, child, result, beside):
        lacked = "OutOfMemory" in result.get("status", "") or result.get("retries", 0) > 0
        if beside > 1:
            result.update(smi=None, smi_before=None, step_seconds=None)  # of all of them together
        if beside > 1 and lacked:
            self.again.append(child.setting)
            return
        rows = self.kind.rows(child.setting, result, self.about, time.monotonic() - child.began)
        self.output.write(child.setting, rows)
        self.done += 1
        self.failed += rows[0]["status"] != "ok"
        # Figures are not printed: half of them are not to be seen yet.
        print(f"{self.done}/{len(self.settings)} {child.setting.family} {rows[0]['status']} "
              f"{rows[0]['seconds']} s", file=sys.stderr, flush=True)


def run_all(kind, settings, arguments):
    import torch
    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    if arguments.device.startswith("cuda") and not Path("/proc/driver/nvidia").exists():
        print("no NVIDIA driver here", file=sys.stderr)
        return 4
    return Measuring(kind, settings, arguments).run()


def parse(words, default_out, settings):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.environ.get("OUT", default_out))
    parser.add_argument("--settings", type=int, default=settings)
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--seconds", type=float, default=540, help="stop starting settings then")
    parser.add_argument("--setting-seconds", type=float, default=60, help="limit of one setting")
    parser.add_argument("--alone", type=int, default=10, help="so many run with nothing beside them")
    parser.add_argument("--beside", type=int, default=4, help="of the others so many at once")
    parser.add_argument("--least-seconds", type=float, default=10,
                        help="with less than this left, no other setting is started")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny models, to try the script")
    parser.add_argument("--list", action="store_true", help="print the settings as JSON, run none")
    return parser.parse_args(words)


KIND = Kind(design, run_setting, rows_of)


def main(words=None):
    return run(KIND, words, "train_memory_out", 80)


def run(kind, words, default_out, settings):
    arguments = parse(words, default_out, settings)
    settings = kind.design(arguments.settings, arguments.seed)
    if arguments.tiny:
        settings = [dataclasses.replace(s, batch=1, seq=16) for s in settings]
    if arguments.list:
        print(json.dumps([dataclasses.asdict(s) for s in settings], indent=1))
        return 0
    return run_all(kind, settings, arguments)


if __name__ == "__main__":
    sys.exit(main())
