#!/bin/bash
# Arguments of Megatron-LM 0.20 (d98e8a64, August 2026), written by headroom fit --emit.
set -eu
export CUDA_DEVICE_MAX_CONNECTIONS=1
HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}
NODE_RANK=${NODE_RANK:-${SLURM_NODEID:?is not set, nor is NODE_RANK}}
MODEL_ARGS=(
  --num-layers 32
  --seq-length 8192
  --hidden-size 4096
  --ffn-hidden-size 14336
  --num-attention-heads 32
  --group-query-attention
  --num-query-groups 8
  --kv-channels 128
  --position-embedding-type rope
  --max-position-embeddings 8192
  --vocab-size 128256
  --swiglu
  --normalization RMSNorm
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --hidden-dropout 0
  --attention-dropout 0
)
DIVISION_ARGS=(
  --tensor-model-parallel-size 2
  --sequence-parallel
  --pipeline-model-parallel-size 4
)
STEP_ARGS=(
  --transformer-impl transformer_engine
  --bf16
  --micro-batch-size 1
  --global-batch-size 128
  --recompute-granularity full
  --recompute-method uniform
  --recompute-num-layers 1
)
OTHER_ARGS=(
  --lr 3e-4
  --save "${CHECKPOINTS:?}"
)
torchrun --nproc_per_node 8 --nnodes 4 --node_rank "$NODE_RANK" \
  --master_addr "$HEAD_NODE" --master_port 29500 \
  pretrain_gpt.py "${MODEL_ARGS[@]}" "${DIVISION_ARGS[@]}" \
  "${STEP_ARGS[@]}" "${OTHER_ARGS[@]}" "$@"
