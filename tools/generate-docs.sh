#!/usr/bin/env bash
# Generates the pages that docs/generated has and the tables of hooks, in the documents
# and the Python package, from the TableGen files, and docs/benchmarks.md from its JSON.
# With --check, only compares them, and checks the documents' references.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
check=false
if [[ ${1:-} == --check ]]; then
  check=true
  shift
fi
build=${1:-$root/build}
ninja -C "$build" mlir-doc >/dev/null

status=0
made=$(mktemp)
trap 'rm -f "$made"' EXIT
for kept in "$root"/docs/generated/DDP*.md; do
  page=$(basename "$kept" .md)
  source=$(find "$build/docs" -name "$page.md" | head -1)
  # Only MLIR's website turns this line into a table of contents.
  [[ -z $source ]] || sed '/^\[TOC\]$/{N;d}' "$source" >"$made"
  if [[ -z $source ]]; then
    echo "FAIL $page: not generated"
    status=1
  elif ! $check; then
    cp "$made" "$kept"
    echo "wrote docs/generated/$page.md"
  elif diff -u "$kept" "$made"; then
    echo "PASS $page"
  else
    echo "FAIL $page: run tools/generate-docs.sh"
    status=1
  fi
done

arguments=("$build/include/ddphook/Dialect/DDP/IR/DDPRecords.json")
$check && arguments=(--check "${arguments[@]}")
"$root/tools/hook-tables.py" "${arguments[@]}" || status=1
benchmarks=$root/docs/benchmarks
"$root/tools/benchmarks.py" "$benchmarks.json" >"$made"
if $check; then
  diff -u "$benchmarks.md" "$made" || status=1
  "$root/tools/check-references.py" || status=1
else
  cp "$made" "$benchmarks.md"
fi
exit $status
