#!/usr/bin/env bash
# fuzz-libfuzzer.sh [--build DIRECTORY] TARGET MINUTES: runs a libFuzzer target.
#
#   pipeline   the MLIR parser, our passes, imports too, and the lowering to LLVM
#   readers    what the runtime reads: plans, safetensors, manifests, messages
#   store      both ends of the control connection
#
# It begins with test/fuzz/libfuzzer/corpus/TARGET, and pipeline with the modules of
# the compiler's tests as well; what it finds on the way is kept in the build
# directory, below fuzz/, for the next run. MINUTES 0 means what CI runs: the
# corpus, for readers and store also a fixed number of inputs made from it, the same
# each time, with nothing kept. Inputs that fail are kept as fuzz/TARGET-* and make
# the exit status 1; pass one to DIRECTORY/bin/ddphook-TARGET-fuzzer to see why.
#
# DIRECTORY (default: build-address) has the targets; where it does not exist, the
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
# A time that no input takes, also on a loaded machine.
options=(-timeout=600 -max_len=16384 -rss_limit_mb=4096 "-artifact_prefix=$fuzz/$target-")
if ((minutes == 0)); then
  # The parser is MLIR's own: what it makes of random bytes is no test of ours.
  runs=1000
  if [[ $target == pipeline ]]; then runs=0; fi
  # What an instrumented target finds goes into the first directory. Without
  # instrumentation no input is new: all of the corpus is kept.
  found=$(mktemp -d)
  trap 'rm -rf "$found"' EXIT
  "$fuzzer" "${options[@]}" -runs=$runs -seed=1 -keep_seed=1 "$found" \
    "${corpora[@]:1}"
  exit
fi
exec "$fuzzer" "${options[@]}" -max_total_time=$((minutes * 60)) "${corpora[@]}"
