#!/usr/bin/env bash
# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# From a bare Debian machine to a trained network: installs packages, builds the
# compiler and the runtime with its CUDA backend, compiles the training step of
# docs/examples/digits once per hook, trains it on two ranks, and prints what
# each hook cost.
# Everything it makes lies in build/; a second run only does what is left to do.
#
#     tools/quickstart.sh
#
# Exit status: 0 if with every hook the ranks agree to the last bit, at least 95 %
# of the test images are read right, and no hook is more than half a point below
# no compression.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
log=$build/quickstart.log
data=$root/docs/examples/digits/digits.txt
variants=(allreduce fp16 bf16 allreduce-in-fp16 allreduce-in-bf16
  powersgd-rank1 powersgd-rank2 powersgd-rank4 noop)
ranks=2
least_accuracy=95
largest_loss=0.5 # points below allreduce

mkdir -p "$build/quickstart"
: >"$log"
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
  echo
  echo "error: $1; the end of ${log#"$root"/}:" >&2
  tail -n 30 "$log" >&2
  exit 1
}

# stage TEXT COMMAND…: one line with the time it took, the output to the log.
stage() {
  local text=$1 start=$SECONDS
  shift
  printf '%-58s' "== $text"
  echo "== $text: $*" >>"$log"
  "$@" >>"$log" 2>&1 </dev/null || fail "$text failed"
  echo "$((SECONDS - start)) s"
}

find_toolkit() {
  "$root/tools/cuda-toolkit.sh" >"$build/quickstart/cuda-root"
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Runs a program on all ranks, the output of rank N in build/quickstart/NAME.N.
# Ends all ranks when one fails. Returns 2 if the ranks' parameters differ.
launch() {
  local name=$1 port rank code ended status=0
  port=$(free_port)
  pids=()
  for ((rank = 0; rank < ranks; rank++)); do
    # A clean environment: variables of another launcher would contradict ours.
    env -i PATH="$PATH" RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$ranks \
      MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" DDPHOOK_TIMEOUT_S=60 \
      "$build/bin/digits-$name" "$data" >"$build/quickstart/$name.$rank" 2>&1 &
    pids+=($!)
  done
  while ((${#pids[@]})); do
    code=0
    wait -n -p ended "${pids[@]}" || code=$?
    if ((code != 0 && (status == 0 || status == 2))); then status=$code; fi
    for rank in "${!pids[@]}"; do
      if [[ ${pids[rank]} == "$ended" ]]; then unset "pids[rank]"; fi
    done
    if ((code != 0 && code != 2)); then kill "${pids[@]}" 2>/dev/null || true; fi
  done
  cat "$build/quickstart/$name".*
  return "$status"
}

train() {
  local status=0
  launch "$1" || status=$?
  # Without communication the ranks must drift apart; else nothing was compared.
  if [[ $1 == noop ]]; then
    ((status == 2)) || { echo "expected the ranks to differ"; return 1; }
  else
    ((status != 2)) || echo "the ranks' parameters differ"
    return "$status"
  fi
}

# value VARIANT LABEL: a number that rank 0 printed.
value() {
  sed -n "s/^$2: \([0-9.]*\).*/\1/p" "$build/quickstart/$1.0"
}

print_table() {
  local variant note accuracy uncompressed
  printf '\n%-18s %14s %25s %10s\n' hook 'test accuracy' \
    'bytes on the wire a step' 'ms a step'
  for variant in "${variants[@]}"; do
    note=''
    [[ $variant == noop ]] && note='  no communication: the ranks differ'
    printf '%-18s %12s %% %25s %10s%s\n' "$variant" \
      "$(value "$variant" 'test accuracy')" \
      "$(value "$variant" 'bytes on the wire a step')" \
      "$(value "$variant" 'ms a step')" "$note"
  done
  echo
  uncompressed=$(value allreduce 'test accuracy')
  for variant in "${variants[@]}"; do
    [[ $variant == noop ]] && continue
    accuracy=$(value "$variant" 'test accuracy')
    awk -v a="$accuracy" -v least=$least_accuracy \
      'BEGIN { exit !(a != "" && a + 0 >= least) }' ||
      fail "expected at least $least_accuracy % with $variant, but got ${accuracy:-nothing}"
    # Accuracies have two digits: half a digit for the subtraction.
    awk -v a="$accuracy" -v from="$uncompressed" -v loss=$largest_loss \
      'BEGIN { exit !(from - a <= loss + 0.005) }' ||
      fail "expected at most $largest_loss points less than $uncompressed % with $variant, but got $accuracy"
  done
}

main() {
  echo "ddphook quickstart; details in ${log#"$root"/}"
  stage 'installing Debian packages that are missing' \
    "$root/tools/install-packages.sh"
  cd "$root"
  stage 'finding a CUDA toolkit, or installing one (1.1 GB)' \
    find_toolkit
  stage 'configuring' cmake --preset release \
    -DDDPHOOK_CUDA=ON -DDDPHOOK_CUDA_ROOT="$(<"$build/quickstart/cuda-root")"
  stage 'building compiler and runtime (minutes, the first time)' \
    cmake --build build --target ddphook-cc ddphook-opt ddphook_rt \
    ddphook_backend_cuda
  stage "compiling the training step, once for each of ${#variants[@]} hooks" \
    cmake --build build --target digits
  local variant
  for variant in "${variants[@]}"; do
    stage "training on $ranks ranks: $variant" train "$variant"
  done
  print_table
  echo "With every hook but noop, all ranks ended with the same parameters, bit by bit."
  echo "Next: docs/getting-started.md"
}

main "$@"
