B=4
torchrun --nproc_per_node 8 train.py --output_dir o --per_device_train_batch_size $B --bf16 True --fsdp "full_shard auto_wrap" --fsdp_config f.json --lora_target_modules q v
