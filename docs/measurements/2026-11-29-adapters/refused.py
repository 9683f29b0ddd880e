"""What becomes of adapters that `fit` refuses, in the libraries themselves: refused.py [quantized|fsdp1|zero3].

From the root of the repository, in its environment, with HEADROOM_STEP_DUMP as ./test sets it (zero3).
"""

import copy
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "python")]
CASE = {"lora_rank": 4, "lora_targets": ["q_proj", "v_proj"]}


def last_line(run):
    """What a run ended with."""
    try:
        run()
    except Exception as error:  # whatever a library raises is the answer
        return f"{type(error).__name__}: {error}"
    return "no error"


def quantized_rank(folder, bits):
    """One of two processes: a model in parts by transformers' plan, its weights of few bits, with LoRA."""
    import torch
    from adapters import adapters_of
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    torch.distributed.init_process_group("gloo")

    def step():
        model = AutoModelForCausalLM.from_pretrained(
            folder, tp_plan="auto", dtype=torch.bfloat16,
            quantization_config=BitsAndBytesConfig(load_in_4bit=bits == "4", load_in_8bit=bits == "8"))
        ids = torch.arange(16)[None]
        get_peft_model(model, adapters_of(CASE, "CAUSAL_LM"))(input_ids=ids, labels=ids).loss.backward()

    ended = last_line(step)
    if torch.distributed.get_rank() == 0:
        print(f"{bits} bits, two tensor parallel processes: {ended}")


def quantized():
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=4, vocab_size=128)
    with tempfile.TemporaryDirectory() as folder:
        AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder)
        for bits in "48":
            subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", __file__, "rank", folder, bits],
                           check=False, stderr=subprocess.DEVNULL)


def fsdp1():
    import fsdp_log
    import step_dump

    log = fsdp_log.Log()
    for name in ("dora", "ia3"):
        case = {**CASE, name: True, "version": 1, "ranks": 2, "checkpointing": "none", "steps": 1,
                "config": str(step_dump.CONFIGS / "llama.json")}
        print(f"{name} under FSDP1, peft's policy:", last_line(lambda: fsdp_log.run(case, log)))


def zero3():
    """What of a rank's parameters is whole when backward is done, in DeepSpeed's engine and as modelled."""
    import matrix
    import test_parallel

    matrix.is_whole = False
    cases = {f"zero3-{name}": {**copy.deepcopy(test_parallel.CASES["zero3-lora"]), name: True} for name in ("dora", "ia3")}
    del cases["zero3-ia3"]["lora_rank"]
    test_parallel.CASES |= cases
    test_parallel.cases_of = lambda _: list(cases)
    test_parallel.QUICK = lambda *_: True
    for name, of_ranks in test_parallel.real_ranks("zero3").items():
        with tempfile.TemporaryDirectory() as folder:
            live = test_parallel.ours(cases[name], Path(folder), "live")
        real = next(held for phase, held in of_ranks[0]["live"] if phase == "backward")
        modelled = next(held["gathered"] for phase, held in live if phase == "backward")
        print(f"{name}: behind backward {real['whole']} bytes are whole on a rank, {modelled} were modelled")


if __name__ == "__main__":
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    which = sys.argv[1:] or ["quantized", "fsdp1", "zero3"]
    if which[0] == "rank":
        quantized_rank(*which[1:])
    else:
        for name in which:
            {"quantized": quantized, "fsdp1": fsdp1, "zero3": zero3}[name]()
