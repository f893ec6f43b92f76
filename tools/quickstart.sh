#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# From a bare Debian machine to a trained network: installs packages, builds the
# compiler and the runtime, compiles the training step of docs/examples/digits
# once per hook, trains it on two ranks, and prints what each hook cost. Then it
# measures steps of the larger network of docs/examples/wide on a link of 1 Gbit/s,
# and prints the speedup of each hook. All its output is in build/.
#
#     tools/quickstart.sh [--cuda]
#
# --cuda  also builds the CUDA backend and a program for GPUs, with a CUDA toolkit
#         that is downloaded if this machine has none (1.1 GB). A build directory
#         that has the backend already, such as tools/test.sh's, keeps it.
#
# The link joins two network namespaces. If they cannot be created, its times are
# computed from the bytes, and the table says so.
#
# Exit status: 0 if with every hook the ranks agree to the last bit, at least 95 %
# of the test images are classified correctly, and no hook is more than half a point
# below no compression.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
log=$build/quickstart.log
data=$root/docs/examples/digits/digits.txt
variants=(allreduce fp16 bf16 allreduce-in-fp16 allreduce-in-bf16
  int8 int4 powersgd-rank1 powersgd-rank2 powersgd-rank4 noop)
ranks=2
# Hooks for the larger network.
wide_variants=(allreduce fp16 int8 int4 powersgd-rank4 powersgd-rank1)
link_bits=1000000000
least_accuracy=95
largest_loss=0.5 # points below allreduce

cuda=false
for argument; do
  case $argument in
  --cuda) cuda=true ;;
  --help)
    sed -n '/^# From/,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  *)
    echo "error: expected --cuda or nothing, but got '$argument'" >&2
    exit 2
    ;;
  esac
done

mkdir -p "$build/quickstart"
: >"$log"

fail() {
  echo
  echo "error: $1; the end of ${log#"$root"/}:" >&2
  tail -n 30 "$log" >&2
  exit 1
}

# stage TEXT COMMAND…: prints one line with the time it took, logs the output.
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

# Prints CMake's options. An already configured directory keeps its own; a new one is
# for this machine only, and is built once.
cmake_options() {
  if [[ ! -f $build/build.ninja ]]; then
    echo -DDDPHOOK_UNITY_BUILD=ON
    echo -DDDPHOOK_INSTRUCTION_SETS=MACHINE
    $cuda || echo -DDDPHOOK_CUDA=OFF
  fi
  if $cuda; then
    echo -DDDPHOOK_CUDA=ON
    echo "-DDDPHOOK_CUDA_ROOT=$(<"$build/quickstart/cuda-root")"
  fi
}

# launch PROGRAM [ARGUMENT…]: runs a program on all ranks. Their output is in
# build/quickstart/PROGRAM, the metrics of rank N in PROGRAM.metrics.N. Returns 2 if the
# ranks' parameters differ.
launch() {
  local status=0
  # A clean environment: variables of another launcher would contradict ours.
  env -i PATH="$PATH" DDPHOOK_METRICS="$build/quickstart/$1.metrics.{rank}" \
    DDPHOOK_METRICS_INTERVAL=1 python3 "$root/test/Integration/Inputs/launch.py" $ranks \
    "$build/bin/$1" "$data" "${@:2}" >"$build/quickstart/$1" 2>&1 || status=$?
  cat "$build/quickstart/$1"
  return "$status"
}

train() {
  local status=0
  launch "digits-$1" || status=$?
  # Without communication the ranks must diverge; otherwise nothing was compared.
  if [[ $1 == noop ]]; then
    ((status == 2)) || { echo "expected the ranks to differ"; return 1; }
  else
    ((status != 2)) || echo "the ranks' parameters differ"
    return "$status"
  fi
}

# Runs a command as two ranks, one on each side of the link. The namespaces are nested
# in another one: this needs no root where users may create them, and cleans up.
on_link() {
  local user=()
  ((EUID == 0)) || user=(--user --map-root-user)
  env -i PATH="$PATH:/usr/sbin:/sbin" DDPHOOK_TIMEOUT_S=60 \
    timeout --kill-after=10 600 \
    unshare "${user[@]}" --mount --net sh -c 'mount -t tmpfs tmpfs /run &&
      exec python3 "$@"' sh \
    "$root/docs/examples/network/link.py" --rate="${link_bits}bit" -- "$@"
}

# An epoch has 22 steps. PowerSGD compresses from the third one on: with five epochs,
# the median is that of a compressed step. The steps of other hooks are all alike.
wide_epochs() {
  if [[ $1 == powersgd* ]]; then echo 5; else echo 2; fi
}

train_on_link() {
  on_link env DDPHOOK_METRICS="$build/quickstart/wide-$1.link.metrics.{rank}" \
    DDPHOOK_METRICS_INTERVAL=1 "$build/bin/wide-$1" "$data" "$(wide_epochs "$1")" \
    >"$build/quickstart/wide-$1.link"
}

# Prints both tables, from what the ranks printed and from rank 0's metrics. Fails if a
# hook learns too little.
print_tables() {
  (cd "$build/quickstart" && python3 - "${variants[*]}" "${wide_variants[*]}" $ranks \
    $link_bits $least_accuracy $largest_loss) <<'EOF'
import json, os, re, statistics, sys

variants, wide_variants = (words.split() for words in sys.argv[1:3])
ranks, link_bits, least, largest_loss = map(float, sys.argv[3:])


def measured(run):
    """Returns the mean and the last bytes on the wire of the steps that send any, and the
    median milliseconds of all steps."""
    with open(f"{run}.metrics.0") as file:
        lines = [json.loads(line) for line in file]
    keys = "steps", "wire_bytes", "step_seconds"
    totals = [[0, 0, 0], *([line[key] for key in keys] for line in lines)]
    # The last line may not add a step.
    steps = [
        [after - before for before, after in zip(*two)]
        for two in zip(totals, totals[1:])
        if two[0][0] < two[1][0]
    ]
    sent = [bytes for _, bytes, _ in steps if bytes > 0] or [0]
    milliseconds = statistics.median(1e3 * time / count for count, _, time in steps)
    return sum(sent) // len(sent), sent[-1], milliseconds


def accuracy(hook):
    with open(f"digits-{hook}") as file:
        found = re.search(r"^test accuracy: ([0-9.]+)", file.read(), re.MULTILINE)
    return found[1] if found else "0"


print(f"\n{'hook':<18} {'test accuracy':>14} {'bytes on the wire per step':>26} {'ms per step':>12}")
for hook in variants:
    mean, _, time = measured(f"digits-{hook}")
    note = "  no communication: the ranks differ" if hook == "noop" else ""
    print(f"{hook:<18} {accuracy(hook):>12} % {mean:>26} {time:>12.3f}{note}")
print()
for hook in variants:
    # Accuracies have two digits: half a digit for the subtraction.
    bound = max(least, float(accuracy("allreduce")) - largest_loss - 0.005)
    if hook != "noop" and float(accuracy(hook)) < bound:
        sys.exit(f"error: expected at least {bound:g} % with {hook}, but got {accuracy(hook)}")
print("With every hook but noop, all ranks ended with the same parameters, bit by bit.\n")

is_measured = os.path.exists("wide-allreduce.link")


def link_ms(hook):
    """Returns the time of a step on the link: measured, or the time on one machine plus
    the time of the bytes on the link."""
    if is_measured:
        return measured(f"wide-{hook}.link")[2]
    _, bytes, time = measured(f"wide-{hook}")
    return time + 2 * (ranks - 1) / ranks * bytes * 8 / link_bits * 1000


print("What compression buys: the larger network of docs/examples/wide")
row = "{:<18} {:>26} {:>18} {:>18} {:>14}".format
print(row("hook", "bytes on the wire per step", "ms, one machine", "ms, 1 Gbit/s", "speedup"))
for hook in wide_variants:
    _, bytes, time = measured(f"wide-{hook}")
    speedup = f"{link_ms('allreduce') / link_ms(hook):.1f}"
    print(row(hook, bytes, f"{time:.3f}", f"{link_ms(hook):.3f}", speedup))
if is_measured:
    print("1 Gbit/s: measured, between two network namespaces of this machine.")
else:
    print("1 Gbit/s: COMPUTED as one machine's time plus the bytes divided by the rate, because")
    print("no network namespaces could be made with ip and tc (package iproute2).")
EOF
}

# Prints the load during the measurements, which includes the ranks themselves.
print_load() {
  local load processors
  load=$(cut -d ' ' -f 1 /proc/loadavg)
  processors=$(nproc)
  printf 'Load of the machine at the end: %s, on %s processors.' "$load" "$processors"
  if awk -v load="$load" -v most="$processors" 'BEGIN { exit !(load > most) }'; then
    printf ' It was BUSY: on a quiet one,\ntimes are shorter and ratios differ.'
  fi
  echo
}

main() {
  echo "ddphook quickstart; details in ${log#"$root"/}"
  stage 'installing Debian packages that are missing' \
    "$root/tools/install-packages.sh"
  cd "$root"
  if $cuda; then
    stage 'finding a CUDA toolkit, or installing one (1.1 GB)' find_toolkit
  fi
  local options variant targets=() programs=("${wide_variants[@]/#/wide-}")
  mapfile -t options < <(cmake_options)
  stage 'configuring' cmake --preset release "${options[@]}"
  if $cuda; then
    targets=(ddphook_backend_cuda)
    programs+=(digits)
  else
    programs+=("${variants[@]/#/digits-}")
  fi
  stage 'building compiler and runtime (minutes, the first time)' \
    cmake --build build --target ddphook-cc ddphook-opt ddphook_rt \
    "${targets[@]}"
  stage "compiling the training steps, once for each hook" \
    cmake --build build --target "${programs[@]}"
  for variant in "${variants[@]}"; do
    stage "training on $ranks ranks: $variant" train "$variant"
  done
  rm -f "$build"/quickstart/*.link "$build"/quickstart/*.link.metrics.*
  for variant in "${wide_variants[@]}"; do
    stage "the larger network on one machine: $variant" \
      launch "wide-$variant" "$(wide_epochs "$variant")"
  done
  # Tests whether this machine can create the link.
  if on_link true >>"$log" 2>&1; then
    for variant in "${wide_variants[@]}"; do
      stage "the same on a link of 1 Gbit/s: $variant" train_on_link "$variant"
    done
  fi
  print_tables || exit 1
  print_load
  echo "Next: docs/getting-started.md"
}

main "$@"
