#!/bin/sh
# One call on a machine with an NVIDIA GPU: PyTorch's allocator, its expandable segments, and Headroom
# under the same training, into $OUT (default: allocator_out).
set -eu
cd "$(dirname "$0")/../.."
./headroom --version >/dev/null # builds it where that is not done
exec python3 perf/gpu/allocator.py --out "${OUT:-allocator_out}" "$@"
