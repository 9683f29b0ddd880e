#!/bin/bash
# A command of torchtitan 0.3.0, written by headroom fit --emit.
set -eu
HEAD_NODE=${HEAD_NODE:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}
NODE_RANK=${NODE_RANK:-${SLURM_NODEID:?is not set, nor is NODE_RANK}}
torchrun --nproc_per_node 1 --nnodes 4 --node_rank "$NODE_RANK" \
  --master_addr "$HEAD_NODE" --master_port 29500 \
  -m torchtitan.train \
  --module llama3 --config llama3_8b \
  --parallelism.data_parallel_replicate_degree 1 \
  --parallelism.data_parallel_shard_degree 1 \
  --parallelism.tensor_parallel_degree 1 \
  --parallelism.pipeline_parallel_degree 4 \
  --parallelism.pipeline_parallel_schedule 1F1B \
  --parallelism.pipeline_parallel_microbatch_size 1 \
  --training.local_batch_size 4 \
  --training.global_batch_size 4 \
  --training.seq_len 1024 \
  --training.dtype bfloat16 \
  --training.mixed_precision_param bfloat16 \
  --training.disable_cuda_graphs \
  --optimizer.implementation for-loop \
  --loss.num_chunks 1 \
  "$@" activation-checkpoint:none
