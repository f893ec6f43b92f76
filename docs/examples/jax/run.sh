#!/usr/bin/env bash
# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# From a training step in JAX to two ranks that train without JAX, with different
# hooks, and their losses beside JAX's own on two devices of this host.
#
#     docs/examples/jax/run.sh [FOLDER]
#
# FOLDER keeps what is made on the way. The tools are those of the PATH, or else of
# the build tree; Python is that of the tests, which has JAX.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
python=$("$root/tools/python-env.sh")
PATH=$PATH:$root/build/bin
folder=${1:-}
if [[ -z $folder ]]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi
mkdir -p "$folder/training"
cd "$folder"

"$python" "$here/export.py" step.mlir training
ddphook-opt step.mlir --ddp-import-stablehlo --ddp-inline-collectives \
  --ddp-convert-stablehlo-control-flow --ddp-convert-stablehlo-scatter \
  --mlir-print-op-generic --mlir-print-debuginfo -o imported.mlir
"$python" "$here/to_linalg.py" imported.mlir linalg.mlir

ddphook-cc linalg.mlir --shared -o allreduce.so --ddp-pipeline="hook=allreduce"
ddphook-cc linalg.mlir --shared -o fp16.so --ddp-pipeline="hook=fp16"
ddphook-cc linalg.mlir --shared -o powersgd.so \
  --ddp-pipeline="hook=powersgd matrix-approximation-rank=4 start-powersgd-iter=2"
"$python" "$here/train.py" training \
  allreduce=./allreduce.so fp16=./fp16.so powersgd=./powersgd.so
