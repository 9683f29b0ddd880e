#!/usr/bin/env bash
# fuzz/run.sh SECONDS [TARGET...]: each target (all, if none is named) for SECONDS, on the programs
# of the `fuzz` preset. New inputs go to build/fuzz/corpus, a finding to build/fuzz/findings: put it
# into fuzz/corpus/TARGET with the change that mends it.
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

failed=0
for target in "${targets[@]}"; do
  found=build/fuzz/corpus/$target
  findings=build/fuzz/findings/$target
  mkdir -p "$found" "$findings"
  echo "fuzz: $target, $seconds s"
  if "build/fuzz/fuzz/headroom_fuzz_$target" -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$findings/" \
    "$found" "fuzz/corpus/$target" >"build/fuzz/$target.log" 2>&1; then
    grep -E 'number_of_executed_units|new_units_added' "build/fuzz/$target.log"
  else
    tail -n 30 "build/fuzz/$target.log"
    echo "fuzz: $target FAILED, the input is under $findings" >&2
    failed=1
  fi
done
exit "$failed"
