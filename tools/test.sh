#!/usr/bin/env bash
# Builds everything and runs all tests, from a bare Debian machine: installs what
# is missing, configures with the preset "release", builds, and runs
#
#   lit          the compiler: dialect, passes, code generation, plugin
#   gtest        the compiler's helpers; the runtime, its kernels, transports and CUDA
#                backend, the latter on an emulated device (through ctest)
#   pytest       parity with PyTorch's hooks, errors, mutants, the digits step, random
#                programs, those of front ends; then every hook on a device whose
#                memory the host cannot read, and on the emulated CUDA device
#   python       the Python package: training under PyTorch's real DDP
#   fuzz         the libFuzzer targets over their corpora
#   sanitize     the runtime's core and host backend under ASan and UBSan, and
#                under TSan (the short forms of tools/sanitize.sh)
#   consumer     projects that use the package; install trees and Debian packages
#   docs         the generated reference is up to date, references lead somewhere
#   format       C, C++ and CUDA files are as clang-format writes them
#   tidy         clang-tidy finds nothing in the runtime
#   lint         ruff finds nothing in Python files, mypy nothing in the package
#
# A suite that cannot run because something is missing is a failure. What only a
# GPU can run is skipped where there is none, and counted; DDPHOOK_REQUIRE_GPU=1
# makes that a failure too. The last line is the sum over all suites: "N passed, N
# failed, N skipped".
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
logs=$build/test-logs
jobs=$(nproc)
passed=0 failed=0 skipped=0
cd "$root"

say() { printf '== [%4ds] %s\n' "$SECONDS" "$*"; }

die() {
  say "FAILED: $*"
  echo "$passed passed, $((failed + 1)) failed, $skipped skipped"
  exit 1
}

# Adds counts to the sum; a suite without any test counts as a failure.
count() { # suite passed failed skipped exit-status
  local suite=$1 p=${2:-0} f=${3:-0} s=${4:-0} status=$5
  if ((status != 0 && f == 0)); then f=1; fi
  if ((p + f == 0)); then f=1; fi
  say "$suite: $p passed, $f failed, $s skipped"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# The number before WORD in the last line of FILE that has one.
number() { # file regex
  grep -oE "$2" "$1" | tail -1 | grep -oE '[0-9]+' | head -1 || true
}

say "installing missing packages"
tools/install-packages.sh || die "packages could not be installed"

say "preparing the test Python (first time: minutes and 6.4 GB)"
python=$(tools/python-env.sh) || die "the test Python could not be made"
export DDPHOOK_TEST_PYTHON=$python

say "finding a CUDA toolkit (if there is none: about 30 s and 1.1 GB, once)"
cuda=$(tools/cuda-toolkit.sh) || die "the CUDA toolkit could not be made"

# A directory that is configured already may be one that someone works in.
options=(-DDDPHOOK_CUDA=ON -DDDPHOOK_CUDA_ROOT="$cuda" -DDDPHOOK_BUILD_FUZZERS=ON
  -DDDPHOOK_INSTRUCTION_SETS=ALL)
unity=()
[[ -f $build/build.ninja ]] || unity=(-DDDPHOOK_UNITY_BUILD=ON)

configure() { # arguments of cmake's
  local log=/tmp/ddphook-configure.$$
  cmake --preset release "${options[@]}" "$@" >$log 2>&1 ||
    { cat $log; rm -f $log; die "cmake"; }
  rm -f $log
}

say "configuring (preset release, CUDA in $cuda)"
configure "${unity[@]}"
mkdir -p "$logs"

say "building (about 8 minutes on 2 cores, seconds when nothing changed)"
ninja -C "$build" >"$logs/build.log" 2>&1 ||
  { tail -60 "$logs/build.log"; die "the build; whole log: $logs/build.log"; }

say "lit: the compiler's tests"
"${DDPHOOK_LIT:-/usr/lib/llvm-22/bin/lit}" -v -j"$jobs" "$build/test" \
  >"$logs/lit.log" 2>&1
status=$?
((status == 0)) || grep -vE '^PASS: ' "$logs/lit.log" | tail -80
lit_number() { sed -nE "s/^ *($1) *: *([0-9]+).*/\2/p" "$logs/lit.log" | awk '{s+=$1} END {print s+0}'; }
count lit "$(lit_number 'Passed|Expectedly Failed')" \
  "$(lit_number 'Failed|Timed Out|Unresolved|Unexpectedly Passed')" \
  "$(lit_number 'Skipped|Unsupported|Excluded')" $status

say "ctest: the runtime, and the helpers of the compiler"
ctest --test-dir "$build" -j"$jobs" --timeout 300 --output-on-failure \
  >"$logs/ctest.log" 2>&1
status=$?
((status == 0)) || tail -80 "$logs/ctest.log"
total=$(number "$logs/ctest.log" 'out of [0-9]+')
bad=$(number "$logs/ctest.log" '[0-9]+ tests? failed out of')
left=$(grep -cE '\*\*\*(Skipped|Not Run)' "$logs/ctest.log")
count ctest $((${total:-0} - ${bad:-0} - left)) "${bad:-0}" "$left" $status

# Adds the counts of suite NAME, whose log is NAME.log.
count_pytest() { # suite exit-status
  local log=$logs/$1.log
  (($2 == 0)) || tail -80 "$log"
  count "$1" "$(number "$log" '[0-9]+ passed')" \
    "$(number "$log" '[0-9]+ (failed|error)')" \
    "$(number "$log" '[0-9]+ skipped')" "$2"
}
pytest_options=(-q -rs --durations=20 -p no:cacheprovider)

# The ranks of both suites wait for each other much of the time: neither fills two
# processors.
say "python: the package, under PyTorch's DistributedDataParallel, beside pytest"
DDPHOOK_OPT=$build/bin/ddphook-opt DDPHOOK_LIBRARY_DIR=$build/lib \
  "$python" -m pytest "${pytest_options[@]}" test/python >"$logs/python.log" 2>&1 &
package=$!

say "pytest: parity with PyTorch, errors, integration, random programs"
DDPHOOK_RUN=$build/bin/ddphook-run "$python" -m pytest "${pytest_options[@]}" \
  test/parity test/errors test/mutants test/Integration test/fuzz test/frontends \
  >"$logs/pytest.log" 2>&1
count_pytest pytest $?
wait $package
count_pytest python $?

# Nor do those of the devices.
declare -A devices=()
for device in guarded cuda_emulated; do
  say "pytest: every hook on the device $device"
  LD_LIBRARY_PATH=$build/bin DDPHOOK_CC=$build/bin/ddphook-cc \
    DDPHOOK_EXEC=$build/bin/ddphook-exec DDPHOOK_RUN=$build/bin/ddphook-run \
    "$python" -m pytest "${pytest_options[@]}" test/gpu \
    --device=$device --modules="$build/device-modules" \
    >"$logs/pytest-$device.log" 2>&1 &
  devices[$device]=$!
done
for device in "${!devices[@]}"; do
  wait "${devices[$device]}"
  count_pytest "pytest-$device" $?
done

for target in pipeline readers store; do
  say "fuzz: the libFuzzer target $target"
  tools/fuzz-libfuzzer.sh --build "$build" $target 0 >"$logs/fuzz-$target.log" 2>&1
  status=$?
  ((status == 0)) || tail -40 "$logs/fuzz-$target.log"
  count "fuzz-$target" $((status == 0)) $((status != 0)) 0 $status
done

for kind in address thread; do
  say "sanitize: the runtime's core and host backend, $kind (first time: minutes)"
  tools/sanitize.sh $kind --short >"$logs/sanitize-$kind.log" 2>&1
  status=$?
  ((status == 0)) || tail -80 "$logs/sanitize-$kind.log"
  count "sanitize-$kind" "$(number "$logs/sanitize-$kind.log" '[0-9]+ passed')" \
    "$(number "$logs/sanitize-$kind.log" '[0-9]+ failed')" \
    "$(number "$logs/sanitize-$kind.log" '[0-9]+ skipped')" $status
done

say "consumer: the package, from the build tree and from an install tree"
test/consumer/run.sh "$build" >"$logs/consumer.log" 2>&1
status=$?
((status == 0)) || tail -60 "$logs/consumer.log"
count consumer "$(grep -c '^PASS' "$logs/consumer.log")" \
  "$(grep -c '^FAIL' "$logs/consumer.log")" 0 $status

say "docs: the generated reference, and what documents refer to"
tools/generate-docs.sh --check "$build" >"$logs/docs.log" 2>&1
status=$?
((status == 0)) || cat "$logs/docs.log"
count docs "$(grep -c '^PASS' "$logs/docs.log")" \
  "$(grep -c '^FAIL' "$logs/docs.log")" 0 $status

# Their last line says "N of N files are …".
check_files() { # name script arguments...
  local log=$logs/$1.log total good status
  "${@:2}" >"$log" 2>&1
  status=$?
  ((status == 0)) || tail -80 "$log"
  total=$(number "$log" 'of [0-9]+ files')
  good=$(number "$log" '[0-9]+ of [0-9]+ files')
  count "$1" "${good:-0}" $((${total:-0} - ${good:-0})) 0 $status
}
say "format: clang-format over the sources"
check_files format tools/check-format.sh
say "tidy: clang-tidy over the runtime's sources"
# Its list of commands has each file by itself.
configure -B "$build/tidy" -DDDPHOOK_UNITY_BUILD=OFF
check_files tidy tools/check-tidy.sh --build "$build/tidy" --below runtime
say "lint: ruff over Python files, mypy over the package"
check_files lint tools/check-python.sh

say "all logs: $logs"
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
