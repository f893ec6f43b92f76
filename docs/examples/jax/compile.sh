#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# From step.mlir, which JAX has written into the working directory, to a shared object
# for each hook: allreduce.so, fp16.so, powersgd.so. PYTHON is one that has JAX, and the
# tools are in the PATH.
#
#     PYTHON=python3 docs/examples/jax/compile.sh
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

ddphook-opt step.mlir --ddp-import-stablehlo --ddp-inline-collectives \
  --ddp-convert-stablehlo-control-flow --ddp-convert-stablehlo-scatter \
  --ddp-convert-chlo-top-k --mlir-print-op-generic --mlir-print-debuginfo -o imported.mlir
"$PYTHON" "$here/to_linalg.py" imported.mlir linalg.mlir

ddphook-cc linalg.mlir --shared -o allreduce.so --ddp-pipeline="hook=allreduce"
ddphook-cc linalg.mlir --shared -o fp16.so --ddp-pipeline="hook=fp16"
ddphook-cc linalg.mlir --shared -o powersgd.so \
  --ddp-pipeline="hook=powersgd matrix-approximation-rank=4 start-powersgd-iter=2"
