#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# usage: gpu-test.sh [--continue] [--out DIR] [--work DIR] [--modules DIR] [--only STEP,STEP…] [--device NAME]
#
# Runs everything that needs a GPU, from a bundle of gpu-bundle.sh or from a checkout
# with a build in build/ and modules that were compiled before. Needs Python with
# PyTorch, numpy, safetensors and pytest, and uses this Python's CUDA libraries; no
# network, no MLIR and no compiler.
#
# The most informative steps come first, and all take ten minutes at most. With
# --continue, a second run in the same working directory (default: build-gpu, next to
# tools) keeps the results of the first one and runs the steps that have none.
#
# Writes DIR/report.txt, DIR/report.json and DIR/logs.tar.gz (default: gpu-report), and
# updates them while it runs, so that results survive whatever ends it. Every step runs
# whatever happened before; the exit status is 0 if all passed.
# Hooks in PyTorch need the bundle's compiler: without it that step is left out, and
# fails if the bundle was packed with one. With --device=cuda_emulated, the steps
# parity, sweep, two-ranks, failures and torch are rehearsed on a machine without a GPU.
#
# Environment: DDPHOOK_TEST_PYTHON (default python3), DDPHOOK_GPU_BUDGET_S (of this
# run, 600), DDPHOOK_GPU_KEEP_S (between two reports during a step, 20),
# DDPHOOK_GPU_LIBRARY (the directory of the GPU library, to rehearse the steps carried,
# gpu-tests, bench, failures and sweep for the device cuda: small, and with more time).
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$PWD/gpu-report modules=$root/modules work=$root/build-gpu
only='' device=cuda continues=''
fail() { echo "error: $1" >&2 && exit 2; }
while [[ $# -gt 0 ]]; do
  [[ $1 == --continue ]] && continues=1 && shift && continue
  [[ $1 =~ ^--(out|work|modules|only|device)$ ]] ||
    { sed -n '4p' "$0" | cut -c3- >&2 && exit 2; }
  [[ $# -ge 2 ]] || fail "expected a value after $1"
  case $1 in
  --out) out=$(realpath -m "$2") ;;
  --work) work=$(realpath -m "$2") ;;
  --modules) modules=$(realpath -m "$2") ;;
  --only) only=,$2, ;;
  --device) device=$2 ;;
  esac
  shift 2
done
budget=${DDPHOOK_GPU_BUDGET_S:-600}
python=${DDPHOOK_TEST_PYTHON:-python3}
logs=$work/logs steps=$work/steps.tsv
mkdir -p "$out" "$logs"
# However the first run ended.
if [[ $continues && -f $work/running ]]; then
  read -r name _ <"$work/running" && printf '%s\tcut off\t137\t0\n' "$name" >>"$steps"
  rm "$work/running"
fi
[[ $continues ]] || rm -rf "${logs:?}"/* "$steps" "$work/running"
rm -f "$out"/report.* "$out/logs.tar.gz"
cd "$root" || exit

export PYTHONDONTWRITEBYTECODE=1 DDPHOOK_TEST_PYTHON
DDPHOOK_TEST_PYTHON=$(command -v "$python")
[[ $device == cuda ]] && export DDPHOOK_REQUIRE_GPU=1
export PATH=$PATH:${DDPHOOK_CUDA_ROOT:-/usr/local/cuda}/bin:/usr/local/cuda/bin

# The directories of NVIDIA's packages in this Python, one per line. PyTorch loads CUDA
# and NCCL from there, and a process must only have one of each.
packages=$("$DDPHOOK_TEST_PYTHON" - <<'PYTHON' 2>/dev/null
import glob, importlib.util
spec = importlib.util.find_spec("nvidia")
for path in spec.submodule_search_locations if spec else ():
    for name in ("nccl", "cu1[0-9]", "cublas", "cuda_runtime"):
        print(*glob.glob(f"{path}/{name}"), sep="\n")
PYTHON
)
toolkit=$(nvcc=$(command -v nvcc) && dirname "$(dirname "$(readlink -f "$nvcc")")")
# The runtime would report this script's variables as unknown.
period=${DDPHOOK_GPU_KEEP_S:-20}
unset DDPHOOK_GPU_KEEP_S DDPHOOK_GPU_BUDGET_S DDPHOOK_CUDA_ROOT

# The directory of the programs: the bundle's, or the checkout's build.
build=$root/built
if [[ ! -d $build ]]; then
  build=$root/build
  ctest --test-dir "$build" -L gpu --show-only=json-v1 |
    python3 tools/gpu-report.py --tests >"$build/gpu-tests.txt"
fi
libraries=${DDPHOOK_GPU_LIBRARY:+$DDPHOOK_GPU_LIBRARY:}$build/lib
for directory in $packages; do libraries+=:$directory/lib; done
rehearsed=${DDPHOOK_GPU_LIBRARY:+1}
unset DDPHOOK_GPU_LIBRARY
[[ $toolkit ]] && libraries+=:$toolkit/lib64:$toolkit/lib:$toolkit/../nccl/lib
# The programs use only those of the bundle's libraries that this machine lacks, because
# PyTorch's processes search here before they search the system.
rm -rf "$work/lacking" && mkdir "$work/lacking"
LD_LIBRARY_PATH='' "$DDPHOOK_TEST_PYTHON" - "$work/lacking" "$root"/deps/*.so* <<'PYTHON'
import ctypes, os, sys
for path in filter(os.path.exists, sys.argv[2:]):
    name = os.path.basename(path)
    try:
        ctypes.CDLL(name)
    except OSError:
        os.symlink(path, os.path.join(sys.argv[1], name))
PYTHON
export LD_LIBRARY_PATH=$libraries:$work/lacking${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# Writes the report and packs the logs atomically. Half-written files of a step must not
# end it.
keep() {
  local packed
  "$DDPHOOK_TEST_PYTHON" tools/gpu-report.py "$work" "$out" >"$work/report.log" 2>&1 ||
    { echo "error: no report was written: $(tail -n 1 "$work/report.log")" >&2 && return 1; }
  packed=$(mktemp "$out/.logs.XXXXXX") &&
    tar czf "$packed" -C "$work" logs 2>/dev/null
  chmod 644 "$packed" && mv "$packed" "$out/logs.tar.gz"
}

# When this script is terminated, reports the results so far, and again after the step
# has ended.
cut_off() {
  trap '' TERM INT HUP
  [[ $keeper ]] && kill "$keeper" 2>/dev/null
  [[ $child ]] && kill -- "-$child" 2>/dev/null
  keep
  if [[ $child ]]; then
    timeout 5 tail --pid="$child" -f /dev/null
    keep
  fi
  exit 1
}
trap cut_off TERM INT HUP

# Cuts the middle out of a log that is too long for an archive.
most=$((4 << 20))
shorten() { # log
  (($(stat -c %s "$1") <= most)) && return
  { head -c $((most / 2)) "$1" && printf '\n… left out …\n' &&
    tail -c $((most / 2)) "$1"; } >"$work/short.log" && mv "$work/short.log" "$1"
}

# Runs a command as a step of the report, for at most LIMIT seconds or the remaining
# time. A step without work ends with the status LEFT_OUT.
failures=0 child='' keeper='' slowness=${rehearsed:+9}
slowness=${slowness:-1}
export LEFT_OUT=77
step() { # name limit command…
  local name=$1 limit=$(($2 * slowness)) begin=$SECONDS left status result=pass
  shift 2
  if [[ -n $only && $only != *,$name,* ]]; then return 0; fi
  if [[ $continues ]] && grep -qE "^$name\s(pass|fail|left out|cut off)" "$steps"; then
    return 0
  fi
  rm -f "$logs/$name".*
  touch "$steps" && sed -i "/^$name\t/d" "$steps"
  printf '%s\t%d\n' "$name" "$(date +%s)" >"$work/running"
  left=$((budget - SECONDS))
  if ((left < 5)); then
    echo "no time was left for it" >"$logs/$name.log"
    status=124
  else
    ((limit > left)) && limit=$left
    export step_limit=$limit
    # Runs functions of this script in a separate shell that timeout can end, after the
    # command has printed its last messages.
    timeout --kill-after=10 "$limit" bash -c 'trap "exit 143" TERM; "$@"' step "$@" \
      >"$logs/$name.log" 2>&1 &
    child=$!
    while sleep "$period" && kill -0 "$child"; do keep; done >/dev/null 2>&1 &
    keeper=$!
    wait "$child"
    status=$?
    kill "$keeper" 2>/dev/null
    wait "$keeper" 2>/dev/null
    child='' keeper=''
    shorten "$logs/$name.log"
  fi
  case $status in
  0) ;;
  "$LEFT_OUT") result='left out' ;;
  124 | 137) result=timeout failures=$((failures + 1)) ;;
  *) result=fail failures=$((failures + 1)) ;;
  esac
  printf '%s\t%s\t%d\t%d\n' "$name" "$result" "$status" "$((SECONDS - begin))" >>"$steps"
  rm -f "$work/running"
  printf '== [%4ds] %-24s %s\n' "$SECONDS" "$name" "$result"
  [[ $result == pass ]] || tail -n 15 "$logs/$name.log"
  keep
}

versions() {
  cat BUNDLE 2>/dev/null || git rev-parse HEAD
  uname -sr && ldd --version | head -n 1 && nproc
  nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader
  nvcc --version | tail -n 2
  "$DDPHOOK_TEST_PYTHON" - "$build/lib/libddphook_backend_cuda.so" <<'PYTHON'
import ctypes, sys, time
import numpy, pytest, safetensors, torch
print("Python", sys.version.split()[0], "numpy", numpy.__version__)
print("torch", torch.__version__, "CUDA", torch.version.cuda)
print("NCCL of torch", ".".join(map(str, torch.cuda.nccl.version())))
print("device", torch.cuda.get_device_name(0), torch.cuda.device_count())
properties = torch.cuda.get_device_properties(0)
print("multiprocessors", properties.multi_processor_count,
      "L2", getattr(properties, "L2_cache_size", 0) >> 20, "MiB")
# A copy larger than any cache: the roofline of all data movement.
n = min(1 << 28, properties.total_memory // 32)
a, b = (torch.empty(n, device="cuda") for _ in range(2))
times = []
for _ in range(20):
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    b.copy_(a)
    last.record()
    last.synchronize()
    times.append(first.elapsed_time(last) * 1e-3)
print(f"copy of {n >> 18} MiB: {8e-9 * n / sorted(times)[10]:.0f} GB/s read and written")
library = ctypes.CDLL(sys.argv[1])
loaded = {line.split()[-1] for line in open("/proc/self/maps")
          if any(f"/lib{name}.so" in line for name in ("nccl", "cudart", "cublas"))}
print("beside torch the backend uses", *sorted(loaded), sep="\n  ")
for name in ("nccl", "cudart", "cublas"):
    found = sum(f"/lib{name}.so" in path for path in loaded)
    if found != 1:
        sys.exit(f"error: expected one lib{name} in a process, but found {found}")
PYTHON
}

# Succeeds if the programs start here.
programs_start() {
  ldd "$build"/bin/ddphook-{exec,bench} "$build"/lib/libddphook_backend_cuda.so 2>&1 |
    grep -E 'not found|^ldd:' | sort -u
  "$build/bin/ddphook-exec" --version
}

# Runs the tests for a GPU that match a pattern, or with a "!" those that do not, the
# kernels' first, with a command in front of each. Prints a line "TEST name: result" for
# each. The status is LEFT_OUT if all were skipped. It ends itself before the step's
# limit, because the step's timeout does not reach the processes that are started here.
each_test() { # seconds pattern command…
  local name program arguments status all=0 good=0 skipped=0 log=$work/test.log
  local result left
  while IFS=$'\t' read -r name program arguments; do
    if [[ $2 == !* ]]; then
      [[ $name =~ ${2:1} ]] && continue
    else
      [[ $name =~ $2 ]] || continue
    fi
    all=$((all + 1))
    echo "== $name"
    left=$((step_limit - SECONDS - 5)) status=124 result=failed
    : >"$log"
    if ((left > 0)); then
      # shellcheck disable=SC2086
      timeout --kill-after=3 $((left < $1 * slowness ? left : $1 * slowness)) "${@:3}" \
        "$build/bin/$program" $arguments --gtest_brief=1 >"$log" 2>&1 </dev/null
      status=$?
    fi
    cat "$log"
    if grep -qiE 'device not supported' "$log"; then
      result='skipped, the tool refuses this device' skipped=$((skipped + 1))
    elif ((status == 124 || status == 137)); then
      result='out of time'
    elif ((status == 0)) && grep -q '^\[  SKIPPED \]' "$log" &&
      ! grep -qE '^\[  PASSED  \] [1-9]' "$log"; then
      result=skipped skipped=$((skipped + 1))
    elif ((status == 0)); then
      result=passed good=$((good + 1))
    fi
    echo "TEST $name: $result"
  done <"$build/gpu-tests.txt"
  ((all > 0)) || { echo "error: expected tests in $build/gpu-tests.txt" && return 1; }
  ((skipped == all)) && return "$LEFT_OUT"
  ((good + skipped == all))
}

# Jobs of two ranks on one GPU in which one is killed, stops, or leaves: eagerly, in a
# capture, in a graph, with blocking communicators.
failing_jobs() {
  local program=$build/bin/ddphook-cuda_job_test
  if [[ $device == cuda ]]; then
    each_test 110 '^runtime-cuda_job'
  else
    "$program" && echo "TEST $(basename "$program"): passed"
  fi
}

# Failing calls that the runtime makes and expects are not memory errors. Programs of
# the backend keep memory on purpose, when a job fails; those of kernels do not.
sanitize() { # tool, seconds for a program, programs, options…
  each_test "$2" "^runtime-($3)" compute-sanitizer --tool "$1" "${@:4}" --error-exitcode 9
}

device_tests() { # name arguments of pytest…
  local parallel=()
  "$DDPHOOK_TEST_PYTHON" -c 'import xdist' 2>/dev/null && parallel=(-n "${processes:-4}")
  DDPHOOK_EXEC=$build/bin/ddphook-exec "$DDPHOOK_TEST_PYTHON" -m pytest \
    -p no:cacheprovider -v -rs "${parallel[@]}" --device="$device" \
    --modules="$modules" --junitxml="$logs/$1.xml" "${@:2}"
}

# Runs two ranks on one GPU, which NCCL allows for ranks of different hosts: NCCL_HOSTID
# names a host. They find each other over TCP, and every element is compared.
sweep() {
  local largest=64M port
  [[ $device == cuda && ! $rehearsed ]] || largest=256K
  port=$("$DDPHOOK_TEST_PYTHON" -c '
import socket
with socket.socket() as s: s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  DDPHOOK_BACKEND=$device NCCL_SOCKET_IFNAME=lo "$DDPHOOK_TEST_PYTHON" \
    test/gpu/launch_ranks.py "$port" '{"NCCL_HOSTID": "a"}' '{"NCCL_HOSTID": "b"}' -- \
    "$build/bin/ddphook-bench" sweep -b 64K -e "$largest" -f 4 -n 5 -w 2 --hook=all \
    --op=mean --json="$logs/sweep.json"
}

# Runs a sample of tests with two ranks like this and PyTorch. All processes use the GPU
# alternately, and those that wait for a peer keep it busy.
two_ranks() {
  local sample='test_large_buckets or test_every_16_bit_value or test_every_hook and None'
  sample+=' or test_tall_matrices and (r2 or r4) or test_a_run_in_two_halves and f32-r4'
  processes=1 device_tests two-ranks test/gpu/test_device_hooks.py \
    test/gpu/test_device_powersgd.py --worlds=2 -k "$sample"
}

# The package finds the compiler in the runtime's directory.
torch() {
  local libraries=$work/libraries compiler=$root/compiler
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
  local parts=(cast encode topk powersgd start --rounds=2)
  # PyTorch's tensors are not on the GPU library.
  [[ $rehearsed ]] && parts=(cast start --rounds=1 --mib=1) && unset DDPHOOK_TEST_PYTHON
  "$build/bin/ddphook-bench" "${parts[@]}" --device="$device" --json="$logs/bench.json"
}

export root work build logs modules device rehearsed slowness
export -f versions programs_start each_test failing_jobs sanitize device_tests sweep \
  two_ranks torch bench

step carried 20 programs_start
step versions 45 versions
step gpu-tests 120 each_test 60 '!^runtime-cuda_job'
step bench 110 bench
step failures 100 failing_jobs
step torch 110 torch
step parity 90 device_tests parity test/gpu --ignore=test/gpu/test_torch_cuda.py
step two-ranks 60 two_ranks
step sweep 30 sweep
backend='cuda_backend|backend_(conf|enc|exch|sparse)'
step memcheck 45 sanitize memcheck 20 "gpu_cuda|$backend" --report-api-errors no
step leakcheck 30 sanitize memcheck 15 gpu_cuda --leak-check full --report-api-errors no
step initcheck 30 sanitize initcheck 15 gpu_cuda
step racecheck 30 sanitize racecheck 15 "gpu_cuda|$backend"
step synccheck 20 sanitize synccheck 10 "gpu_cuda|$backend"
rm -f "$out"/.logs.*
keep || failures=$((failures + 1))
cat "$out/report.txt"
echo "$out/report.txt"
exit $((failures > 0))
