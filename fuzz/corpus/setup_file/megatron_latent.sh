pretrain_gpt.py --num-layers 9 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --bf16 \
  --multi-latent-attention --q-lora-rank 48 --kv-lora-rank 32 --qk-head-dim 16 --qk-pos-emb-head-dim 8 --v-head-dim 16 \
  --qk-layernorm --position-embedding-type rope --vocab-size 100 --global-batch-size 8 --micro-batch-size 1 \
  --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "Et*3|(tt|)*2tt,L"
