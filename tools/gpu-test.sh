#!/usr/bin/env bash
# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# usage: gpu-test.sh [--out DIR] [--modules DIR] [--only STEP,STEP…] [--device NAME]
#
# Builds the runtime with its CUDA backend and runs everything that needs a GPU, in
# ten minutes: from a bundle of gpu-bundle.sh, or from a checkout with modules that
# were compiled before. Needs nvcc, a C++17 compiler, CMake, and Python with
# PyTorch, numpy, safetensors and pytest; no network and no MLIR. Leaves
# DIR/report.txt and DIR/report.json (default: gpu-report). Every step runs whatever
# happened before; the exit status is 0 when all passed. Hooks in PyTorch need the
# compiler of the bundle: without it that step is left out, and fails if the bundle
# was packed with one. With --device=cuda_emulated the steps parity and torch are
# rehearsed on a machine without a GPU.
#
# Environment: DDPHOOK_TEST_PYTHON (default python3), DDPHOOK_GPU_BUDGET_S (570).
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$PWD/gpu-report modules=$root/modules only='' device=cuda
while [[ $# -gt 0 ]]; do
  case $1 in
  --out) out=$(realpath -m "$2") && shift 2 ;;
  --modules) modules=$(realpath -m "$2") && shift 2 ;;
  --only) only=,$2, && shift 2 ;;
  --device) device=$2 && shift 2 ;;
  *) sed -n '5p' "$0" | cut -c3- >&2 && exit 2 ;;
  esac
done
budget=${DDPHOOK_GPU_BUDGET_S:-570}
python=${DDPHOOK_TEST_PYTHON:-python3}
build=$out/build logs=$out/logs
mkdir -p "$logs"
rm -f "$logs"/* "$out"/report.* "$out/steps.tsv"
cd "$root" || exit

deps=$root/deps/usr
if [[ -d $deps ]]; then
  for directory in "$deps/lib" "$deps"/lib/*-linux-gnu "$deps/lib/needed"; do
    LD_LIBRARY_PATH=$directory${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  done
fi
# The backend lies beside the runtime's library.
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export DDPHOOK_REQUIRE_GPU=1 DDPHOOK_TEST_PYTHON PYTHONDONTWRITEBYTECODE=1
DDPHOOK_TEST_PYTHON=$(command -v "$python")
for candidate in "$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")" \
  /usr/local/cuda/bin; do
  if [[ -x $candidate/nvcc ]]; then
    export PATH=$PATH:$candidate
    break
  fi
done

# Runs a command as a step of the report: at most LIMIT seconds, and no longer than
# there is time left. A step that there is nothing for ends with the status LEFT_OUT.
failures=0
export LEFT_OUT=77
step() { # name limit command…
  local name=$1 limit=$2 begin=$SECONDS left status result=pass
  shift 2
  if [[ -n $only && $only != *,$name,* ]]; then return 0; fi
  left=$((budget - SECONDS))
  if ((left < 5)); then
    echo "there was no time left for it" >"$logs/$name.log"
    status=124
  else
    ((limit > left)) && limit=$left
    # Functions of this script, in a shell of their own that timeout can end.
    timeout --kill-after=10 "$limit" bash -c '"$@"' step "$@" >"$logs/$name.log" 2>&1
    status=$?
  fi
  if ((status == 124 || status == 137)); then
    result=timeout
  elif ((status == LEFT_OUT)); then
    result='left out'
  elif ((status != 0)); then
    result=fail
  fi
  [[ $result == pass || $result == 'left out' ]] || failures=$((failures + 1))
  printf '%s\t%s\t%d\t%d\n' "$name" "$result" "$status" "$((SECONDS - begin))" >>"$out/steps.tsv"
  printf '== [%4ds] %-24s %s\n' "$SECONDS" "$name" "$result"
  [[ $result == pass ]] || tail -n 15 "$logs/$name.log"
}

versions() {
  cat BUNDLE 2>/dev/null || git rev-parse HEAD
  nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader &&
    nvcc --version | tail -n 2 && cmake --version | head -n 1 && c++ --version | head -n 1 &&
    "$DDPHOOK_TEST_PYTHON" - <<'PYTHON'
import sys
import numpy, pytest, safetensors, torch
print("Python", sys.version.split()[0], "numpy", numpy.__version__)
print("torch", torch.__version__, "CUDA", torch.version.cuda)
print("NCCL of torch", ".".join(map(str, torch.cuda.nccl.version())))
print("device", torch.cuda.get_device_name(0), torch.cuda.device_count())
PYTHON
}

# Beside the toolkit, or in a package of the Python.
nccl_root() {
  for directory in "${DDPHOOK_NCCL_ROOT:-}" /usr/local/cuda /usr /usr/local; do
    if [[ -n $directory && -f $directory/include/nccl.h ]]; then
      echo "$directory"
      return
    fi
  done
  "$DDPHOOK_TEST_PYTHON" -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null
}

configure() {
  local capability generator=() packages=() nccl
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
    head -n 1 | tr -d '. ')
  command -v ninja >/dev/null && generator=(-G Ninja)
  # The names of directories are Debian's, whatever this machine is.
  [[ -d $deps ]] && packages=("-DCMAKE_PREFIX_PATH=$deps"
    -DCMAKE_LIBRARY_ARCHITECTURE=x86_64-linux-gnu)
  nccl=$(nccl_root)
  # Warnings of other compilers are no failures here.
  cmake "${generator[@]}" -S runtime -B "$build" -DCMAKE_BUILD_TYPE=Release \
    -DDDPHOOK_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="${capability:-90}" \
    -DDDPHOOK_WARNINGS_AS_ERRORS=OFF ${nccl:+-DDDPHOOK_NCCL_ROOT=$nccl} \
    "${packages[@]}"
}

# Goes on after errors: what is missing fails on its own.
compile() {
  local go_on=-k
  [[ -f $build/build.ninja ]] && go_on=-k0
  cmake --build "$build" --parallel "$(nproc)" -- "$go_on"
}

# ctest calls it a success when a label has no tests.
gpu_tests() {
  local found
  found=$(ctest --test-dir "$build" -L gpu -N | sed -n 's/^Total Tests: //p')
  echo "${found:-0} tests"
  ((${found:-0} > 0)) &&
    ctest --test-dir "$build" -L gpu --output-on-failure --timeout 240
}

host_tests() {
  ctest --test-dir "$build" -LE gpu --output-on-failure --timeout 240 \
    --parallel "$(nproc)"
}

# The tests for a GPU that are one process each, one command a line.
gpu_commands() {
  ctest --test-dir "$build" -L gpu --show-only=json-v1 | "$DDPHOOK_TEST_PYTHON" -c '
import json, sys
for test in json.load(sys.stdin)["tests"]:
    if "collectives" not in test["name"] and "command" in test:
        print(*test["command"])'
}

sanitize() { # tool
  local command result=0 any=0
  while IFS= read -r command; do
    any=1
    echo "== $1: $command"
    # shellcheck disable=SC2086
    compute-sanitizer --tool "$1" --error-exitcode 9 $command --gtest_brief=1 || result=1
  done < <(gpu_commands)
  ((any && result == 0))
}

device_tests() { # name arguments of pytest's…
  local parallel=()
  "$DDPHOOK_TEST_PYTHON" -c 'import xdist' 2>/dev/null && parallel=(-n 4)
  DDPHOOK_EXEC=$build/bin/ddphook-exec "$DDPHOOK_TEST_PYTHON" -m pytest \
    -p no:cacheprovider -q -rs "${parallel[@]}" --device="$device" \
    --modules="$modules" --junitxml="$logs/$1.xml" "${@:2}"
}

parity() {
  device_tests parity test/gpu --ignore=test/gpu/test_torch_cuda.py
}

# The package finds the compiler beside the runtime that was built here.
torch() {
  local libraries=$out/libraries compiler=$root/compiler
  [[ -d $compiler ]] || compiler=$root/build/lib/standalone
  if [[ -e $compiler/LEFT_OUT ]]; then
    echo "test_torch_cuda.py is left out: the bundle was packed --without-compiler"
    return "$LEFT_OUT"
  elif ! ls "$compiler"/libDDPHookCAPI.so.* >/dev/null; then
    echo "expected libDDPHookCAPI.so in $compiler: pack the bundle again, or build" \
      "DDPHookCAPIStandalone"
    return 1
  fi
  rm -rf "$libraries" && mkdir "$libraries" &&
    ln -s "$build"/lib/libddphook_{rt,backend_*}.so* "$compiler"/*.so.* "$libraries" &&
    DDPHOOK_LIBRARY_DIR=$libraries device_tests torch test/gpu/test_torch_cuda.py
}

bench() {
  "$build/bin/ddphook-bench" device --device=cuda --json="$logs/bench.json" --rounds=2
}

export root out build logs modules deps device
export -f versions nccl_root configure compile gpu_commands gpu_tests host_tests sanitize \
  device_tests parity torch bench

step versions 60 versions
step configure 60 configure
step build 300 compile
step gpu-tests 240 gpu_tests
step parity 240 parity
step torch 240 torch
step bench 120 bench
step memcheck 150 sanitize memcheck
step racecheck 120 sanitize racecheck
step synccheck 90 sanitize synccheck
step host-tests 120 host_tests
"$DDPHOOK_TEST_PYTHON" tools/gpu-report.py "$out" || failures=$((failures + 1))
echo "$out/report.txt"
exit $((failures > 0))
