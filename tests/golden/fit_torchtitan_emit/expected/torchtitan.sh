#!/bin/bash
# A command of torchtitan 0.3.0, written by headroom fit --emit.
set -eu
HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}
NODE_RANK=${NODE_RANK:-${SLURM_NODEID:?is not set, nor is NODE_RANK}}
torchrun --nproc_per_node 8 --nnodes 2 --node_rank "$NODE_RANK" \
  --master_addr "$HEAD_NODE" --master_port 29500 \
  -m torchtitan.train \
  --module llama3 --config llama3_8b \
  --parallelism.data_parallel_replicate_degree 1 \
  --parallelism.data_parallel_shard_degree 16 \
  --parallelism.tensor_parallel_degree 1 \
  --training.local_batch_size 1 \
  --training.global_batch_size 16 \
  --training.seq_len 4096 \
  --training.dtype bfloat16 \
  --training.mixed_precision_param bfloat16 \
  --training.disable_cuda_graphs \
  --optimizer.implementation for-loop \
  --loss.num_chunks 1 \
  "$@" activation-checkpoint:none
