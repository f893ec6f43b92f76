# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program that reduces with MLIR's mpi dialect, on ranks, beside NumPy.

docs/examples/mpi/step.mlir goes through `ddp-import-mpi` and runs with ddphook-run; no
MPI library takes part.

Environment: DDPHOOK_RUN names the tool (default: build/bin/ddphook-run of this
checkout), DDPHOOK_TEST_SEED the seed of all random inputs.
"""

import os
import pathlib
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP = ROOT / "docs" / "examples" / "mpi" / "step.mlir"
TOOL = pathlib.Path(os.environ.get("DDPHOOK_RUN", ROOT / "build" / "bin" / "ddphook-run"))
SEED = int(os.environ.get("DDPHOOK_TEST_SEED", "20261"))
HANG_S = 120


def run(tmp_path, centre, rows, hook):
    """What each rank returns: its new centre, and the loss of all."""
    for rank, mine in enumerate(rows):
        save_file({"arg0": centre, "arg1": mine}, tmp_path / f"in.{rank}")
    command = [TOOL, STEP, "--entry=step", f"--ranks={len(rows)}"]
    command += ["--preprocessing-pass-pipeline=builtin.module(ddp-import-mpi)"]
    command += [f"--ddp-pipeline=hook={hook}", f"--inputs={tmp_path}/in.{{rank}}"]
    command += [f"--outputs={tmp_path}/out.{{rank}}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    return [load_file(tmp_path / f"out.{rank}") for rank in range(len(rows))]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("hook", ["allreduce", "fp16"])
def test_equal_to_numpy(tmp_path, world, hook):
    print(f"DDPHOOK_TEST_SEED={SEED}")
    random = np.random.default_rng((SEED, world))
    centre = random.standard_normal(8, np.float32)
    rows = random.standard_normal((world, 16, 8), np.float32)
    gradients = (centre - rows).astype(np.float64).sum(axis=1)
    if hook == "fp16":
        gradients = gradients.astype(np.float16)
    expected = centre - 0.003125 * gradients.sum(axis=0, dtype=np.float64)
    loss = 0.5 * np.square((centre - rows).astype(np.float64)).sum()
    results = run(tmp_path, centre, rows, hook)
    # A gradient is below 64: 16 rows. Sums of them in f16 round to 2^-5 or finer.
    tolerance = 1e-6 if hook == "allreduce" else 0.003125 * world * 2.0**-5
    for result in results:
        np.testing.assert_allclose(result["result0"], expected, rtol=0, atol=tolerance)
        # Not compressed, with any hook.
        np.testing.assert_allclose(result["result1"], loss, rtol=1e-5)
        assert all((result[n] == results[0][n]).all() for n in result)


COLUMNS = """
func.func @step(%table: memref<6x8xf32>) -> (tensor<6x8xf32>, tensor<6x3xf32>) {
  %all = memref.alloc() : memref<6x8xf32>
  %sum = memref.alloc() : memref<6x3xf32>
  memref.copy %table, %all : memref<6x8xf32> to memref<6x8xf32>
  %world = mpi.comm_world : !mpi.comm
  %left = memref.subview %all[0, 1] [6, 3] [1, 1]
      : memref<6x8xf32> to memref<6x3xf32, strided<[8, 1], offset: 1>>
  %right = memref.subview %all[0, 4] [6, 2] [1, 2]
      : memref<6x8xf32> to memref<6x2xf32, strided<[8, 2], offset: 4>>
  mpi.allreduce(%left, %sum, MPI_SUM, %world)
      : memref<6x3xf32, strided<[8, 1], offset: 1>>, memref<6x3xf32>
  mpi.allreduce(%right, %right, MPI_SUM, %world)
      : memref<6x2xf32, strided<[8, 2], offset: 4>>, memref<6x2xf32, strided<[8, 2], offset: 4>>
  %0 = bufferization.to_tensor %all restrict : memref<6x8xf32> to tensor<6x8xf32>
  %1 = bufferization.to_tensor %sum restrict : memref<6x3xf32> to tensor<6x3xf32>
  return %0, %1 : tensor<6x8xf32>, tensor<6x3xf32>
}
"""


@pytest.mark.parametrize("hook", ["allreduce", "fp16"])
def test_parts_of_arrays(tmp_path, hook):
    """Memory that is not in one piece; what lies between its elements stays."""
    print(f"DDPHOOK_TEST_SEED={SEED}")
    # Small whole numbers, whose sums are exact in f16.
    tables = np.random.default_rng(SEED).integers(-99, 99, (2, 6, 8)).astype(np.float32)
    program = tmp_path / "columns.mlir"
    program.write_text(COLUMNS)
    for rank, table in enumerate(tables):
        save_file({"arg0": table}, tmp_path / f"in.{rank}")
    command = [TOOL, program, "--entry=step", "--ranks=2"]
    command += ["--preprocessing-pass-pipeline=builtin.module(ddp-import-mpi)"]
    command += [f"--ddp-pipeline=hook={hook}", f"--inputs={tmp_path}/in.{{rank}}"]
    command += [f"--outputs={tmp_path}/out.{{rank}}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    for rank, table in enumerate(tables):
        result = load_file(tmp_path / f"out.{rank}")
        expected = table.copy()
        expected[:, 4:8:2] = tables.sum(axis=0)[:, 4:8:2]
        np.testing.assert_array_equal(result["result0"], expected)
        np.testing.assert_array_equal(result["result1"], tables.sum(axis=0)[:, 1:4])
