#!/usr/bin/env bash
# Generates the pages that docs/generated has, the tables of hooks in the documents and the
# classes of hooks in the Python package, from the TableGen files; the reference of that
# package from its sources; and docs/benchmarks.md from its JSON.
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
# Keeps the page in $made as FILE, or compares it.
keep() {
  local file=$1 name=${1#"$root/"}
  if ! $check; then
    cp "$made" "$file"
    echo "wrote $name"
  elif diff -u "$file" "$made"; then
    echo "PASS $name"
  else
    echo "FAIL $name: run tools/generate-docs.sh"
    status=1
  fi
}

for kept in "$root"/docs/generated/DDP*.md; do
  page=$(basename "$kept" .md)
  source=$(find "$build/docs" -name "$page.md" | head -1)
  if [[ -z $source ]]; then
    echo "FAIL $page: not generated"
    status=1
    continue
  fi
  # Only MLIR's website turns this line into a table of contents.
  sed '/^\[TOC\]$/{N;d}' "$source" >"$made"
  keep "$kept"
done

arguments=("$build/include/ddphook/Dialect/DDP/IR/DDPRecords.json")
$check && arguments=(--check "${arguments[@]}")
"$root/tools/hook-tables.py" "${arguments[@]}" || status=1
"$root/tools/benchmarks.py" "$root/docs/benchmarks.json" >"$made"
keep "$root/docs/benchmarks.md"
"$root/tools/python-reference.py" >"$made"
keep "$root/docs/generated/Python.md"
! $check || "$root/tools/check-references.py" || status=1
exit $status
