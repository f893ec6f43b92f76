#!/usr/bin/env bash
# Runs ruff on the Python files (ruff.toml) and mypy on the package
# (tools/python/pyproject.toml). Each file with a finding counts as wrong. The last
# line is "N of N files are right".
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$(tools/python-env.sh) || exit 1
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.py')
found=$(
  "$python" -m ruff check --no-cache --output-format concise "${files[@]}"
  echo "ruff: $?"
  cd tools/python || exit 1
  "$python" -m mypy --no-error-summary --cache-dir /dev/null | sed 's|^src/|tools/python/src/|'
  echo "mypy: ${PIPESTATUS[0]}"
)
grep -vE '^(ruff|mypy): [0-9]+$|^All checks passed|^Found ' <<<"$found"
bad=$(grep -oE '^[^ :]+\.py:[0-9]+:.*' <<<"$found" | grep -v ' note: ' | cut -d: -f1 | sort -u | wc -l)
# A tool that failed to run has no findings.
if ((bad == 0)) && grep -qE '^(ruff|mypy): [^0]' <<<"$found"; then bad=${#files[@]}; fi
echo "$((${#files[@]} - bad)) of ${#files[@]} files are right"
((bad == 0))
