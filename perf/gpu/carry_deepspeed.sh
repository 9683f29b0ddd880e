#!/bin/sh
# DeepSpeed and what it needs beside PyTorch, for a machine where nothing can be installed: as files in FOLDER (default:
# .gpu/site), which methods_memory.py takes from $HEADROOM_DEEPSPEED. Its own operators are left out, uncompiled.
#
#     perf/gpu/carry_deepspeed.sh [FOLDER] [PYTHON-VERSION]
#
# PYTHON-VERSION is that machine's (default: 3.12).
set -eu
cd "$(dirname "$0")/../.."
folder=${1:-.gpu/site} version=${2:-3.12}
rm -rf "$folder"
mkdir -p "$folder"
python3 -m pip install --quiet --no-deps --only-binary=:all: --python-version "$version" --target "$folder" \
  hjson py-cpuinfo msgpack pydantic pydantic_core annotated-types typing-inspection einops psutil
download=$(mktemp -d)
trap 'rm -rf "$download"' EXIT
DS_BUILD_OPS=0 python3 -m pip download --quiet --no-deps --no-binary=:all: --dest "$download" deepspeed==0.19.8
tar -xzf "$download"/deepspeed-*.tar.gz -C "$folder" --strip-components=1 --wildcards '*/deepspeed/*'
rm -rf "$folder/bin" "$folder"/*/__pycache__
du -sh "$folder"
