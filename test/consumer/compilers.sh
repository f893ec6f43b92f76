#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds the runtime alone with every supported compiler in the archive of this Debian,
# installs it, and links it with a C program that averages arrays on two ranks:
#
#     test/consumer/compilers.sh BUILD_DIR [COMPILER…]
#
# ddphook-reduce of BUILD_DIR writes that program. COMPILER is a package, such as g++-11
# or clang-14. Missing compilers are installed. An older compiler, CMake or MLIR than
# supported must be refused in words that say what is needed.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
tools=$(cd "$1" && pwd)/bin
# ccache finds objects again in directories with the same names.
work=${tools%/bin}/compilers
requirements=$root/runtime/cmake/DDPHookRequirements.cmake
compilers=("${@:2}")
rm -rf "$work" && mkdir -p "$work/average" || exit 1
status=0

try() { # name command…
  if "${@:2}" >"$work/log" 2>&1; then
    echo "PASS $1"
  else
    tail -40 "$work/log"
    echo "FAIL $1"
    status=1
  fi
}

least() { # GNU or Clang
  sed -nE "s/^set\(ddphook_least_$1 ([0-9]+)\)/\1/p" "$requirements"
}

supported() {
  apt-cache pkgnames | sort -V | awk -F- -v gnu="$(least GNU)" -v clang="$(least Clang)" \
    '/^g\+\+-[0-9]+$/ && $2 >= gnu || /^clang-[0-9]+$/ && $2 >= clang'
}

# Compiling for all instruction sets takes long: only the newest of a family does.
instruction_sets() { # package
  local newest
  newest=$(printf '%s\n' "${compilers[@]}" | grep -F "${1%-*}-" | tail -1)
  if [[ $1 == "$newest" ]]; then echo ALL; else echo LEAST; fi
}

build() { # package
  local cc=${1/g++/gcc} build=$work/$1
  # The C++ library of Debian 13's g++-13 is older than the one that its Gloo needs.
  local flags=-Wl,--allow-shlib-undefined
  cmake -S "$root/runtime" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DDDPHOOK_CUDA=OFF -DDDPHOOK_UNITY_BUILD=ON -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_CXX_COMPILER="${1/clang/clang++}" \
    -DCMAKE_EXE_LINKER_FLAGS=$flags -DCMAKE_SHARED_LINKER_FLAGS=$flags \
    -DDDPHOOK_INSTRUCTION_SETS="$(instruction_sets "$1")" &&
    cmake --build "$build" && cmake --install "$build" --prefix "$build/prefix" &&
    "$cc" "$work/average/average_main.c" "$work/average/average.o" -o "$build/average" \
      -I"$build/prefix/include" -L"$build/prefix/lib" -lddphook_rt \
      -Wl,-rpath,"$build/prefix/lib" -lm &&
    python3 "$root/test/Integration/Inputs/launch.py" 2 "$build/average" |
    tee "$build/output" &&
    (($(grep -cE '^rank [01] of 2: relative error [0-9.]+e-0[78]$' "$build/output") == 2)) &&
    rm -rf "$build"
}

# Succeeds if a command fails with a message that has the text.
refused() { # text command…
  ! "${@:2}" >"$work/refused" 2>&1 && tr -s ' \n' ' ' <"$work/refused" | grep -F "$1"
}

old=$(($(least GNU) - 1))
printf '#!/bin/sh\nexec g++ -U__GNUC__ -D__GNUC__=%d "$@"\n' $old >"$work/old-g++"
chmod +x "$work/old-g++"
mkdir "$work/mlir"
printf 'set(LLVM_VERSION_MAJOR 21)\nset(LLVM_PACKAGE_VERSION 21.1.0)\n' \
  >"$work/mlir/MLIRConfig.cmake"
for source in runtime .; do
  try "old-compiler-$source" refused "ddphook needs g++ $(least GNU) or clang $(least Clang) or later, but found GNU $old." \
    cmake -S "$root/$source" -B "$work/refused-$source/g++" -DCMAKE_CXX_COMPILER="$work/old-g++"
  printf 'set(CMAKE_VERSION 3.18.4)\ninclude(%s)\n' "$root/$source/CMakeLists.txt" >"$work/old.cmake"
  try "old-cmake-$source" refused 'ddphook needs CMake 3.20 or later, but found 3.18.4' \
    cmake -P "$work/old.cmake"
done
try old-mlir refused "expected MLIR 22, but got 21.1.0 in $work/mlir" \
  cmake -S "$root" -B "$work/refused-mlir" -DMLIR_DIR="$work/mlir"

((${#compilers[@]})) || mapfile -t compilers < <(supported)
try packages "$root/tools/install-packages.sh" "${compilers[@]:?no compiler was found}"
try program env -C "$work/average" "$tools/ddphook-reduce" --shapes=64x64,64 --name=average
for compiler in "${compilers[@]}"; do
  try "$compiler" build "$compiler"
done
exit $status
