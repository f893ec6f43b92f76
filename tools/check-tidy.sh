#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs clang-tidy, with the checks of .clang-tidy, on the given C and C++ files, on those
# that have changed since BASE (default: the last commit), or on all below DIRECTORY
# that BUILD_DIR compiles, or on every Nth of these.
#
#   tools/check-tidy.sh [--build BUILD_DIR] [--below DIRECTORY [--every N] | --base BASE]
#     [FILE...]
#
# A file of the compiler takes 8 seconds of processor time, most of it for MLIR's
# headers, and one of the runtime one second: tools/test.sh checks a part of the
# runtime, with --all the whole of it. The last line is "N of N files are tidy".
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build base=HEAD below='' every=1 files=()
while (($#)); do
  case $1 in
  --build) build=$2 && shift 2 ;;
  --base) base=$2 && shift 2 ;;
  --below) below=$2 && shift 2 ;;
  --every) every=$2 && shift 2 ;;
  -*) echo "error: expected --build, --below, --every, --base or files, but got $1" >&2 && exit 2 ;;
  *) files+=("$1") && shift ;;
  esac
done
tidy=$(command -v clang-tidy-22) || {
  echo "error: clang-tidy-22 is missing: install Debian's package of that name" >&2
  exit 1
}
if [[ ! -e $build/compile_commands.json ]]; then
  echo "error: expected $build/compile_commands.json: configure first" >&2
  exit 1
fi
# The sources that the build directory compiles; clang-tidy would guess the flags of
# others. Excludes examples, which include headers that only their targets write, and
# the emulated device, which uses CUDA's names.
mapfile -t compiled < <(
  sed -nE "s|^ *\"file\": \"$PWD/([^\"]*\.(c\|cpp))\".*|\1|p" "$build/compile_commands.json" |
    grep -vE '^(docs|build[^/]*|runtime/test/emulated_cuda)/' | sort -u)
if [[ -n $below ]]; then
  mapfile -t files < <(printf '%s\n' "${compiled[@]}" | grep "^${below%/}/" |
    awk -v every="$every" 'NR % every == 0')
elif ((${#files[@]} == 0)); then
  mapfile -t files < <(
    { git diff --name-only --diff-filter=d "$base" -- '*.c' '*.cpp' ':!docs'
      git ls-files --others --exclude-standard -- '*.c' '*.cpp' ':!docs'; } | sort -u)
fi

declare -A is_compiled=()
for file in "${compiled[@]}"; do is_compiled[$file]=yes; done
wrong=0
for file in "${files[@]}"; do
  if [[ -z ${is_compiled[$file]:-} ]]; then
    echo "error: expected a file that $build compiles, but got $file" >&2
    wrong=$((wrong + 1))
  fi
done
((wrong == 0)) || exit 2
# Each process records a tidy file in a separate line.
results=$(mktemp)
trap 'rm -f "$results"' EXIT
export tidy build results
printf '%s\0' "${files[@]}" | xargs -0 -r -n1 -P"$(nproc)" bash -c '
  if "$tidy" -p "$build" --quiet "$0" 2>/dev/null; then echo "$0" >>"$results"; fi'
good=$(wc -l <"$results")
echo "$good of ${#files[@]} files are tidy"
((good == ${#files[@]})) && [[ -z $below || $good != 0 ]]
