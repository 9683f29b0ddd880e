export NPROC_PER_NODE=4
NNODES=2 accelerate launch --config_file f.yaml src/train.py sft.yaml
