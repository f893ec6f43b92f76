# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program for one processor, split by MLIR's own partitioner, and run on ranks.

docs/examples/shard/step.mlir goes through upstream's `sharding-propagation` and
`shard-partition`, then through `ddp-import-shard`, and runs with ddphook-run on grids
of several shapes. Every rank gets its rows of the batch. What comes out is compared
with the program without its annotations on one processor, and with NumPy in float64.

Environment: DDPHOOK_RUN names the tool (default: build/bin/ddphook-run of this
checkout), MLIR_OPT upstream's (default: mlir-opt-22), DDPHOOK_TEST_SEED the seed of
all random inputs.
"""

import os
import pathlib
import re
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP = ROOT / "docs" / "examples" / "shard" / "step.mlir"
TOOL = pathlib.Path(os.environ.get("DDPHOOK_RUN", ROOT / "build" / "bin" / "ddphook-run"))
OPT = TOOL.with_name("ddphook-opt")
STOCK = os.environ.get("MLIR_OPT", "mlir-opt-22")
SEED = int(os.environ.get("DDPHOOK_TEST_SEED", "20261"))
HANG_S = 120

BATCH, RATE = 16, 0.5
PARTITION = "func.func(sharding-propagation{traversal=forward-backward},shard-partition)"


def call(*command, text=None):
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def on_grid(shape, axes):
    """The program for a grid of that shape, with the batch along those axes."""
    text = STEP.read_text(encoding="utf-8")
    text, grids = re.subn(r"shape = 2\)", f"shape = {shape})", text)
    text, splits = re.subn(r"split_axes = \[\[0\]\]", f"split_axes = [{axes}]", text)
    assert (grids, splits) == (1, 1)
    return text


def without_annotations():
    """The program as it was before anybody thought of several processors."""
    text = STEP.read_text(encoding="utf-8")
    for new, old in re.findall(r"(%\w+) = shard\.shard (%\w+) to", text):
        text = re.sub(rf"{new}\b", old, text)
    return "\n".join(line for line in text.split("\n") if "shard." not in line)


def run(folder, program, ranks, inputs, *flags):
    """inputs[rank] is a list of arrays; so is what comes back."""
    path = folder / "program.mlir"
    path.write_text(program, encoding="utf-8")
    for rank, arrays in enumerate(inputs):
        save_file(
            {f"arg{i}": array for i, array in enumerate(arrays)},
            folder / f"in.{rank}.safetensors",
        )
    call(
        TOOL,
        path,
        "--entry=step",
        f"--ranks={ranks}",
        "--steps=1",
        f"--inputs={folder}/in.{{rank}}.safetensors",
        f"--outputs={folder}/out.{{rank}}.safetensors",
        *flags,
    )
    files = [load_file(folder / f"out.{rank}.safetensors") for rank in range(ranks)]
    return [[named[f"result{i}"] for i in range(len(named))] for named in files]


def random_inputs():
    print(f"seed {SEED}")
    generator = np.random.default_rng(SEED)
    shapes = [(BATCH, 8), (BATCH, 4), (8, 12), (12,), (12, 4)]
    return [generator.standard_normal(shape, dtype=np.float32) for shape in shapes]


def step(x, t, w1, b1, w2):
    """What the program computes, in float64, and the moves of the parameters."""
    x, t, w1, b1, w2 = (a.astype(np.float64) for a in (x, t, w1, b1, w2))
    h = np.maximum(x @ w1 + b1, 0)
    d = (h @ w2 - t) / BATCH
    dh = (d @ w2.T) * (h > 0)
    moves = [RATE * g for g in (x.T @ dh, dh.sum(axis=0), h.T @ d)]
    return [w - move for w, move in zip((w1, b1, w2), moves)], moves, 8 * np.sum(d * d)


def rows(inputs, ranks, replicas=1):
    """What each rank gets: its part of the batch, and all of the parameters. In a
    grid's last axis, of that many processes, all have the same part."""
    parts = ranks // replicas
    split = [np.split(array, parts) for array in inputs[:2]]
    return [
        [np.ascontiguousarray(array[rank // replicas]) for array in split] + inputs[2:]
        for rank in range(ranks)
    ]


def partition(program, how):
    """The flags and the program of ddphook-run, by way of stock mlir-opt or alone."""
    if how == "alone":
        pipeline = f"builtin.module({PARTITION},ddp-import-shard)"
        return program, [f"--preprocessing-pass-pipeline={pipeline}"]
    split = call(STOCK, f"--pass-pipeline=builtin.module({PARTITION})", text=program)
    assert split.count("shard.all_reduce") == 4
    imported = call(OPT, "--ddp-import-shard", text=split)
    assert imported.count("ddp.all_reduce") == 4 and "shard." not in imported
    return imported, []


def assert_close(got, moves, expected, tolerance):
    """Parameters have moved as expected, up to that part of the largest move."""
    for new, move, right in zip(got, moves, expected):
        np.testing.assert_allclose(new, right, rtol=0, atol=tolerance * np.abs(move).max())


@pytest.mark.parametrize("how", ["mlir-opt", "alone"])
@pytest.mark.parametrize("hook", ["allreduce", "fp16"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_equals_one_processor(tmp_path, ranks, hook, how):
    inputs = random_inputs()
    expected, moves, loss = step(*inputs)
    [alone] = run(tmp_path, without_annotations(), 1, [inputs])

    program, flags = partition(on_grid(ranks, "[0]"), how)
    outputs = run(
        tmp_path, program, ranks, rows(inputs, ranks), f"--ddp-pipeline=hook={hook}", *flags
    )
    # An f16 has 11 bits, rounded twice at most before a sum of up to four; an f32 24,
    # in sums of up to sixteen products. Both with room.
    tolerance = 4 * 2**-11 if hook == "fp16" else 64 * 2**-24
    for rank in outputs:
        assert_close(rank[:3], moves, expected, tolerance)
        assert_close(rank[:3], moves, alone[:3], tolerance)
        # The loss is reduced exactly, whatever the hook.
        np.testing.assert_allclose(rank[3], loss, rtol=64 * 2**-24)
        for mine, other in zip(rank, outputs[0]):
            np.testing.assert_array_equal(mine, other)
    # The test can tell a gradient that is not reduced, and a hook that does nothing.
    if ranks > 1:
        assert all(np.abs(m).max() > 0 for m in moves)
    if hook == "fp16":
        off = max(np.abs(a - b).max() for a, b in zip(outputs[0], alone))
        assert off > 2**-20


@pytest.mark.parametrize("axes, replicas", [("[0, 1]", 1), ("[0]", 2)])
def test_grid_of_two_axes(tmp_path, axes, replicas):
    """Over both axes of a grid, and over one, each group having the same batch."""
    inputs = random_inputs()
    expected, moves, _ = step(*inputs)
    program, flags = partition(on_grid("2x2", axes), "mlir-opt")
    assert program.count("ranks [[0, 2], [1, 3]]") == (replicas == 2)
    outputs = run(tmp_path, program, 4, rows(inputs, 4, replicas), *flags)
    for rank in outputs:
        assert_close(rank[:3], moves, expected, 64 * 2**-24)


def test_another_number_of_ranks(tmp_path):
    """The grid's number of processes is a part of the program."""
    program, _ = partition(on_grid(2, "[0]"), "mlir-opt")
    inputs = rows(random_inputs(), 2)
    path = tmp_path / "program.mlir"
    path.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [TOOL, path, "--entry=step", "--ranks=4", "--steps=1", "--inputs=random:1"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode != 0 and len(inputs) == 2
    assert "dp_0" in done.stderr, done.stderr


PARTS = """
shard.grid @g(shape = 2x2)
func.func @step(%w: tensor<3x4x2xf32>, %g: tensor<3x8x2xf32>)
    -> (tensor<3x4x2xf32>, tensor<3x8x2xf32>) {
  %mine = shard.reduce_scatter %g on @g grid_axes = [1] reduction = average scatter_axis = 1
      : tensor<3x8x2xf32> -> tensor<3x4x2xf32>
  %e = tensor.empty() : tensor<3x4x2xf32>
  %moved = linalg.sub ins(%w, %mine : tensor<3x4x2xf32>, tensor<3x4x2xf32>)
      outs(%e : tensor<3x4x2xf32>) -> tensor<3x4x2xf32>
  %all = shard.all_gather %moved on @g grid_axes = [1] gather_axis = 1
      : tensor<3x4x2xf32> -> tensor<3x8x2xf32>
  return %moved, %all : tensor<3x4x2xf32>, tensor<3x8x2xf32>
}
"""


@pytest.mark.parametrize("hook", ["allreduce", "fp16"])
def test_parts(tmp_path, hook):
    """Each process of a row of the grid has a part of the parameter, in its middle."""
    print(f"seed {SEED}")
    generator = np.random.default_rng(SEED)
    # Small whole numbers: their halves' sums are exact, in f16 as well.
    gradients = generator.integers(-99, 99, (4, 3, 8, 2)).astype(np.float32)
    parameter = generator.integers(-99, 99, (3, 8, 2)).astype(np.float32)
    parts = np.split(parameter, 2, axis=1)
    inputs = [
        [np.ascontiguousarray(parts[rank % 2]), gradient]
        for rank, gradient in enumerate(gradients)
    ]
    flag = "--preprocessing-pass-pipeline=builtin.module(ddp-import-shard)"
    outputs = run(tmp_path, PARTS, 4, inputs, flag, f"--ddp-pipeline=hook={hook}")
    for rank, (moved, all_) in enumerate(outputs):
        row = gradients[2 * (rank // 2) : 2 * (rank // 2) + 2]
        expected = parameter - row.mean(axis=0)
        np.testing.assert_array_equal(all_, expected)
        np.testing.assert_array_equal(moved, np.split(expected, 2, axis=1)[rank % 2])
