"""Asks two built binaries the same questions and says where --json or the exit code differs.

    same.py BEFORE AFTER
"""

import subprocess
import sys

QUESTIONS = """\
mistralai/Mistral-7B-v0.1 --device a100-sxm-80gb --batch 4 --seq 4096
openai-community/gpt2 --device a100-sxm-80gb --batch 4
mistralai/Mixtral-8x7B-v0.1 --method qlora --device a100-sxm-80gb --batch 4
mistralai/Mistral-7B-v0.1 --method lora --device a100-sxm-80gb --batch 4
meta-llama/Llama-3.1-8B --device h100-sxm-80gb --batch 2 --seq 8192 --checkpointing full
google/gemma-2-2b --device rtx-4090 --batch 1 --seq 2048
facebook/opt-1.3b --device v100-sxm-32gb --batch 8 --dtype fp16
bigscience/bloom-560m --device t4 --batch 2
Qwen/Qwen3-0.6B --device l4 --method dora --batch 2
Qwen/Qwen3-30B-A3B --device h200 --method lora --lora-targets q_proj,v_proj
google-bert/bert-base-uncased --device a10g --batch 16 --seq 512
google-t5/t5-base --device a10g --batch 4 --seq 512
google/vit-base-patch16-224 --device rtx-3090 --batch 32
deepseek-ai/DeepSeek-V2-Lite --device h200 --optimizer adamw-8bit --checkpointing full
meta-llama/Llama-2-7b-hf --device a100-sxm-80gb --method full,fsdp2:4 --batch 2
mistralai/Mistral-7B-v0.1 --device a100-sxm-40gb --allocator expandable_segments:True --method lora
mistralai/Mistral-7B-v0.1 --device h100-sxm-80gb --optimizer-in-backward --batch 2
openai-community/gpt2-xl --device rtx-4090 --attention eager --optimizer sgd --batch 2
tiiuae/falcon-7b --device a100-sxm-80gb --keep-outputs true --grad-accum 4 --checkpointing selective
EleutherAI/pythia-1.4b --device a100-pcie-40gb --allocator max_split_size_mb:128 --batch 8
"""


def answer(binary, words):
    done = subprocess.run([binary, "fit", *words.split(), "--json"], capture_output=True,
                          check=False)
    return done.returncode, done.stdout


def main():
    before, after = sys.argv[1:]
    questions = QUESTIONS.splitlines()
    differ = [words for words in questions if answer(before, words) != answer(after, words)]
    for words in differ:
        print("differs:", words)
    print(f"{len(questions)} questions, {len(differ)} differ")


if __name__ == "__main__":
    main()
