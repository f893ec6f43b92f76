#!/usr/bin/env bash
# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs clang-tidy, with the checks of .clang-tidy, on the C and C++ files that it is
# given, or on those that have changed since BASE (default: the last commit).
#
#   tools/check-tidy.sh [--build BUILD_DIR] [--base BASE] [FILE...]
#
# A file takes 4 to 8 seconds of processor time, most of it for MLIR's headers; so
# this is no part of tools/test.sh. The last line is "N of N files are tidy".
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build base=HEAD files=()
while (($#)); do
  case $1 in
  --build) build=$2 && shift 2 ;;
  --base) base=$2 && shift 2 ;;
  -*) echo "error: expected --build, --base or files, but got $1" >&2 && exit 2 ;;
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
if ((${#files[@]} == 0)); then
  mapfile -t files < <(
    { git diff --name-only --diff-filter=d "$base" -- '*.c' '*.cpp'
      git ls-files --others --exclude-standard -- '*.c' '*.cpp'; } | sort -u)
fi

wrong=0
for file in "${files[@]}"; do
  # Other files would be read with flags that clang-tidy makes up.
  if ! grep -qF "/$file\"" "$build/compile_commands.json"; then
    echo "error: expected a file that $build compiles, but got $file" >&2
    wrong=$((wrong + 1))
  elif ! "$tidy" -p "$build" --quiet "$file"; then
    wrong=$((wrong + 1))
  fi
done
echo "$((${#files[@]} - wrong)) of ${#files[@]} files are tidy"
((wrong == 0))
