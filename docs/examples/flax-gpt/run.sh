#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# From a small GPT in Flax to two ranks that train it without JAX, with different
# hooks, and their losses beside JAX's own on two devices of this host: some minutes.
#
#     docs/examples/flax-gpt/run.sh [STEPS [PLOT.svg]]
#
# The tools are those of the PATH, or else of the build tree; Python is that of the
# tests, which has JAX.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
python=$("$root/tools/python-env.sh")
PATH=$PATH:$root/build/bin
steps=${1:-60}
plot=()
if [[ -n ${2:-} ]]; then plot=("--plot=$(realpath "$2")"); fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/training"
cd "$folder"

"$python" "$here/export.py" step.mlir training "$steps"
PYTHON=$python "$root/docs/examples/jax/compile.sh"
"$python" "$root/docs/examples/jax/train.py" training \
  allreduce=./allreduce.so fp16=./fp16.so powersgd=./powersgd.so \
  "${plot[@]}" --title="A GPT in Flax"
