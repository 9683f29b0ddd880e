#!/usr/bin/env bash
# fuzz/run.sh SECONDS [TARGET...]: each target (all, if none is named) for SECONDS of a processor, as
# many at a time as there are cores, on the programs of the `fuzz` preset. New inputs go to
# build/fuzz/corpus, a finding to build/fuzz/findings: put it into fuzz/corpus/TARGET with the change
# that mends it.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit 70
seconds=${1:?usage: fuzz/run.sh SECONDS [TARGET...]}
shift
targets=("$@")
if ((${#targets[@]} == 0)); then
  for program in build/fuzz/fuzz/headroom_fuzz_*; do
    if [[ -x $program && -f $program ]]; then targets+=("${program##*headroom_fuzz_}"); fi
  done
fi
if ((${#targets[@]} == 0)); then
  echo "fuzz: no targets are built (cmake --preset fuzz && cmake --build --preset fuzz)" >&2
  exit 2
fi

# Seconds of a processor that process $1 has had. Its name may hold blanks: counted behind it.
processor_seconds() {
  local stat fields
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  read -ra fields <<<"${stat##*) }"
  echo $(((fields[11] + fields[12]) / $(getconf CLK_TCK)))
}

# By the processor's clock, not the wall's: beside other work a minute of wall time is less. libFuzzer
# knows only the wall's, so it is told to end behind the input that it is at. One that it is still at
# after another minute of a processor is a hang, and kept.
run_target() {
  local target=$1 found=build/fuzz/corpus/$1 findings=build/fuzz/findings/$1 log=build/fuzz/$1.log
  local fuzzer spent=0 now status
  mkdir -p "$found" "$findings"
  "build/fuzz/fuzz/headroom_fuzz_$target" -timeout=900 -report_slow_units=900 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$findings/" "$found" "fuzz/corpus/$target" >"$log" 2>&1 &
  fuzzer=$!
  while now=$(processor_seconds "$fuzzer") && ((now < seconds)); do
    spent=$now
    sleep 1
  done
  kill -USR1 "$fuzzer" 2>/dev/null && spent=$seconds
  while now=$(processor_seconds "$fuzzer") && ((now < seconds + 60)); do sleep 1; done
  kill -ABRT "$fuzzer" 2>/dev/null
  wait "$fuzzer"
  status=$?
  if ((status == 0)); then
    echo "fuzz: $target, $spent s of a processor: $(grep -oE 'number_of_executed_units: *[0-9]+' \
      "$log" | grep -oE '[0-9]+') inputs"
  else
    tail -n 30 "$log"
    echo "fuzz: $target FAILED, the input is under $findings" >&2
    return 1
  fi
}

export -f run_target processor_seconds
export seconds
# shellcheck disable=SC2016  # for the inner shell
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_target {}'
