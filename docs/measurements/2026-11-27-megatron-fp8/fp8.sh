export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
torchrun --nproc-per-node 8 pretrain_gpt.py \
  --num-layers 17 --hidden-size 1024 --num-attention-heads 32 --ffn-hidden-size 4096 \
  --seq-length 4096 --max-position-embeddings 4096 --position-embedding-type rope \
  --vocab-size 50257 --make-vocab-size-divisible-by 3232 \
  --normalization RMSNorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights \
  --hidden-dropout 0 --attention-dropout 0 --no-rope-fusion \
  --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 \
  --qk-pos-emb-head-dim 64 --v-head-dim 128 --qk-layernorm \
  --num-experts 32 --moe-router-topk 4 --moe-ffn-hidden-size 1024 \
  --moe-shared-expert-intermediate-size 1024 --moe-grouped-gemm \
  --moe-token-dispatcher-type alltoall \
  --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 \
  --pipeline-model-parallel-layout "Ett|tt|tt|tt|tt|tt|tt|tttL" \
  --expert-model-parallel-size 4 --expert-tensor-parallel-size 1 \
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
  --attention-backend unfused --cross-entropy-loss-fusion --bf16 \
  --fp8-format hybrid --fp8-recipe tensorwise \
  --micro-batch-size 4 --global-batch-size 32
