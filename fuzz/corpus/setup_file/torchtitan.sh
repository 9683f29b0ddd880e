#!/usr/bin/bash
NGPU=${NGPU:-"8"}
PYTORCH_ALLOC_CONF="expandable_segments:True" torchrun --nproc_per_node=${NGPU} --rdzv_backend c10d --tee 3 \
  -m torchtitan.train --module llama3 --config llama3_8b --training.seq_len 4096 --training.steps 100
