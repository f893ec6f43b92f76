#!/usr/bin/env bash
# Compiles and runs random modules for MINUTES and compares them with a model in
# numpy (test/fuzz/README.md):
#
#   tools/fuzz.sh MINUTES [--seed N] [--jobs N] [--reduce SECONDS] [--keep DIR]
#
# Expects a build in build/. Failures are reduced and kept in build/fuzz. The last
# line is the summary; the exit status is 0 if nothing was wrong, crashed or hung.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$("$root/tools/python-env.sh")
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
exec "$python" "$root/test/fuzz/fuzz.py" --keep "$root/build/fuzz" --minutes "$@"
