TP="2"
DATA_PATH="0.3 /d/a 0.7 /d/b"
SHARDS=(0.5 '/d/a' 0.5 /d/b)
FP="--bf16"
ARGS="--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 128
  --max-position-embeddings 256 --vocab-size 1000 $FP"
srun --container-image=a.sqsh torchrun --nproc_per_node 4 "$ROOT"/pretrain_gpt.py $ARGS --tensor-model-parallel-size $TP \
  --data-path $DATA_PATH --valid-data-path "${SHARDS[@]}" --save "$ROOT"/last --wandb-exp-name "my run" --load ~/x \
  --timing-log-option 'a|b' --empty "" --log-dir=a\ b --tensorboard-dir="/tb" >log 2>&1
