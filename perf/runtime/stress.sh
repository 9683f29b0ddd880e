#!/usr/bin/env bash
# stress.sh PROGRAM OPERATIONS FIRST_SEED: twelve settings of ctest with other seeds, one behind the
# other; a line each: setting, exit code, what the program said, processor time. A seed whose plan lends nothing
# says so in those with --lends or --ordered and one thread, with exit code 1.
set -u
program=${1:?usage: perf/runtime/stress.sh PROGRAM OPERATIONS FIRST_SEED}
operations=${2:?operations of a setting, such as 1.3e8}
seed=${3:?the seed of the first setting}
TIMEFORMAT='%U+%S s of a processor, %R s'
while read -r setting; do
  # shellcheck disable=SC2086  # words
  said=$({ time "$program" --operations "$operations" --seed "$seed" $setting; echo "rc $?"; } 2>&1)
  echo "seed $seed $setting: ${said//$'\n'/ }"
  seed=$((seed + 1))
done <<'EOF'
--threads 1 --streams 1
--threads 1 --streams 8
--threads 4 --streams 4
--threads 4 --streams 2 --oom --memory-mib 1024
--threads 8 --streams 3 --oom --memory-mib 512 --capture
--threads 2 --streams 2 --plain --oom
--threads 16 --streams 8
--threads 3 --streams 3 --perturbed 0.3
--threads 1 --streams 2 --lends
--threads 2 --streams 2 --lends --perturbed 0
--threads 1 --streams 2 --ordered --delay 2000
--threads 3 --streams 2 --ordered --delay 300 --capture
EOF
