#!/bin/bash
# Everything here that needs a GPU, in one call on a machine with one and nothing installed: ten minutes.
#
#     OUT=DIR perf/gpu/all.sh PREFIX [smoke|full]
#
# PREFIX is where `cmake --install` put Headroom (carry.sh makes one that carries its libraries). First what several
# processes may do at once, memory and losses; then, one after another, what is timed. A step that fails or takes too
# long does not end the others; DIR/steps.txt tells how each ended.
set -u
cd "$(dirname "$0")/../.."
prefix=$(realpath "$1") kind=${2:-full}
export OUT=${OUT:-gpu_out} PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=0 HF_HUB_OFFLINE=1
export PATH="$prefix/bin:$PATH" HEADROOM_PYTHON=${HEADROOM_PYTHON:-$(command -v python3)}
work=${HEADROOM_GPU_WORK:-/tmp/headroom_gpu}
mkdir -p "$OUT" "$work"
began=$SECONDS
most=${HEADROOM_GPU_SECONDS:-575}

# NAME SECONDS COMMAND...: with its output in a file of that name; no longer than there is.
step() {
  local name=$1 seconds=$2 start=$SECONDS code=0 left=$((most - SECONDS + began))
  shift 2
  [ "$seconds" -le "$left" ] || seconds=$left
  [ "$seconds" -gt 5 ] || { echo "$name: no time left" | tee -a "$work/steps.txt"; return; }
  timeout -k 5 "$seconds" "$@" >"$work/$name.log" 2>&1 || code=$?
  echo "$name: exit $code, $((SECONDS - start)) s, at $((SECONDS - began)) s" | tee -a "$work/steps.txt"
  [ "$code" -eq 0 ] || tail -n 12 "$work/$name.log" | cut -c1-400
}

nongemm() { # NAME SECONDS MODELS-AND-FLAGS...
  local name=$1 seconds=$2
  local -x TORCHINDUCTOR_CACHE_DIR="$work/cache/inductor"
  local -x TORCHINDUCTOR_COMPILE_THREADS=${TORCHINDUCTOR_COMPILE_THREADS:-1}  # no workers beside what is timed
  shift 2
  step "$name" "$seconds" headroom bench nongemm --on cuda --quick --keep "$work/$name" "$@"
}

# Compiled once for nobody: Inductor's caches are what stays, so that what is timed later only traces and loads. In processes beside each
# other, about as long as one another, the longest model first; Llama at once, while the memory for all of it is free.
warm_up() { # SECONDS
  local group=0 models
  for models in "llama-2-7b faster-rcnn bert" "gpt2-xl vit-l" "maskformer swin-t" "gpt2-large mask-rcnn mixtral-8x7b segformer" \
      "swin-s vit-h gpt2" "swin-b detr vit-b"; do
    group=$((group + 1))
    # shellcheck disable=SC2086
    TORCHINDUCTOR_COMPILE_THREADS=2 nongemm "warm-$group" "$1" $models --engine compiled --seconds 0.01 &
  done
  wait
  rm -rf "$work"/warm-?
}

if [ "$kind" = smoke ]; then
  nvidia-smi >"$work/nvidia-smi.txt" 2>&1
  python3 -c 'import torch, transformers; print(torch.__version__, torch.version.cuda, transformers.__version__)'
  step allocator 60 python3 perf/gpu/allocator.py --out "$work/allocator" --headroom "$prefix/bin/headroom" \
    --only gpt2 --steps 12 --seconds 20 --beside 6 &
  step ranks 60 python3 perf/gpu/ranks_memory.py --out "$work/ranks" --settings 6 --alone 0 --beside 3 --seconds 45 &
  step train 60 python3 perf/gpu/train_memory.py --out "$work/train" --settings 4 --alone 1 --beside 3 --seconds 45 &
  step shim 60 python3 perf/gpu/shim.py --out "$work/shim" --headroom "$prefix/bin/headroom" --seconds 40 &
  nongemm nongemm 60 bert vit-b --engine pytorch,graphed,compiled --quantize none,int8 --seconds 1 &
  wait
  step device 25 headroom bench device --on cuda --quick --seconds 8 --save-calibration "$work/device.calibration.json"
else
  step allocator 230 python3 perf/gpu/allocator.py --out "$work/allocator" --headroom "$prefix/bin/headroom" \
    --seconds 190 --beside 5 --batch 2 &
  { step train 120 python3 perf/gpu/train_memory.py --out "$work/train" --settings 60 --alone 0 --beside 4 --seconds 90
    step ranks 120 python3 perf/gpu/ranks_memory.py --out "$work/ranks" --settings 48 --alone 0 --beside 4 --seconds 90; } &
  step shim 160 python3 perf/gpu/shim.py --out "$work/shim" --headroom "$prefix/bin/headroom" --seconds 140 &
  warm_up 170 &
  wait
  step device 60 headroom bench device --on cuda --quick --seconds 30 --save-calibration "$work/device.calibration.json"
  step times 110 python3 perf/gpu/allocator.py --out "$work/allocator" --headroom "$prefix/bin/headroom" --timed --seconds 90
  nongemm nongemm 205 --engine pytorch,compiled,graphed --seconds 0.5
  nongemm nongemm 45 --engine pytorch,graphed --seconds 0.5  # of the models that were not reached
  nongemm nongemm-bf16 25 mixtral-8x7b --dtype bfloat16 --engine pytorch,graphed --seconds 0.5
  nongemm lengths 60 perf/gpu/llama_lengths.py:tokens_512 perf/gpu/llama_lengths.py:tokens_2048 \
    perf/gpu/llama_lengths.py:tokens_8192 --engine pytorch --quantize none,int8 --seconds 1
  step decode 50 headroom bench decode facebook/opt-1.3b --on cuda --quick --keep "$work/decode"
  step alone 40 python3 perf/gpu/train_memory.py --out "$work/alone" --settings 10 --alone 10 --seconds 35
fi
cp "$work/steps.txt" "$OUT/"
tar -C "$work" --exclude '*.trace.json.gz' --exclude cache --exclude shim_cache -czf "$OUT/results.tar.gz" .
find "$work" -name '*.trace.json.gz' -size -12M | tar -C / -cf - -T - 2>/dev/null | split -b 15m - "$OUT/traces.tar."
ls -la "$OUT"
