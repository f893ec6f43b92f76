#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# usage: gpu-bundle.sh [--without-compiler] BUILD OUT.tar.xz [argument of pytest's…]
#
# Packs everything that tools/gpu-test.sh needs on a machine with a GPU but without MLIR
# or a network: the tests; the modules of test/gpu, compiled for CUDA by
# BUILD/bin/ddphook-cc; the programs of BUILD that need the GPU, with kernels for all of
# BUILD's GPU architectures; the libraries that they need, from this machine's packages;
# and, for hooks in PyTorch, the compiler as a library with LLVM inside. On that machine:
#
#   tar xf OUT.tar.xz && ddphook-gpu/tools/gpu-test.sh
#
# The programs start if the C and C++ libraries are no older than here, and CUDA has
# the same major version.
#
# The suffix of OUT selects the compression. Arguments of pytest, such as -k, select
# the tests of test/gpu whose modules are packed.
#
# The sources are those of the current commit with uncommitted changes of tracked
# files.
set -euo pipefail

compiler=1
if [[ ${1:-} == --without-compiler ]]; then
  compiler=
  shift
fi
if [[ $# -lt 2 || $1 == -* ]]; then
  sed -n '4p' "$0" | cut -c3- >&2
  exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "$1" && pwd)
out=$(realpath "$2")
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bundle=$work/ddphook-gpu
mkdir "$bundle"
cd "$root"

say() { echo "== $*" >&2; }

python=$(tools/python-env.sh)

say "sources"
git ls-files -z -- LICENSE\* runtime/test/ports.py test/gpu test/parity \
  test/python/{models,ranks,staged}.py test/requirements.txt tools/gpu-test.sh \
  tools/gpu-report.py tools/python/src |
  while IFS= read -r -d '' file; do
    if [[ -e $file ]]; then cp --parents "$file" "$bundle"; fi
  done
{
  echo "commit $(git rev-parse HEAD)"
  git diff --quiet HEAD || echo "with changes"
  echo "packed $(date -u +%Y-%m-%dT%H:%MZ)"
  "$build/bin/ddphook-cc" --version | head -n 1 | sed 's/^/compiler /'
} >"$bundle/BUNDLE"

say "modules (a minute or two)"
PYTHONDONTWRITEBYTECODE=1 DDPHOOK_CC=$build/bin/ddphook-cc \
  "$python" -m pytest -p no:cacheprovider -q test/gpu "$@" \
  --record="$bundle/modules" >"$work/record.log" 2>&1 ||
  { cat "$work/record.log"; echo "error: modules could not be compiled" >&2; exit 1; }
count=$(find "$bundle/modules" -name '*.so' | wc -l)
if [[ $count == 0 ]]; then
  echo "error: test/gpu recorded no modules" >&2
  exit 1
fi
rm -f "$bundle/modules/COMPILER"
touch "$bundle/modules/COMPLETE"
echo "modules $count" >>"$bundle/BUNDLE"

say "programs"
# Strips debug information.
program() { # file directory
  mkdir -p "$bundle/built/$2"
  strip -o "$bundle/built/$2/$(basename "$1")" "$1"
}
if [[ ! -e $build/lib/libddphook_backend_cuda.so ]]; then
  echo "error: expected a build with the CUDA backend, DDPHOOK_CUDA=ON" >&2
  exit 1
fi
mkdir "$bundle/built"
ctest --test-dir "$build" -L gpu --show-only=json-v1 |
  "$python" tools/gpu-report.py --tests >"$bundle/built/gpu-tests.txt"
for name in $(cut -f2 "$bundle/built/gpu-tests.txt" | sort -u) ddphook-{exec,bench}; do
  program "$build/bin/$name" bin
done
program "$build/lib/libddphook_backend_cuda.so" lib
program "$build/lib/libddphook_backend_program.so" lib
program "$build"/lib/libddphook_rt.so.?.? lib
mkdir -p "$bundle/built/share/ddphook/bench"
cp tools/ddphook-bench/torch_hooks.py "$bundle/built/share/ddphook/bench"

say "libraries"
mkdir "$bundle/deps" "$bundle/compiler"
libraries=("$build"/lib/libddphook_rt.so.?.?)
if [[ $compiler ]]; then
  cmake --build "$build" --target DDPHookCAPIStandalone >"$work/compiler.log" ||
    { cat "$work/compiler.log"; exit 1; }
  cp "$build"/lib/standalone/libDDPHookCAPI.so.* "$bundle/compiler"
  libraries+=("$bundle"/compiler/*)
else
  touch "$bundle/compiler/LEFT_OUT"
fi
# All that the runtime and the compiler need except the C and C++ libraries.
ldd "${libraries[@]}" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so' |
  xargs -r cp -L -t "$bundle/deps"

say "packing"
# The programs contain the same kernels: one dictionary compresses them all.
XZ_OPT="-9 -T1" tar caf "$out" --sort=name -C "$work" ddphook-gpu
say "$out: $(du -h "$out" | cut -f1), $count modules, $(
  [[ $compiler ]] && du -h "$bundle"/compiler/*.so.* | cut -f1 || echo no
) of a compiler before packing"
