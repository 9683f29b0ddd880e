python pretrain_gpt.py --num-layers 16 --hidden-size 1024 --num-attention-heads 16 --seq-length 4096 \
    --max-position-embeddings 4096 --fp8-format hybrid --fp8-param-gather --vocab-size 50257
