#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# From a training step in JAX to two ranks that train without JAX, with different
# hooks, and their losses beside JAX's own on two devices of this host.
#
#     docs/examples/jax/run.sh [FOLDER [PLOT.svg]]
#
# FOLDER keeps what is made on the way. The tools are those of the PATH, or else of
# the build tree; Python is that of the tests, which has JAX.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
python=$("$root/tools/python-env.sh")
PATH=$PATH:$root/build/bin
folder=${1:-}
plot=()
if [[ -n ${2:-} ]]; then plot=("--plot=$(realpath "$2")"); fi
if [[ -z $folder ]]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi
mkdir -p "$folder/training"
cd "$folder"

"$python" "$here/export.py" step.mlir training
PYTHON=$python "$here/compile.sh"
"$python" "$here/train.py" training \
  allreduce=./allreduce.so fp16=./fp16.so powersgd=./powersgd.so \
  "${plot[@]}" --title="A network that reads digits, in JAX"
