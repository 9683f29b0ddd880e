"""What `fit --emit megatron` writes: run by a shell, read by Megatron-LM's own parser where it is installed
(megatron-core 0.19 or later, which asks for Python 3.12, or a checkout of Megatron-LM on PYTHONPATH)."""

import argparse
import importlib.util
import json
import os
import subprocess

import pytest

MODEL = ("--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 512 --max-position-embeddings 512 "
         "--micro-batch-size 1 --vocab-size 1000 --tokenizer-type NullTokenizer --lr 3e-4 --train-iters 10 "
         "--mock-data --save $CHECKPOINTS ")
CASES = {
    "dense": "--bf16 --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
             "--num-layers-per-virtual-pipeline-stage 2 --global-batch-size 16 --use-distributed-optimizer "
             "--overlap-grad-reduce --overlap-param-gather --context-parallel-size 2 --swiglu --normalization RMSNorm "
             "--position-embedding-type rope --untie-embeddings-and-output-weights --disable-bias-linear "
             "--add-qkv-bias --group-query-attention --num-query-groups 4 --qk-layernorm --attention-backend flash",
    "experts": "--bf16 --disable-bias-linear --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 4 --moe-grouped-gemm "
               "--moe-token-dispatcher-type alltoall --expert-tensor-parallel-size 1 --recompute-granularity full "
               "--recompute-method uniform --recompute-num-layers 1 --grad-reduce-in-bf16",
    "latent": "--fp16 --multi-latent-attention --q-lora-rank 96 --kv-lora-rank 64 --qk-head-dim 32 "
              "--qk-pos-emb-head-dim 16 --v-head-dim 32 --qk-layernorm --position-embedding-type rope "
              "--no-rope-fusion --accumulate-allreduce-grads-in-fp32 --recompute-granularity selective "
              "--no-gradient-accumulation-fusion",
    "stages": "--pipeline-model-parallel-size 2 --decoder-last-pipeline-num-layers 4 --no-create-attention-mask-in-dataloader --deterministic-mode "
              "--attention-backend unfused --position-embedding-type none --make-vocab-size-divisible-by 64",
    "layout": "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Ettt|(tt|)*2tL' --global-batch-size 32",
}


def fit(*words):
    done = subprocess.run([os.environ["HEADROOM_BINARY"], "fit", *words, "--device", "h100-sxm-80gb", "--search", "false",
                           "--json"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def emitted(tmp_path, case):
    """The answer, the file, and what torchrun is started with by it."""
    script, written = tmp_path / "pretrain_gpt.sh", tmp_path / "new.sh"
    script.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {MODEL} {CASES[case]}\n")
    answer = fit("--from", str(script), "--emit", f"megatron={written}")
    assert answer["emitted"]["command"] == f"bash {written}"
    stand_in = tmp_path / "torchrun"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stand_in.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CHECKPOINTS": "/some where"}
    done = subprocess.run(["bash", str(written), "--eval-iters", "3"], env=environment, capture_output=True, text=True, check=True)
    return answer, written, done.stdout.splitlines()


@pytest.mark.parametrize("case", CASES)
def test_a_shell_runs_it_and_it_reads_back_the_same(case, tmp_path):
    answer, written, started = emitted(tmp_path, case)
    assert started[:3] == ["--nproc_per_node", "8", "pretrain_gpt.py"]
    assert started[started.index("--save") + 1] == "/some where"
    assert started[-2:] == ["--eval-iters", "3"]
    again = fit("--from", str(written))
    for part in ("memory", "time", "stages", "settings"):
        assert again.get(part) == answer.get(part), part


def test_what_the_environment_lacks_ends_it(tmp_path):
    _, written, _ = emitted(tmp_path, "dense")
    done = subprocess.run(["bash", str(written)], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "CHECKPOINTS" in done.stderr


@pytest.mark.parametrize("case", CASES)
@pytest.mark.skipif(importlib.util.find_spec("megatron") is None, reason="Megatron-LM is not installed: its parser was not asked")
def test_megatron_s_own_parser_reads_it(case, tmp_path):
    from megatron.training.arguments import add_megatron_arguments
    _, _, started = emitted(tmp_path, case)
    parser = add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    said = parser.parse_args(f"{MODEL} {CASES[case]} --eval-iters 3".replace("'", "").replace("$CHECKPOINTS", "x").split())
    read = parser.parse_args(started[3:])
    # What the script leaves to defaults that follow from other arguments is written out.
    written_out = {"ffn_hidden_size", "kv_channels", "global_batch_size", "save", "expert_tensor_parallel_size",
                   "moe_ffn_hidden_size", "recompute_modules", "pipeline_model_parallel_layout"}
    differ = {name for name, value in vars(said).items() if vars(read)[name] != value}
    assert differ <= written_out, {name: (vars(said)[name], vars(read)[name]) for name in differ}
    assert (read.num_layers, read.hidden_size, read.micro_batch_size) == (8, 512, 1)
