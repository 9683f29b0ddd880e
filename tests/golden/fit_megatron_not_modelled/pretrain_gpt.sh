python pretrain_gpt.py --num-layers 16 --hidden-size 1024 --num-attention-heads 16 --seq-length 4096 \
    --num-experts 32 --moe-router-topk 4 --vocab-size 50257
