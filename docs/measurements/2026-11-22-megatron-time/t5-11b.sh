# 8 GPUs: 4 tensor parallel, 2 data parallel ranks.
pretrain_t5.py --encoder-num-layers 24 --decoder-num-layers 24 --hidden-size 4096 --num-attention-heads 64 \
    --kv-channels 64 --ffn-hidden-size 10240 --encoder-seq-length 512 --decoder-seq-length 128 \
    --max-position-embeddings 512 --vocab-size 28998 --vocab-extra-ids 100 --micro-batch-size 4 \
    --global-batch-size 8 --bf16 --tensor-model-parallel-size 4 --deterministic-mode
