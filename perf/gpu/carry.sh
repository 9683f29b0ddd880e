#!/bin/sh
# A Headroom that runs where nothing is installed: the program, stripped, with the libraries that it is linked to but
# the C library beside it, libheadroom_torch.so and the Python package, in PREFIX (default: .gpu/headroom).
#
#     perf/gpu/carry.sh [BUILD] [PREFIX]
#
# Needs patchelf. BUILD is a built tree (default: build/release).
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build/release} prefix=${2:-.gpu/headroom}
rm -rf "$prefix"
cmake --install "$build" --prefix "$prefix" >/dev/null
strip "$prefix/bin/headroom" "$prefix/lib/libheadroom_torch.so"
mkdir -p "$prefix/lib/carried"
ldd "$prefix/bin/headroom" | awk '$2 == "=>" {print $3}' |
  grep -v '/lib\(c\|m\|pthread\|dl\|rt\)\.so' | while read -r library; do
    cp -L "$library" "$prefix/lib/carried/"
  done
for file in "$prefix"/lib/carried/*; do patchelf --set-rpath '$ORIGIN' "$file"; done
patchelf --set-rpath '$ORIGIN/../lib/carried' "$prefix/bin/headroom"
"$prefix/bin/headroom" --version
du -sh "$prefix"
