#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Cross-builds ddphook for aarch64, and runs its tests under emulation.
#
#     tools/test-aarch64.sh [STAGE…]
#
# sysroot  downloads arm64 packages of this machine's Debian into a directory
# build    builds everything with clang, in build-aarch64 (preset "aarch64")
# wheel    makes the package's wheel, in build-aarch64/wheels
# ctest    the runtime, its kernels and transports, without the emulated CUDA device
# lit      the compiler, without the tests that link or load code on this machine
# parity   the bits of hooks beside PyTorch's on this machine: a part of the small tier
# sve      the kernels from g++, which also compiles for SVE, at three vector lengths
#
# Without arguments it runs all. It needs the package qemu-user-static, and for "sve"
# g++-aarch64-linux-gnu; neither root nor packages of a foreign architecture on this
# machine. The last line is "N passed, N failed, N skipped".
#
# DDPHOOK_SYSROOT  the directory of the packages (2 GB), build-aarch64/sysroot if unset
# DDPHOOK_JOBS     how many processes build and test, one per processor if unset
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$PWD/build-aarch64
export DDPHOOK_SYSROOT=${DDPHOOK_SYSROOT:-$build/sysroot}
# Where qemu finds the loader and the libraries of the programs that it runs.
export QEMU_LD_PREFIX=$DDPHOOK_SYSROOT
jobs=${DDPHOOK_JOBS:-$(nproc)}
passed=0 failed=0 skipped=0

die() {
  echo "error: $1" >&2
  exit 2
}

# Programs under emulation start others, so the kernel has to run them. If it does not
# know how, this script continues in namespaces where it does (Linux 6.7).
emulator=$(command -v qemu-aarch64-static) || die 'expected the package qemu-user-static'
if [[ ${1-} == --registered ]]; then
  shift
  binfmt=$(mktemp -d)
  mount -t binfmt_misc binfmt_misc "$binfmt"
  printf '%s%s:%s:PF' ':qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00' \
    ':\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff' \
    "$emulator" >"$binfmt/register"
elif [[ ! -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]]; then
  exec unshare --user --map-root-user --mount "$0" --registered "$@"
fi

sysroot() {
  [[ ! -f $DDPHOOK_SYSROOT/.complete ]] || return 0
  local state=$DDPHOOK_SYSROOT/apt mirror=http://deb.debian.org packages package link target
  local codename key=/usr/share/keyrings/debian-archive-keyring.gpg
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  mkdir -p "$state"/{lists,archives}/partial "$DDPHOOK_SYSROOT"/usr/{bin,lib,sbin}
  : >"$state/status"
  printf "deb [signed-by=$key] $mirror/%s main\n" "debian $codename" \
    "debian-security $codename-security" >"$state/sources.list"
  cat >"$state/apt.conf" <<EOF
Dir::State::lists "$state/lists";
Dir::State::status "$state/status";
Dir::State::extended_states "$state/extended_states";
Dir::Cache "$state";
Dir::Cache::archives "$state/archives";
Dir::Etc::sourcelist "$state/sources.list";
Dir::Etc::sourceparts "/dev/null";
APT::Architecture "arm64";
APT::Architectures "arm64";
APT::Install-Recommends "false";
APT::Sandbox::User "";
EOF
  # A build links and includes these. It runs this machine's programs.
  packages=$(grep -E '^(lib|llvm-22-dev|nlohmann)' tools/packages.txt)
  APT_CONFIG=$state/apt.conf apt-get -qq update
  # shellcheck disable=SC2086
  APT_CONFIG=$state/apt.conf apt-get -qq install -y --download-only $packages \
    libc6-dev "libstdc++-$(g++ -dumpversion)-dev"
  for link in bin lib sbin; do ln -sfn usr/$link "$DDPHOOK_SYSROOT/$link"; done
  for package in "$state"/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" |
      tar -x -C "$DDPHOOK_SYSROOT" --no-same-owner --keep-directory-symlink
  done
  # Links that begin at the root must end in this directory.
  find "$DDPHOOK_SYSROOT/usr/lib" -type l -lname '/*' | while read -r link; do
    target=$DDPHOOK_SYSROOT$(readlink "$link")
    [[ ! -e $target ]] || ln -sfnr "$target" "$link"
  done
  # So must paths that Gloo and LLVM name.
  sed -i -E "s|([\";])/usr/lib/|\1$DDPHOOK_SYSROOT/usr/lib/|g" \
    "$DDPHOOK_SYSROOT"/usr/{share/cmake/Gloo/GlooTargets-*,lib/llvm-22/lib/cmake/llvm/LLVMExports}.cmake
  rm -rf "$DDPHOOK_SYSROOT/usr/lib/llvm-22/bin" "$state"
  ln -s /usr/lib/llvm-22/bin "$DDPHOOK_SYSROOT/usr/lib/llvm-22/bin"
  touch "$DDPHOOK_SYSROOT/.complete"
}

build() {
  cmake --preset aarch64 -DDDPHOOK_UNITY_BUILD=ON -DDDPHOOK_CUDA=OFF \
    -DDDPHOOK_INSTRUCTION_SETS=ALL
  ninja -C "$build" -j"$jobs"
}

wheel() { _PYTHON_HOST_PLATFORM=linux-aarch64 tools/python/build-wheel.sh "$build"{,/wheels}; }

# Prints the sum of the numbers in what an expression matches in a log.
sum() { # log expression
  { grep -oE "$2" "$1" || true; } | grep -oE '[0-9]+' | awk '{s += $1} END {print s + 0}'
}

# Runs a suite. The runtime warns about variables of its name that it does not know.
# The emulator has no limit of memory that a test could reach.
tested() {
  env -u DDPHOOK_SYSROOT -u DDPHOOK_JOBS GTEST_FILTER='-*WithoutMemory*' "$@" 2>&1
}

# Adds a suite's counts to the sum. A suite without tests counts as a failure.
count() { # suite passed failed skipped
  local f=$3
  (($2 + f > 0)) || f=1
  echo "== $1: $2 passed, $f failed, $4 skipped"
  passed=$((passed + $2)) failed=$((failed + f)) skipped=$((skipped + $4))
}

run_ctest() { # suite directory regex
  local log=$2/$1.log total bad left
  # The emulator lacks TCP_INFO, which tells a lost machine from a slow one.
  tested ctest --test-dir "$2" -j"$jobs" --timeout 1800 --output-on-failure -LE full \
    -R "$3" -E 'lost_machine_test|cuda|emulated' | tee "$log" || true
  total=$(sum "$log" 'out of [0-9]+$')
  bad=$(sum "$log" '[0-9]+ tests failed out')
  left=$(grep -cE '\*\*\*(Skipped|Not Run)' "$log" || true)
  count "$1" $((total - bad - left)) "$bad" "$left"
}

run_lit() {
  local log=$build/lit.log
  # Other tests link programs, or load libraries into this machine's mlir-opt or Python.
  local other='plain-loops-exec|expand-hooks-topk|ddp-tensor-pipeline'
  tested /usr/lib/llvm-22/bin/lit -v -j"$jobs" --filter-out "$other" \
    "$build"/test/{CodeGen,Conversion,Dialect,Pipelines,Report} | tee "$log" || true
  count lit "$(sum "$log" ' (Passed|Expectedly Failed) *: *[0-9]+')" \
    "$(sum "$log" ' (Failed|Timed Out|Unresolved|Unexpectedly Passed) *: *[0-9]+')" \
    "$(sum "$log" ' (Skipped|Unsupported|Excluded) *: *[0-9]+')"
}

run_parity() {
  local log=$build/parity.log python suites
  suites=(test/parity/test_{parity,quantization,rounding,exchanges,topk}.py
    test/parity/test_{sharded_update,resume,assigned_powersgd}.py)
  python=$(tools/python-env.sh | tail -1)
  tested DDPHOOK_OPT="$build/bin/ddphook-opt" DDPHOOK_RUN="$build/bin/ddphook-run" \
    DDPHOOK_CC="$build/bin/ddphook-cc" DDPHOOK_EXEC="$build/bin/ddphook-exec" \
    "$python" -m pytest -q -rs -p no:cacheprovider --small "${suites[@]}" |
    tee "$log" || true
  count parity "$(sum "$log" '[0-9]+ passed')" \
    "$(sum "$log" '[0-9]+ (failed|errors?)')" "$(sum "$log" '[0-9]+ skipped')"
}

# Highway compiles for SVE if the compiler is g++: clang needs a newer Highway.
run_sve() {
  local bytes
  cmake -S runtime -B "$build/gcc" -G Ninja -DDDPHOOK_BUILD_TESTS=ON \
    -DDDPHOOK_CUDA=OFF -DDDPHOOK_UNITY_BUILD=ON \
    -DCMAKE_TOOLCHAIN_FILE="$PWD/tools/cmake/aarch64-linux-gnu.cmake" \
    -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++
  ninja -C "$build/gcc" -j"$jobs" ddphook-{kernels,encode}_test
  for bytes in 16 32 64; do
    QEMU_CPU=max,sve-default-vector-length=$bytes \
      run_ctest "sve-$((8 * bytes))" "$build/gcc" 'runtime-(kernels|encode)_test$'
  done
}

(($# > 0)) || set -- sysroot build wheel ctest lit parity sve
for stage; do
  echo "== $stage"
  case $stage in
  sysroot | build | wheel) $stage ;;
  ctest) run_ctest ctest "$build" '^runtime-' ;;
  lit | parity | sve) "run_$stage" ;;
  *) die "expected sysroot, build, wheel, ctest, lit, parity or sve, but got '$stage'" ;;
  esac
done
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
