#!/usr/bin/env bash
# Builds and runs the consumer projects against the package: in ddphook's build
# tree, in an install tree that was moved, and (the runtime) in an install tree of
# runtime/ alone, which must not need MLIR or clang. Starts what is installed, also
# out of Debian packages, in a container, and as a user without root; follows
# docs/installing.md and docs/getting-started.md; and checks Spack's package file, and
# that ddphook can be built without lib/CodeGen.
#
#   test/consumer/run.sh BUILD_DIR [--small]
#
# With --small without the Debian packages and what uses them, the build of the runtime
# alone, and what is tried in the build tree and in the moved tree twice.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$(cd "$1" && pwd)
small=${2:-}
work=$build/consumer
rm -rf "$work"
mkdir -p "$work"
outside=$(mktemp -d)
trap 'rm -rf "$outside"' EXIT
status=0

# compilers: what ddphook itself was built with
compilers=(-DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22
           -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld-22 -DCMAKE_BUILD_TYPE=Release)

not_small='^(moved-(embedding|capi)|build-tree-(compiler|runtime)|packages|lint-packages|without-root|container|runtime-alone-.*|documented-installing)$'
try() { # name command…
  local name=$1
  shift
  if [[ $small == --small && $name =~ $not_small ]]; then return; fi
  if "$@" >"$work/$name.log" 2>&1; then
    echo "PASS $name"
  else
    cat "$work/$name.log"
    echo "FAIL $name"
    status=1
  fi
}

consume() { # source-dir binary-dir program cmake-arguments…
  local source=$1 binary=$2 program=$3
  shift 3
  cmake -G Ninja -S "$source" -B "$binary" "${compilers[@]}" "$@" &&
    ninja -C "$binary" && "$binary/$program"
}

# The plugin that consume() built beside the compiler, in an installed tool.
use_plugin() {
  "$work/moved/prefix/bin/ddphook-opt" "$root/docs/examples/linear/step.mlir" \
    --load-dialect-plugin="$1/libMyHooks.so" \
    --ddp-pipeline='hook=#my.prescaled' >"$work/plugin.mlir" &&
    grep 'call @ddphook_rt_scale' "$work/plugin.mlir"
}

# Another MLIR than that of ddphook's build is an error that says so.
other_mlir() {
  mkdir -p "$work/other" &&
    printf 'set(LLVM_VERSION_MAJOR 21)\nset(LLVM_PACKAGE_VERSION 21.1.0)\n' \
      >"$work/other/MLIRConfig.cmake" || return 1
  local source
  for source in "$here/compiler" "$root"; do
    if cmake -G Ninja -S "$source" -B "$work/g${source##*/}" "${compilers[@]}" \
      -DCMAKE_PREFIX_PATH="$moved" -DMLIR_DIR="$work/other" >"$work/other.txt" 2>&1; then
      echo "expected an error"
      return 1
    fi
    tr -s ' \n' ' ' <"$work/other.txt" |
      grep -F "expected MLIR 22, but got 21.1.0 in $work/other; name another with -DMLIR_DIR" ||
      return 1
  done
}

# A CMakeLists.txt and the page that shows it have the same text.
as_documented() { # page project
  python3 "$here/blocks.py" cmake "$root/docs/$1" >"$work/shown.txt" &&
    sed '1,/^$/d' "$2/CMakeLists.txt" | diff "$work/shown.txt" -
}

# The commands of a page, without the lines that match, in a home of their own, and
# in a directory that looks to them like the top of the repository. The port that
# pages write is some free one. The directory lies outside of the build directory:
# CMake does not end where a link leads to a directory above it. The compiler is the
# system's, for pages that do not name one; ccache knows its objects from earlier runs
# in other directories.
follow() { # page lines-to-skip
  local top=$outside/${1%.md} port
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
  mkdir -p "$top/home" && ln -s "$root"/{docs,runtime,tools,LICENSE,NOTICE,CHANGELOG.md} "$top" &&
    ln -s "$build" "$top/build" &&
    python3 "$here/blocks.py" sh "$root/docs/$1" | grep -vE "$2" |
    sed "s/29500/$port/" >"$top/commands.sh" &&
    (cd "$top" && env -u CC -u CXX HOME="$top/home" CCACHE_DIR="$ccache" \
      CCACHE_BASEDIR="$top" CCACHE_NOHASHDIR=1 bash -euxo pipefail commands.sh)
}

# What getting-started.md configures would not let a user follow the page: CMake's cache
# names the directory of this test.
follow_start() {
  local before status=0
  rm -rf "$build/linear"
  before=$(caches)
  follow getting-started.md \
    '^(tools/quickstart.sh|cmake --preset .*|(torchrun|mpirun|srun) .*)$' || status=$?
  rm -rf "$build/linear"
  diff <(echo "$before") <(caches) && return $status
}
caches() { find "$build" -maxdepth 2 -name CMakeCache.txt | sort; }

# installing.md makes packages: no others may lie there. It builds the runtime alone.
follow_installing() {
  rm -rf "$build/packages" && follow installing.md '^tools/test-aarch64.sh ' &&
    "$runtime/bin/ddphook-exec" --help &&
    ! grep MLIR "$outside/installing/build-runtime/CMakeCache.txt"
}

# Its packages: apt could install them here, and their tools work where dpkg puts
# them.
packages() {
  local package version depends
  for package in runtime dev tools; do
    dpkg-deb --extract "$build/packages/ddphook-$package"_*.deb "$work/root" || return 1
  done
  version=$(dpkg-deb -f "$build/packages/ddphook-tools"_*.deb Version)
  depends=$(dpkg-deb -f "$build/packages/ddphook-tools"_*.deb Depends)
  # libmlir-22 brings libllvm22, which dpkg-shlibdeps does not always name.
  for package in libmlir-22 libc6 "ddphook-runtime (= $version)"; do
    [[ $depends == *"$package"* ]] || {
      echo "expected ddphook-tools to depend on $package, but got $depends"
      return 1
    }
  done
  [[ $(dpkg-deb -f "$build/packages/ddphook-runtime"_*.deb Depends) != *mlir* ]] &&
    zcat "$work/root/usr/share/doc/ddphook-dev/changelog.Debian.gz" |
    dpkg-parsechangelog -l- -S Version | grep -xF "$version" &&
    apt-get install --simulate "$build/packages"/ddphook-{runtime,dev,tools}_*.deb &&
    "$here/installed.sh" "$work/root/usr"
}

# lintian finds no error in them, and they name the release that they are for.
lint_packages() {
  . /etc/os-release
  lintian --fail-on error "$build/packages"/*.deb &&
    dpkg-deb -f "$build/packages/ddphook-runtime"_*.deb Version | grep -- "-1~deb$VERSION_ID$" &&
    dpkg-deb -f "$build/packages/ddphook-runtime"_*.deb Maintainer |
    grep -xF 'Ada Example <ada@example.org>'
}

# A user without root extracts the packages, loads the module, and compiles and runs a
# program, as installing.md shows it.
without_root() {
  local home=$outside/user as_user=()
  ((EUID)) || as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
  chmod 711 "$outside" && mkdir -p "$home"/{build,docs/examples} &&
    cp -r "$build/packages" "$home/build" && cp -r "$linear" "$home/docs/examples" &&
    python3 "$here/blocks.py" sh "$root/docs/installing.md" |
    sed -n '/^for package in/,/^$/p' >"$home/commands.sh" &&
    { ((EUID)) || chown -R 65534:65534 "$home"; } || return 1
  (cd "$home" && "${as_user[@]}" env -u LD_LIBRARY_PATH HOME="$home" \
    bash -euxo pipefail commands.sh) >"$work/without-root.txt" 2>&1
  cat "$work/without-root.txt"
  grep -xF "rank 0 of 1: 1.000 -2.000 3.000 0.500" "$work/without-root.txt"
}

# An image of the packages, on a base that debootstrap makes: another user than root
# compiles a step in it, and runs it on two ranks.
container() {
  local store=(buildah --storage-driver vfs --root "$outside/images" --runroot "$outside/run")
  local base made processes limits
  # Buildah would raise the limits of its processes, which only some containers may do.
  # It has lowered the number of processes to the largest process ID.
  processes=$(ulimit -H -u | sed "s/unlimited/$(</proc/sys/kernel/pid_max)/")
  processes=$(sort -n /proc/sys/kernel/pid_max - <<<"$processes" | head -1)
  limits=(--ulimit "nofile=$(ulimit -H -n | sed 's/unlimited/-1/')"
    --ulimit "nproc=$processes")
  . /etc/os-release
  base=$("${store[@]}" from scratch) &&
    "$root/tools/test-in-chroot.sh" --root="$("${store[@]}" mount "$base")" \
      "$VERSION_CODENAME" true &&
    "${store[@]}" commit --rm "$base" localhost/debian &&
    "${store[@]}" bud --isolation chroot "${limits[@]}" --build-arg BASE=localhost/debian \
      --tag localhost/ddphook --file "$root/tools/packaging/Containerfile" "$build/packages" &&
    made=$("${store[@]}" from "${limits[@]}" localhost/ddphook) &&
    "${store[@]}" run --isolation chroot --user nobody --volume "$linear:/linear:ro" \
      "$made" -- sh -exc 'cd /tmp
        ddphook-cc /linear/step.mlir -o step.so --shared --ddp-pipeline=hook=fp16
        same="--entry=step --ranks=2 --inputs=random:7 --outputs"
        ddphook-exec step.so $same="exec{rank}"
        ddphook-run /linear/step.mlir --ddp-pipeline=hook=fp16 $same="run{rank}"
        cmp exec0 run0 && cmp exec1 run1'
}

uninstall() {
  cmake --install "$build" --prefix "$work/gone" >/dev/null &&
    echo mine >"$work/gone/include/mine.h" && cmake --build "$build" -t uninstall &&
    [[ $(find "$work/gone" -type f -o -type l) == "$work/gone/include/mine.h" ]]
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
    -DDDPHOOK_CODEGEN=OFF -DDDPHOOK_CUDA=OFF -DDDPHOOK_BUILD_TESTS=ON || return 1
  if { ninja -C "$work/without-codegen" -t inputs all
    ninja -C "$work/without-codegen" -t commands all; } |
    grep -E "(lib|ddphook)/CodeGen/|DDPHookCodeGen|$bridge"; then
    echo "expected a build without lib/CodeGen not to need it, but got these lines"
    return 1
  fi
}

mlir=-DMLIR_DIR=/usr/lib/llvm-22/lib/cmake/mlir
package=lib/cmake/DDPHook
moved=$work/moved/prefix
runtime=$outside/installing/home/ddphook-runtime
ccache=${XDG_CACHE_HOME:-$HOME/.cache}/ddphook/ccache
linear=$root/docs/examples/linear
try build-tree-compiler consume "$here/compiler" "$work/a" my-compiler \
  -DDDPHook_DIR="$build/$package" "$mlir"
for project in embedding capi; do
  try build-tree-$project consume "$here/$project" "$work/build-$project" $project \
    -DDDPHook_DIR="$build/$package" "$mlir"
done
try build-tree-runtime consume "$here/runtime" "$work/b" runtime-consumer \
  -DDDPHook_DIR="$build/$package"
try install cmake --install "$build" --prefix "$work/prefix"
try installed-tools "$here/installed.sh" "$work/prefix"
mkdir "$work/moved" && mv "$work/prefix" "$moved"
try moved-tools "$here/installed.sh" "$moved"
try moved-compiler consume "$here/compiler" "$work/c" my-compiler \
  -DCMAKE_PREFIX_PATH="$moved"
for project in embedding capi; do
  try moved-$project consume "$here/$project" "$work/moved-$project" $project \
    -DCMAKE_PREFIX_PATH="$moved"
done
try moved-plugin use_plugin "$work/c"
try moved-runtime consume "$here/runtime" "$work/d" runtime-consumer \
  -DCMAKE_PREFIX_PATH="$moved"
try moved-compile consume "$linear" "$work/f" linear -DCMAKE_PREFIX_PATH="$moved"
try other-mlir other_mlir
try documented-compiler as_documented writing-a-hook.md "$here/compiler"
try documented-step as_documented getting-started.md "$linear"
try documented-installing follow_installing
try documented-start follow_start
try uninstall uninstall
try packages packages
try lint-packages lint_packages
try without-root without_root
if ((EUID == 0)); then try container container; else echo "SKIP container: needs root"; fi
try spack python3 "$here/spack.py" "$outside"
try runtime-alone-consumer consume "$here/runtime" "$work/e" runtime-consumer \
  -DDDPHook_DIR="$runtime/$package"
try without-codegen without_codegen
exit $status
