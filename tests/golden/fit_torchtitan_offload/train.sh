#!/usr/bin/bash
torchrun --nproc_per_node=8 --rdzv_backend c10d --tee 3 \
  -m torchtitan.train --module llama3 --config llama3_8b --training.seq_len 4096 --training.enable_cpu_offload \
  --training.disable_cuda_graphs --loss.num_chunks 1 activation-checkpoint:full
