#!/bin/bash
# Everything here that needs a GPU, in two calls on a machine with one and nothing installed: some four and nine minutes.
#
#     OUT=DIR perf/gpu/all.sh PREFIX memory|time
#
# PREFIX is where `cmake --install` put Headroom (carry.sh makes one that carries its libraries). `memory` is what several
# processes may do at once, and whether all that `time` needs works; `time` is, one after another, what is timed. A step
# that fails or takes too long does not end the others; DIR/steps.txt tells how each ended.
set -u
cd "$(dirname "$0")/../.."
prefix=$(realpath "$1") kind=${2:-memory}
export OUT=${OUT:-gpu_out} PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=0 HF_HUB_OFFLINE=1
export HEADROOM_DEEPSPEED=${HEADROOM_DEEPSPEED:-$(dirname "$prefix")/site} # carry_deepspeed.sh's
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

allocator() { # NAME SECONDS SCRIPT FLAGS...
  local name=$1 seconds=$2 script=$3
  shift 3
  step "$name" "$seconds" python3 "perf/gpu/$script.py" --out "$work/$name" --headroom "$prefix/bin/headroom" \
    --seconds $((seconds * 9 / 10)) "$@"
}

record() { # MODEL: layers that are gathered from shares
  step "record-$1" 60 headroom run --quiet --record "$work/recordings/$1" -- python3 perf/gpu/allocator.py --worker \
    "{\"model\":\"$1\",\"pattern\":\"zero\",\"allocator\":\"headroom\",\"batch\":2,\"seq\":512,\"steps\":14}"
}

if [ "$kind" = memory ]; then
  nvidia-smi >"$work/nvidia-smi.txt" 2>&1
  python3 -c 'import torch, transformers; print(torch.__version__, torch.version.cuda, transformers.__version__)'
  warm_up 170 &
  allocator allocator 215 allocator --beside 3 --batch 2 --seq 512 &
  step methods 190 python3 perf/gpu/methods_memory.py --out "$work/methods" --alone 0 --beside 2 --seconds 150 \
    --setting-seconds 45 --least-seconds 5 &
  { allocator shim 120 shim
    record llama
    record gpt2
    record mixtral
    allocator largest-try 60 largest_batch --limit-gib 3 --beside 1 --seconds 10
    allocator times-try 60 step_times --only gpt2 --rounds 2; } &
  wait
  nongemm nongemm-try 30 bert --engine pytorch,graphed,compiled --seconds 0.1
  step device-try 12 headroom bench device --on cuda --quick --seconds 2 --save-calibration "$work/try.calibration.json"
  tar -C "$work/cache" -czf - inductor | split -b 15m - "$OUT/inductor.tar."
else
  if [ -e .gpu/inductor.tar.aa ]; then # of a first call
    mkdir -p "$work/cache"
    cat .gpu/inductor.tar.* | tar -C "$work/cache" -xzf -
  else
    warm_up 165 &
  fi
  allocator largest 165 largest_batch --beside 4
  wait
  allocator times 105 step_times --rounds 8 --steps 5
  step device 40 headroom bench device --on cuda --quick --seconds 25 --save-calibration "$work/device.calibration.json"
  nongemm nongemm 205 --engine pytorch,compiled,graphed --seconds 0.4
  nongemm nongemm 45 --engine pytorch,graphed --seconds 0.4 # of the models that were not reached
  nongemm nongemm-bf16 25 mixtral-8x7b --dtype bfloat16 --engine pytorch,graphed --seconds 0.4
  step alone 40 python3 perf/gpu/train_memory.py --out "$work/alone" --settings 10 --alone 10 --seconds 35
fi
cp "$work/steps.txt" "$OUT/"
tar -C "$work" --exclude '*.trace.json.gz' --exclude cache --exclude shim_cache -czf "$OUT/results.tar.gz" .
find "$work" -name '*.trace.json.gz' -size -12M | tar -C / -cf - -T - 2>/dev/null | split -b 15m - "$OUT/traces.tar."
ls -la "$OUT"
