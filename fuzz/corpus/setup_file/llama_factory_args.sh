llamafactory-cli train --model_name_or_path a/b --stage sft --do_train --finetuning_type lora \
  --lora_target q_proj,v_proj --use_dora --quantization_bit 4 --cutoff_len 1024 --neat_packing \
  --flash_attn fa2 --output_dir o --learning_rate 1e-4 --per_device_train_batch_size 1 --bf16
