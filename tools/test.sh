#!/usr/bin/env bash
# test.sh [--all]: builds everything and runs the tests, from a bare Debian machine:
# installs missing packages, configures with the preset "release", builds, and runs
#
#   lit            the compiler: dialect, passes, code generation, plugin
#   ctest          the compiler's helpers; the runtime, its kernels, transports and
#                  CUDA backend on an emulated device
#   parity         every hook beside PyTorch's, on ranks (this and the next six: pytest)
#   powersgd       PowerSGD beside PyTorch's
#   programs       errors, mutants, the digits step, random programs, front ends
#   python         the Python package: training under PyTorch's real DDP
#   compile        the Python package: compiled steps, most of them under Inductor
#   versions       with --all: the package's core with other releases of PyTorch
#   guarded        every hook on a device whose memory the host cannot read
#   cuda_emulated  every hook on the emulated CUDA device
#   format         C, C++ and CUDA files are formatted by clang-format
#   lint           ruff finds nothing in Python files, mypy nothing in the package
#   docs           the generated reference is up to date, references are valid
#   tidy           clang-tidy finds nothing in the runtime
#   fuzz           the libFuzzer targets over their corpora
#   consumer       projects that use the package; install trees and Debian packages
#   compilers      the runtime alone with every g++ and clang of this Debian (only --all)
#   sanitize       the runtime's core, host backend and CUDA backend (emulated device)
#                  under ASan and UBSan, and under TSan (tools/sanitize.sh)
#   aarch64        the same under emulation, with --all (tools/test-aarch64.sh)
#
# Without --all it runs the small tier of each suite, with --all every test;
# docs/testing.md says which tests are in the small tier.
#
# A suite fails if it cannot run because something is missing. Tests that need a GPU
# are skipped and counted if there is none; DDPHOOK_REQUIRE_GPU=1 makes that a
# failure, too. The last line is the sum over all suites: "N passed, N failed, N
# skipped".
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
logs=$build/test-logs
jobs=$(nproc)
passed=0 failed=0 skipped=0
cd "$root"

# The options of the small tier.
small=(--small) short=--small
case $* in
'') export DDPHOOK_FUZZ_SEEDS=${DDPHOOK_FUZZ_SEEDS:-0:60} ;;
--all) small=() short=--short ;;
*)
  echo "usage: test.sh [--all]" >&2
  exit 2
  ;;
esac

say() { printf '== [%4ds] %s\n' "$SECONDS" "$*"; }

die() {
  say "FAILED: $*"
  echo "$passed passed, $((failed + 1)) failed, $skipped skipped"
  exit 1
}

# Runs a suite, with its output in NAME.log, its exit status in NAME.status, its times
# in NAME.time.
run() { # name command...
  tools/measure.py "$logs/$1.time" "${@:2}" >"$logs/$1.log" 2>&1
  echo $? >"$logs/$1.status"
}

# Prints the exit status of a suite that has run.
status_of() { cat "$logs/$1.status" 2>/dev/null || echo 1; }

# Prints the first number in the last match in a suite's log.
number() { # suite regex
  grep -oE "$2" "$logs/$1.log" | tail -1 | grep -oE '[0-9]+' | head -1 || true
}

# Counts the matching lines of a suite's log.
lines() { grep -cE "$2" "$logs/$1.log"; }

# Shows the ten slowest tests of a suite of pytest's, lit's or ctest's: seconds, name.
slowest() { # suite
  sed -nE 's/^ *([0-9]+\.[0-9]+)s (call|setup|teardown) +(.*)/\1 \3 (\2)/p
    s/^ *([0-9]+\.[0-9]+)s: .* :: (.*)/\1 \2/p
    s/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9]+\.[0-9]+) sec.*/\2 \1/p' \
    "$logs/$1.log" | sort -rn | head | sed 's/^/          /'
}

# Adds a suite's counts to the sum, and shows the end of its log if it has failed. A
# suite without tests counts as a failure.
count() { # suite passed failed skipped
  local status p=${2:-0} f=${3:-0} s=${4:-0} left_out
  status=$(status_of "$1")
  if ((status != 0 && f == 0)); then f=1; fi
  if ((p + f == 0)); then f=1; fi
  ((f == 0)) || grep -vE '^PASS: ' "$logs/$1.log" | tail -80
  left_out=$(number "$1" '[0-9]+ deselected')
  say "$1: $p passed, $f failed, $s skipped${left_out:+, $left_out deselected}" \
    "($(cat "$logs/$1.time"))"
  slowest "$1"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# Count suites that end in "N passed, N failed, N skipped", in the order of their tool;
# that print PASS and FAIL; that are one test; that check "N of N files".
count_passed() {
  count "$1" "$(number "$1" '[0-9]+ passed')" \
    "$(number "$1" '[0-9]+ (failed|errors?)(,| in |$)')" \
    "$(number "$1" '[0-9]+ skipped')"
}
count_lines() { count "$1" "$(lines "$1" '^PASS')" "$(lines "$1" '^FAIL')"; }
count_one() { count "$1" $(($(status_of "$1") == 0)); }
count_files() {
  local good total
  good=$(number "$1" '[0-9]+ of [0-9]+ files')
  total=$(number "$1" 'of [0-9]+ files')
  count "$1" "${good:-0}" $((${total:-0} - ${good:-0}))
}

say "installing missing packages"
tools/install-packages.sh --tests || die "packages could not be installed"

mkdir -p "$logs"
rm -f "$logs"/*.{status,time}
say "preparing the test Python, beside what follows (first time: minutes and 6.4 GB)"
run python-env tools/python-env.sh &
environment=$!

say "finding a CUDA toolkit (if there is none: about 30 s and 1.1 GB, once)"
cuda=$(tools/cuda-toolkit.sh) || die "the CUDA toolkit could not be made"

# Somebody may be working in a directory that is configured already.
options=(-DDDPHOOK_CUDA=ON -DDDPHOOK_CUDA_ROOT="$cuda" -DDDPHOOK_BUILD_FUZZERS=ON
  -DDDPHOOK_INSTRUCTION_SETS=ALL -DDDPHOOK_WARNINGS_AS_ERRORS=ON)
unity=()
[[ -f $build/build.ninja ]] || unity=(-DDDPHOOK_UNITY_BUILD=ON)

configure() { # arguments of cmake
  local log
  log=$(cmake --preset release "${options[@]}" "$@" 2>&1) || { echo "$log"; die "cmake"; }
}

say "configuring (preset release, CUDA in $cuda)"
configure "${unity[@]}"

say "building (about 8 minutes on 2 cores, seconds when nothing changed)"
ninja -C "$build" >"$logs/build.log" 2>&1 ||
  { tail -60 "$logs/build.log"; die "the build; whole log: $logs/build.log"; }

wait $environment
(($(status_of python-env) == 0)) ||
  { tail -40 "$logs/python-env.log"; die "the test Python could not be made"; }
python=$(tail -1 "$logs/python-env.log")
export DDPHOOK_TEST_PYTHON=$python

# Most tests wait for ranks or deadlines most of the time. Suites that always compute use
# the idle processors at a lower priority.
computing_suites() {
  renice -n 4 "$BASHPID" >/dev/null
  run format tools/check-format.sh
  run lint tools/check-python.sh
  run docs tools/generate-docs.sh --check "$build"
  # Its list of commands has each file by itself, and reads every header.
  cmake --preset release "${options[@]}" -B "$build/tidy" -DDDPHOOK_UNITY_BUILD=OFF \
    -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >"$logs/tidy-configure.log" 2>&1
  run tidy tools/check-tidy.sh --build "$build/tidy" --below runtime ${small:+--every 20}
  for target in pipeline readers store; do
    run fuzz-$target tools/fuzz-libfuzzer.sh --build "$build" $target 0
  done
  run consumer test/consumer/run.sh "$build" "${small[@]}"
  for kind in address thread; do
    run sanitize-$kind tools/sanitize.sh $kind $short
  done
  if ((${#small[@]} == 0)); then
    run compilers test/consumer/compilers.sh "$build"
    run aarch64 tools/test-aarch64.sh
  fi
}
say "beside what follows: format, lint, docs, tidy, fuzz, consumer, sanitize"
computing_suites &
computing=$!

pytest_suite() { # name arguments of pytest...
  run "$1" env DDPHOOK_OPT="$build/bin/ddphook-opt" DDPHOOK_RUN="$build/bin/ddphook-run" \
    DDPHOOK_CC="$build/bin/ddphook-cc" DDPHOOK_EXEC="$build/bin/ddphook-exec" \
    "$python" -m pytest -q -rs --durations=10 -p no:cacheprovider \
    -o tmp_path_retention_policy=failed "${small[@]}" "${@:2}"
}
say "pytest: python, which takes longest"
compiling=(test/python/test_{compile{,_random,_scatters},device_compile,dynamic,models,orders,requests}.py)
DDPHOOK_LIBRARY_DIR=$build/lib pytest_suite python test/python "${compiling[@]/#/--ignore=}" &
pytest_suites=($!)

say "ctest: the runtime, and the helpers of the compiler; beside it lit, the compiler's tests"
run ctest ctest --test-dir "$build" -j$((2 * jobs)) --timeout 300 --output-on-failure \
  ${small:+-LE full} &
ctest=$!
run lit "${DDPHOOK_LIT:-/usr/lib/llvm-22/bin/lit}" -v --time-tests -j"$jobs" \
  --param all_tools=1 "$build/test"
lit_number() {
  sed -nE "s/^ *($1) *: *([0-9]+).*/\2/p" "$logs/lit.log" | awk '{s+=$1} END {print s+0}'
}
count lit "$(lit_number 'Passed|Expectedly Failed')" \
  "$(lit_number 'Failed|Timed Out|Unresolved|Unexpectedly Passed')" \
  "$(lit_number 'Skipped|Unsupported|Excluded')"

wait $ctest
total=$(number ctest 'out of [0-9]+')
bad=$(number ctest '[0-9]+ tests? failed out of')
left=$(lines ctest '\*\*\*(Skipped|Not Run)')
count ctest $((${total:-0} - ${bad:-0} - left)) "${bad:-0}" "$left"

say "pytest: parity, powersgd, programs, compile, hooks on two devices; all at once"
powersgd=(test/parity/test_{powersgd,powersgd_oracle,numerics,grouping,carry_over}.py)
pytest_suite powersgd "${powersgd[@]}" &
pytest_suites+=($!)
pytest_suite parity test/parity "${powersgd[@]/#/--ignore=}" &
pytest_suites+=($!)
pytest_suite programs test/test_small_tier.py test/errors test/mutants \
  test/Integration test/fuzz test/frontends &
pytest_suites+=($!)
DDPHOOK_LIBRARY_DIR=$build/lib pytest_suite compile "${compiling[@]}" &
pytest_suites+=($!)
# The guarded device finds the same faults with any number of ranks.
worlds=(${small:+--worlds=2})
for device in guarded cuda_emulated; do
  LD_LIBRARY_PATH=$build/bin pytest_suite $device test/gpu \
    --device=$device --modules="$build/device-modules" "${worlds[@]}" &
  pytest_suites+=($!)
  worlds=()
done
wait "${pytest_suites[@]}"
for suite in parity powersgd programs python compile guarded cuda_emulated; do
  count_passed $suite
done

if [[ -z ${small:-} ]]; then
  say "versions: PyTorch from the oldest to the newest (first time: minutes and 6 GB)"
  DDPHOOK_LIBRARY_DIR=$build/lib run versions test/python/versions.sh
  count_passed versions
fi

say "the suites beside them"
wait $computing
count_files format
count_files lint
count_lines docs
count_files tidy
for target in pipeline readers store; do count_one fuzz-$target; done
for kind in address thread; do count_passed sanitize-$kind; done
count_lines consumer
if ((${#small[@]} == 0)); then
  count_lines compilers
  count_passed aarch64
fi

say "all logs: $logs"
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
