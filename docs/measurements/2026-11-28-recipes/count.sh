#!/bin/sh
# What `fit --from` answers of each example file under a folder: program|exit code|file|first error.
#
#   git clone https://github.com/hiyouga/LLaMA-Factory && git -C LLaMA-Factory checkout ff6d4d12e
#   git clone https://github.com/axolotl-ai-cloud/axolotl && git -C axolotl checkout 067b021c8
#   sh count.sh build/dev/src/cli/headroom LLaMA-Factory axolotl > files.txt
#
# Exit code 1 is an answer, too: it does not fit.
headroom=$(realpath "$1")
shift
errors=$(mktemp)
for program in "$@"; do
  (cd "$program" && find examples -type f \( -name '*.yaml' -o -name '*.yml' -o -name '*.sh' \) | sort) |
    while read -r file; do
      (cd "$program" && "$headroom" fit --from "$file" --device h100-sxm-80gb --gpus 8 >/dev/null 2>"$errors")
      code=$?
      if grep -q 'the file divides the step among' "$errors"; then
        (cd "$program" && "$headroom" fit --from "$file" --device h100-sxm-80gb >/dev/null 2>"$errors")
        code=$?
      fi
      echo "$program|$code|$file|$(grep -m1 error "$errors" | sed 's/headroom: error: //' | cut -c1-140)"
    done
done
rm -f "$errors"
