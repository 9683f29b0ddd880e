#!/bin/bash
TP=2
PP=${PP:-4}
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --seq-length 8192 --max-position-embeddings 8192 --vocab-size 128256
    --swiglu --normalization RMSNorm --disable-bias-linear
    --use-rotary-position-embeddings --untie-embeddings-and-output-weights
    --attention-dropout 0 --hidden-dropout 0
)
torchrun --nproc_per_node 8 --nnodes=2 pretrain_gpt.py "${MODEL_ARGS[@]}" \
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} \
    --sequence-parallel --bf16 --micro-batch-size 1 --global-batch-size 128 --lr 3e-4 --save $CHECKPOINTS --data-path ${DATA_ROOT}/text
