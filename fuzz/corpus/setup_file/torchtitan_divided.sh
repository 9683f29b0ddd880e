#!/usr/bin/bash
NGPU=${NGPU:-"8"}
PYTORCH_ALLOC_CONF="expandable_segments:True" torchrun --nproc_per_node=${NGPU} --rdzv_backend c10d --tee 3 \
  -m torchtitan.train --module llama3 --config llama3_8b --training.seq_len 4096 --training.steps 100 \
  --parallelism.tensor_parallel_degree 2 --parallelism.context_parallel_degree 2 --parallelism.pipeline_parallel_degree 2 \
  --parallelism.pipeline_parallel_schedule GPipe --parallelism.pipeline_parallel_microbatch_size 2 \
  --training.local_batch_size 8 --loss.num_chunks 1
