#!/usr/bin/env bash
# Builds and runs the consumer projects against the package: in ddphook's build
# tree, in an install tree, and (the runtime) in an install tree of runtime/
# alone, which must not need MLIR. And checks that ddphook can be built without
# lib/CodeGen.
#
#   test/consumer/run.sh BUILD_DIR
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$(cd "$1" && pwd)
work=$build/consumer
rm -rf "$work"
mkdir -p "$work"
status=0

# compilers: what ddphook itself was built with
compilers=(-DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22
           -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld-22 -DCMAKE_BUILD_TYPE=Release)

try() { # name command…
  local name=$1
  shift
  if "$@" >"$work/$name.log" 2>&1; then
    echo "PASS $name"
  else
    cat "$work/$name.log"
    echo "FAIL $name"
    status=1
  fi
}

consume() { # project package-dir binary-dir cmake-arguments…
  local project=$1 package=$2 binary=$3
  shift 3
  cmake -G Ninja -S "$here/$project" -B "$binary" "${compilers[@]}" \
    -DDDPHook_DIR="$package" "$@" &&
    ninja -C "$binary" && "$binary/$project-consumer"
}

install_runtime_alone() {
  cmake -G Ninja -S "$root/runtime" -B "$work/runtime-build" "${compilers[@]}" \
    -DDDPHOOK_BUILD_TESTS=OFF -DCMAKE_INSTALL_PREFIX="$work/runtime-prefix" \
    -DCMAKE_DISABLE_FIND_PACKAGE_MLIR=ON &&
    ninja -C "$work/runtime-build" install &&
    "$work/runtime-prefix/bin/ddphook-exec" --help
}

# Nothing is built: a configured build names all files and libraries that it needs.
without_codegen() {
  local bridge=lib/Compiler/CodeGenKernels.cpp users
  users=$(cd "$root" && grep -rl --include='*.h' --include='*.cpp' \
    '#include "ddphook/CodeGen/' include lib runtime test tools |
    grep -vE "^(include/ddphook|lib)/CodeGen/|^$bridge$")
  if [[ -n $users ]]; then
    echo "expected $bridge alone to include headers of lib/CodeGen, but so do:"
    echo "$users"
    return 1
  fi
  cmake -G Ninja -S "$root" -B "$work/without-codegen" "${compilers[@]}" "$mlir" \
    -DDDPHOOK_CODEGEN=OFF -DDDPHOOK_CUDA=OFF || return 1
  if { ninja -C "$work/without-codegen" -t inputs all
    ninja -C "$work/without-codegen" -t commands all; } |
    grep -E "(lib|ddphook)/CodeGen/|DDPHookCodeGen|$bridge"; then
    echo "expected a build without lib/CodeGen not to need it, but got these lines"
    return 1
  fi
}

mlir=-DMLIR_DIR=/usr/lib/llvm-22/lib/cmake/mlir
package=lib/cmake/DDPHook
try build-tree-compiler consume compiler "$build/$package" "$work/a" "$mlir"
try build-tree-runtime consume runtime "$build/$package" "$work/b"
try install cmake --install "$build" --prefix "$work/prefix"
try install-tree-compiler consume compiler "$work/prefix/$package" "$work/c" "$mlir"
try install-tree-runtime consume runtime "$work/prefix/$package" "$work/d"
try runtime-alone install_runtime_alone
try runtime-alone-consumer consume runtime "$work/runtime-prefix/$package" "$work/e"
try without-codegen without_codegen
exit $status
