#!/bin/sh
# One call on a machine with an NVIDIA GPU: measures into $OUT (default: train_memory_out).
set -eu
cd "$(dirname "$0")/../.."
exec python3 perf/gpu/train_memory.py --out "${OUT:-train_memory_out}" "$@"
