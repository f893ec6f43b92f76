#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Lists C, C++ and CUDA files that clang-format would change (--fix formats them), and
# prints what check-prose.py and test/check-includes.py find. The last line is "N of N files
# pass"; a file that two of them read counts twice.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
format=$(command -v clang-format-22) || {
  echo "error: clang-format-22 is missing: run tools/install-packages.sh --tests" >&2
  exit 1
}
mapfile -t files < <(git ls-files '*.c' '*.cpp' '*.cu' '*.cuh' '*.h' '*.inc')
if [[ ${1:-} == --fix ]]; then "$format" -i "${files[@]}"; fi
bad=$("$format" --dry-run "${files[@]}" 2>&1 |
  sed -nE 's/^([^:]+):[0-9]+:[0-9]+: warning: code should be clang-formatted.*/\1/p' |
  sort -u)
if [[ -n $bad ]]; then sed 's/^/not formatted (tools\/check-format.sh --fix does it): /' <<<"$bad"; fi
wrong=$(grep -c . <<<"$bad" || true)
right=$((${#files[@]} - wrong)) all=${#files[@]}
for check in tools/check-prose test/check-includes; do
  found=$(python3 "$check.py") || true
  sed '$d' <<<"$found"
  read -r plain _ others _ <<<"$(tail -1 <<<"$found")"
  right=$((right + plain)) all=$((all + others))
done
echo "$right of $all files pass"
((right == all))
