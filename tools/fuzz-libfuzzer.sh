#!/usr/bin/env bash
# fuzz-libfuzzer.sh [--build DIRECTORY] TARGET MINUTES: runs a libFuzzer target.
#
#   pipeline   the MLIR parser, our passes including imports, the lowering to LLVM
#   readers    the runtime's parsers: plans, safetensors, manifests, messages
#   store      both ends of the control connection
#
# It begins with test/fuzz/libfuzzer/corpus/TARGET and, for pipeline, the modules of
# the compiler's tests; the build directory keeps new inputs, below fuzz/, for the
# next run. MINUTES 0 runs the same as CI: the corpus and, for readers and store, a
# fixed number of inputs derived from it, always the same, without keeping any.
# Failing inputs are kept as fuzz/TARGET-* and make the exit status 1; pass one to
# DIRECTORY/bin/ddphook-TARGET-fuzzer to debug it.
#
# DIRECTORY (default: build-address) contains the targets; if it does not exist, the
# preset "address" is built into it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build-address
if [[ ${1:-} == --build ]]; then build=$2; shift 2; fi
target=${1:-} minutes=${2:-}
if [[ ! $target =~ ^(pipeline|readers|store)$ || ! $minutes =~ ^[0-9]+$ ]]; then
  echo "usage: fuzz-libfuzzer.sh [--build DIRECTORY] pipeline|readers|store MINUTES" >&2
  exit 2
fi
fuzzer=$build/bin/ddphook-$target-fuzzer
cd "$root"
if [[ ! -x $fuzzer ]]; then
  cmake --preset address
  ninja -C "$build" "ddphook-$target-fuzzer"
fi

fuzz=$build/fuzz
mkdir -p "$fuzz/$target"
corpora=("$fuzz/$target" "$root/test/fuzz/libfuzzer/corpus/$target")
if [[ $target == pipeline && $minutes != 0 ]]; then
  "$root/test/fuzz/libfuzzer/compiler/seeds.py" "$fuzz/seeds"
  corpora+=("$fuzz/seeds")
fi
# Longer than any input takes, even on a loaded machine.
options=(-timeout=600 -max_len=16384 -rss_limit_mb=4096 "-artifact_prefix=$fuzz/$target-")
if ((minutes == 0)); then
  # MLIR tests its own parser: random bytes would test nothing of ours.
  runs=1000
  if [[ $target == pipeline ]]; then runs=0; fi
  # An instrumented target adds new inputs to the first directory. Without
  # instrumentation no input is new, and all of the corpus is kept.
  found=$(mktemp -d)
  trap 'rm -rf "$found"' EXIT
  "$fuzzer" "${options[@]}" -runs=$runs -seed=1 -keep_seed=1 "$found" \
    "${corpora[@]:1}"
  exit
fi
exec "$fuzzer" "${options[@]}" -max_total_time=$((minutes * 60)) "${corpora[@]}"
