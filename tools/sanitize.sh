#!/usr/bin/env bash
# sanitize.sh address|thread [--short|--small]: builds with sanitizers and runs the tests.
#
#   address   AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer: the
#             compiler's tools under lit, the runtime under ctest, and the fuzzers
#             over their corpora
#   thread    ThreadSanitizer: the runtime under ctest
#   --short   for tools/test.sh --all: the runtime's core, its host backend, its CUDA
#             backend on the emulated device and its readers, built alone, with
#             their tests only; omits large arrays through shared memory and most of
#             the kernels' tests, which take longest
#   --small   for tools/test.sh: of these, with "address" the tests of states,
#             checkpoints, the store and the host backend, which are not optimized; with
#             "thread" those of queues, pools, jobs and the store, which share memory.
#             Omits the longest tests, of which shorter ones do the same: large all-reduces,
#             encoded ones in two of four ways, and PowerSGD's threads on one matrix in types
#             other than f32
#
# The presets "address" and "thread" build into build-address and build-thread, the
# short and small forms into build-address-short and build-thread-short. The CUDA backend is
# built for the emulated device, which needs no toolkit; sanitizers do not know
# device code. Counts each test of every program under ctest. The last line is
# "N passed, N failed, N skipped"; logs are in the build directory.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kind=${1:-} form=${2:-}
if [[ ! $kind =~ ^(address|thread)$ || ! $form =~ ^(--short|--small)?$ ]]; then
  echo "usage: sanitize.sh address|thread [--short|--small]" >&2
  exit 2
fi
build=$root/build-$kind${form:+-short}
jobs=$(nproc)
passed=0 failed=0 skipped=0
cd "$root"

# An allocation that is too large fails as it does without a sanitizer.
memory=allocator_may_return_null=1
# LLVM is not instrumented: its headers poison unused memory of containers and
# allocators in our code, but its library does not unpoison it.
export ASAN_OPTIONS=detect_container_overflow=0:allow_user_poisoning=0:$memory
export UBSAN_OPTIONS=print_stacktrace=1
# Debian 13's MPI loads UCX, which starts a thread and does not join it.
export UCX_VFS_ENABLE=n
# Tests fork while other threads run. For libraries without instrumentation, above
# all Gloo and the C++ library, ThreadSanitizer tracks locks and waits but not memory
# accesses: it cannot know which of their atomic variables order these. A race ends
# its process at once, because nobody checks the exit status of ranks that a test has
# forked.
export TSAN_OPTIONS=die_after_fork=0:ignore_noninstrumented_modules=1:halt_on_error=1:$memory

die() {
  echo "FAILED: $*"
  echo "$passed passed, $((failed + 1)) failed, $skipped skipped"
  exit 1
}

configure() { # arguments of cmake
  local log
  log=$(cmake "$@" 2>&1) || { echo "$log"; die "cmake"; }
}
compile() { # targets
  ninja -C "$build" "$@" >"$build/build.log" 2>&1 ||
    { tail -60 "$build/build.log"; die "the build"; }
}

# Adds a log's numbers; no test at all is a failure.
count() { # suite passed failed skipped exit-status log
  local p=$2 f=$3 s=$4
  if (($5 != 0 && f == 0)) || ((p + f == 0)); then f=$((f + 1)); fi
  if ((f > 0)); then tail -80 "$6"; fi
  echo "$1: $p passed, $f failed, $s skipped"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

run_ctest() { # arguments of ctest
  local log=$build/ctest.log status total bad left
  ctest --test-dir "$build" -j"$jobs" --timeout 7200 --output-on-failure "$@" \
    >"$log" 2>&1
  status=$?
  total=$(sed -nE 's/.* out of ([0-9]+)$/\1/p' "$log" | tail -1)
  bad=$(sed -nE 's/.* ([0-9]+) tests? failed out of .*/\1/p' "$log" | tail -1)
  left=$(grep -cE '\*\*\*(Skipped|Not Run)' "$log")
  # Lists the tests in each program.
  awk '/^[0-9]+\/[0-9]+ Test: / { name = $3 }
       /^\[  PASSED  \] / { print "  " name ": " $4 " passed" }
       /^\[  (SKIPPED|FAILED )/ && /\] [0-9]+ tests?/ {
         print "  " name ": " $4 " " tolower($2) }' \
    "$build/Testing/Temporary/LastTest.log"
  count ctest $((${total:-0} - ${bad:-0} - left)) "${bad:-0}" "$left" $status "$log"
}

run_lit() {
  local log=$build/lit.log status
  lit_number() { sed -nE "s/^ *($1) *: *([0-9]+).*/\2/p" "$log" | awk '{s+=$1} END {print s+0}'; }
  # Programs without a sanitizer cannot load or link libraries with one.
  "${DDPHOOK_LIT:-/usr/lib/llvm-22/bin/lit}" -v -j"$jobs" --param all_tools=1 "$build/test" \
    --filter-out 'Plugin/|CAPI/|Docs/(arrays|frontends)|Tools/reduce|cc-link|bfloat16-exec|linear\.test|fortran|tensor-pipeline' >"$log" 2>&1
  status=$?
  count lit "$(lit_number 'Passed')" "$(lit_number 'Failed|Timed Out|Unresolved')" \
    "$(lit_number 'Skipped|Unsupported|Excluded')" $status "$log"
}

if [[ -n $form ]]; then
  tests=(bootstrap c_api checkpoint comm_thread host_backend host_memory host_threads
    job kernels plan shm state store thread_pool cuda_fault)
  emulated=(cuda_backend cuda_caller cuda_capture cuda_parts cuda_random)
  suites=(conformance collectives)
  if [[ $form == --small ]]; then
    tests=(checkpoint host_backend state store)
    if [[ $kind == thread ]]; then
      tests=(comm_thread host_threads job shm store thread_pool)
    fi
    emulated=() suites=()
  fi
  targets=()
  for name in "${tests[@]}" "${emulated[@]}" "${suites[@]/#/backend_}"; do
    targets+=("ddphook-${name}_test")
  done
  fuzzers=OFF optimization=-O1
  if [[ $kind$form == address--small ]]; then
    optimization=-O0
  elif [[ $kind == address ]]; then
    fuzzers=ON
    targets+=(ddphook-readers-fuzzer ddphook-store-fuzzer)
  fi
  configure -S runtime -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22 \
    -DCMAKE_CXX_FLAGS_DEBUG="$optimization -gline-tables-only" -DDDPHOOK_CUDA=OFF \
    -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld-22 -DCMAKE_MODULE_LINKER_FLAGS=-fuse-ld=lld-22 \
    -DDDPHOOK_SANITIZE="$kind" -DDDPHOOK_BUILD_FUZZERS=$fuzzers \
    -DDDPHOOK_BUILD_TESTS=ON -DDDPHOOK_WARNINGS_AS_ERRORS=ON \
    -DDDPHOOK_INSTRUCTION_SETS=LEAST -DDDPHOOK_UNITY_BUILD=ON
  compile "${targets[@]}"
  any() { (IFS='|'; echo "($*)"); }
  names="$(any "${tests[@]}")_test|$(any "${emulated[@]}")_test-cuda_emulated"
  names+="|backend_$(any "${suites[@]}")-cuda_emulated"
  omitted='*ShmBits.equalGlooMedium*:*ShmBigBits.*'
  if [[ $form == --small ]]; then
    omitted+=':*.LargeAllReduceBits/*:*.EncodedAllReduceBits/*_never'
    omitted+=':*/HostThreads.oneMatrix/*16'
    omitted+=':*/HostThreads.oneMatrix/f64'
  fi
  GTEST_FILTER="-$omitted" run_ctest -R "^runtime-($names)$"
else
  # Somebody may be working in a directory that is configured already.
  unity=()
  [[ -f $build/build.ninja ]] || unity=(-DDDPHOOK_UNITY_BUILD=ON)
  configure --preset "$kind" "${unity[@]}"
  what=all tests=()
  if [[ $kind == thread ]]; then
    what=runtime/all tests=(-R '^(runtime-|emulated-cuda-|exec\.)')
  fi
  compile "$what"
  if [[ $kind == address ]]; then run_lit; fi
  run_ctest "${tests[@]}"
fi
if [[ $kind == address ]]; then
  for target in readers store pipeline; do
    if [[ ! -x $build/bin/ddphook-$target-fuzzer ]]; then continue; fi
    tools/fuzz-libfuzzer.sh --build "$build" $target 0 >"$build/fuzz-$target.log" 2>&1
    status=$?
    count "fuzz-$target" $((status == 0)) $((status != 0)) 0 $status \
      "$build/fuzz-$target.log"
  done
fi
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
