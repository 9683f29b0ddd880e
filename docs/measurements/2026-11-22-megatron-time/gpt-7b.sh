# 8 GPUs: 4 stages of 8 chunks, 2 data parallel ranks.
pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention \
    --num-query-groups 8 --untie-embeddings-and-output-weights --seq-length 8192 --max-position-embeddings 8192 \
    --vocab-size 131073 --micro-batch-size 1 --global-batch-size 8 --bf16 --pipeline-model-parallel-size 4 \
    --num-layers-per-virtual-pipeline-stage 1 --use-distributed-optimizer --overlap-grad-reduce \
    --overlap-param-gather --deterministic-mode --no-gradient-accumulation-fusion
