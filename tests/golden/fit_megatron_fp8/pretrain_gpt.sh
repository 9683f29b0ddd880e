torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
    --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --seq-length 8192 \
    --max-position-embeddings 8192 --use-rotary-position-embeddings --vocab-size 128256 \
    --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights \
    --hidden-dropout 0 --attention-dropout 0 --tensor-model-parallel-size 2 --sequence-parallel \
    --use-distributed-optimizer --bf16 --fp8-format hybrid --fp8-amax-history-len 1024 \
    --fp8-amax-compute-algo max --micro-batch-size 1 --global-batch-size 64
