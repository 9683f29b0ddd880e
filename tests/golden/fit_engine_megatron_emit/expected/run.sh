#!/bin/bash
# Arguments of Megatron-LM 0.20 (d98e8a64, August 2026), written by headroom fit --emit.
set -eu
HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}
NODE_RANK=${NODE_RANK:-${SLURM_NODEID:?is not set, nor is NODE_RANK}}
MODEL_ARGS=(
  --num-layers 8
  --seq-length 4096
  --hidden-size 2048
  --ffn-hidden-size 5632
  --num-attention-heads 16
  --group-query-attention
  --num-query-groups 4
  --kv-channels 128
  --position-embedding-type rope
  --max-position-embeddings 4096
  --vocab-size 32000
  --swiglu
  --normalization RMSNorm
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --hidden-dropout 0
  --attention-dropout 0
)
DIVISION_ARGS=(
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 1
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
)
STEP_ARGS=(
  --transformer-impl transformer_engine
  --bf16
  --micro-batch-size 4
  --global-batch-size 32
  --no-create-attention-mask-in-dataloader
)
OTHER_ARGS=(
  --norm-epsilon 1e-05
  --rotary-base 500000
)
torchrun --nproc_per_node 4 --nnodes 2 --node_rank "$NODE_RANK" \
  --master_addr "$HEAD_NODE" --master_port 29500 \
  pretrain_gpt.py "${MODEL_ARGS[@]}" "${DIVISION_ARGS[@]}" \
  "${STEP_ARGS[@]}" "${OTHER_ARGS[@]}" "$@"
