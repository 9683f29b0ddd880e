#!/bin/sh
# One call on a machine with an NVIDIA GPU, into $OUT (default: allocator_out): PyTorch's allocator, its
# expandable segments, and Headroom under the same training; then the shim, built there, and what it
# alone serves. The second is begun whatever became of the first. `--list` and the like: the first.
set -eu
cd "$(dirname "$0")/../.."
./headroom --version >/dev/null # builds it where that is not done
OUT="${OUT:-allocator_out}"
first=0
python3 perf/gpu/allocator.py --out "$OUT" "$@" || first=$?
[ $# -gt 0 ] && exit "$first"
python3 perf/gpu/shim.py --out "$OUT" || { second=$?; [ "$first" -ne 0 ] || first=$second; }
exit "$first"
