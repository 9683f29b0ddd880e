"""What `fit --emit megatron` writes: run by a shell, and read by Megatron-LM's own parser and checks (megatron-core
0.19 or later has them, and so has a checkout of Megatron-LM on PYTHONPATH)."""

import importlib.util
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = ("--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 512 --max-position-embeddings 512 "
         "--micro-batch-size 1 --vocab-size 1000 --tokenizer-type NullTokenizer --lr 3e-4 --train-iters 10 "
         "--mock-data --save $CHECKPOINTS --save-interval 100 ")
CASES = {
    "dense": "--bf16 --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
             "--num-layers-per-virtual-pipeline-stage 2 --global-batch-size 16 --use-distributed-optimizer "
             "--overlap-grad-reduce --overlap-param-gather --context-parallel-size 2 --swiglu --normalization RMSNorm "
             "--position-embedding-type rope --untie-embeddings-and-output-weights --disable-bias-linear "
             "--add-qkv-bias --group-query-attention --num-query-groups 4 --qk-layernorm --attention-backend flash",
    "experts": "--bf16 --disable-bias-linear --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 4 --moe-grouped-gemm "
               "--moe-token-dispatcher-type alltoall --expert-tensor-parallel-size 1 --recompute-granularity full "
               "--recompute-method uniform --recompute-num-layers 1 --grad-reduce-in-bf16",
    "capacity": "--bf16 --disable-bias-linear --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 4 "
                "--moe-token-dispatcher-type alltoall --moe-expert-capacity-factor 1.5 "
                "--moe-pad-expert-input-to-capacity --moe-token-drop-policy position",
    "latent": "--fp16 --multi-latent-attention --q-lora-rank 96 --kv-lora-rank 64 --qk-head-dim 32 "
              "--qk-pos-emb-head-dim 16 --v-head-dim 32 --qk-layernorm --position-embedding-type rope "
              "--no-rope-fusion --accumulate-allreduce-grads-in-fp32 --recompute-granularity selective "
              "--no-gradient-accumulation-fusion",
    "stages": "--pipeline-model-parallel-size 2 --decoder-last-pipeline-num-layers 4 --no-create-attention-mask-in-dataloader --deterministic-mode "
              "--attention-backend unfused --position-embedding-type none --make-vocab-size-divisible-by 64",
    "layout": "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Ettt|(tt|)*2tL' --global-batch-size 32",
}
# Of --engine megatron on 16 GPUs: what --method says, and what Megatron-LM makes of it: ranks of tensors, stages, parts
# on a rank, ranks of sequences, of experts and of data, whether the optimizer is shared out, products in FP8.
NAMED = {
    "meta-llama/Llama-3.1-8B": ("tp:4,pp:2,vpp:2,cp:2,distopt,fp8", "4 2 2 2 1 1 True hybrid"),
    "mistralai/Mixtral-8x7B-v0.1": ("pp:4,vpp:2,ep:4,dp:4,distopt", "1 4 2 1 4 4 True None"),
    "openai-community/gpt2": ("tp:2,pp:2,dp:4", "2 2 None 1 1 4 False None"),
}
# What a config.json says nothing of.
BESIDE = "--tokenizer-type NullTokenizer --mock-data --train-iters 10 --lr 3e-4"
# Defaults that a file writes out: TransformerConfig's of selective recomputation, and one micro-batch a rank.
WRITTEN_OUT = {"recompute_modules": ("None", "['core_attn']"),
               "_is_global_batch_size_explicitly_specified": ("False", "True")}


def fit(*words):
    done = subprocess.run([os.environ["HEADROOM_BINARY"], "fit", *words, "--device", "h100-sxm-80gb", "--search", "false",
                           "--json"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def started_by(tmp_path, written, *more):
    """What torchrun is started with by the file: its arguments, CUDA_DEVICE_MAX_CONNECTIONS."""
    stand_in = tmp_path / "torchrun"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "${CUDA_DEVICE_MAX_CONNECTIONS-}" "$@"\n')
    stand_in.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CHECKPOINTS": "/some where", "HEAD_NODE": "node-0",
                   "NODE_RANK": "0"}
    done = subprocess.run(["bash", str(written), *more], env=environment, capture_output=True, text=True, check=True)
    connections, *started = done.stdout.splitlines()
    return started, connections


def emitted(tmp_path, case):
    """The answer, the file, and what torchrun is started with by it."""
    script, written = tmp_path / "pretrain_gpt.sh", tmp_path / "new.sh"
    script.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {MODEL} {CASES[case]}\n")
    answer = fit("--from", str(script), "--emit", f"megatron={written}")
    assert answer["emitted"]["command"] == f"bash {written}"
    return answer, written, *started_by(tmp_path, written, "--eval-iters", "3")


@pytest.mark.parametrize("case", CASES)
def test_a_shell_runs_it_and_it_reads_back_the_same(case, tmp_path):
    answer, written, started, _ = emitted(tmp_path, case)
    assert started[:3] == ["--nproc_per_node", "8", "pretrain_gpt.py"]
    assert started[started.index("--save") + 1] == "/some where"
    assert started[-2:] == ["--eval-iters", "3"]
    again = fit("--from", str(written))
    for part in ("memory", "time", "stages", "settings"):
        assert again.get(part) == answer.get(part), part


def test_what_the_environment_lacks_ends_it(tmp_path):
    _, written, _, _ = emitted(tmp_path, "dense")
    done = subprocess.run(["bash", str(written)], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "CHECKPOINTS" in done.stderr


@pytest.fixture(scope="module")
def parsed(tmp_path_factory):
    """All arguments as Megatron-LM has them, by case of the script and of the file, by model of the file; asked once,
    since that takes seconds."""
    if importlib.util.find_spec("megatron") is None or importlib.util.find_spec("megatron.training") is None:
        pytest.skip("Megatron-LM is not installed, its parser was not asked: ./test installs it")
    commands = {}
    for case in CASES:
        _, _, started, connections = emitted(tmp_path_factory.mktemp("case"), case)
        environment = {"WORLD_SIZE": "8", "CUDA_DEVICE_MAX_CONNECTIONS": connections}
        said = shlex.split(f"{MODEL} {CASES[case]} --eval-iters 3".replace("$CHECKPOINTS", "'/some where'"))
        commands[case, "said"] = {"environment": environment, "words": said}
        commands[case, "read"] = {"environment": environment, "words": started[3:]}
    for model, (method, _) in NAMED.items():
        folder = tmp_path_factory.mktemp("named")
        fit(model, "--engine", "megatron", "--method", method, "--global-batch", "64", "--emit", f"megatron={folder}/new.sh")
        started, connections = started_by(folder, folder / "new.sh", *BESIDE.split())
        environment = {"WORLD_SIZE": "16", "CUDA_DEVICE_MAX_CONNECTIONS": connections}
        commands[model] = {"environment": environment, "words": started[started.index("pretrain_gpt.py") + 1:]}
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("megatron_arguments.py"))], capture_output=True,
                          input=json.dumps(list(commands.values())), text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(commands, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_megatron_s_own_parser_reads_the_same(case, parsed):
    said, read = parsed[case, "said"], parsed[case, "read"]
    differ = {name: (value, read[name]) for name, value in said.items() if read[name] != value}
    assert differ.items() <= WRITTEN_OUT.items()


@pytest.mark.parametrize("model", NAMED)
def test_megatron_s_own_checks_pass_a_named_setting(model, parsed):
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size",
             "context_parallel_size", "expert_model_parallel_size", "data_parallel_size", "use_distributed_optimizer",
             "fp8")
    assert [parsed[model][name] for name in names] == NAMED[model][1].split()
