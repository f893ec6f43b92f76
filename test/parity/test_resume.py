# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ten steps equal four steps, a checkpoint, a new process and six steps.

Results and states are equal bit by bit, whatever the hook keeps. There is no oracle: a
run is compared with itself.
"""

import numpy as np
import pytest

import runner
import tensors
from tensors import Tensor

STEPS = 10
MODULE = """module {
  ddp.process_group @dp
  func.func @step(%g0: tensor<40x30xf32>, %g1: tensor<30xf32>,
                  %g2: tensor<8x3x3xf32>, %g3: tensor<40x30xf32>)
      -> (tensor<40x30xf32>, tensor<30xf32>, tensor<8x3x3xf32>,
          tensor<40x30xf32>) {
    %r0 = ddp.all_reduce mean %g0 on @dp : tensor<40x30xf32>
    %r1 = ddp.all_reduce mean %g1 on @dp : tensor<30xf32>
    %r2 = ddp.all_reduce mean %g2 on @dp : tensor<8x3x3xf32>
    %r3 = ddp.all_reduce mean %g3 on @dp : tensor<40x30xf32>
    return %r0, %r1, %r2, %r3 : tensor<40x30xf32>, tensor<30xf32>,
        tensor<8x3x3xf32>, tensor<40x30xf32>
  }
}
"""
SHAPES = [(40, 30), (30,), (8, 3, 3), (40, 30)]
START = "start-powersgd-iter=2"
PIPELINES = {
    "powersgd": f"hook=powersgd {START}",
    "before its start": "hook=powersgd start-powersgd-iter=7",
    "rank 4": f"hook=powersgd {START} matrix-approximation-rank=4",
    "cold": f"hook=powersgd {START} warm-start=false",
    "without error feedback": f"hook=powersgd {START} use-error-feedback=false",
    "small buckets": f"hook=powersgd {START} bucket-cap-mb=0.001",
    "batched": f"hook=batched_powersgd {START}",
    "fp16": f"hook=powersgd {START} wrapper=fp16",
    "bf16": f"hook=powersgd {START} wrapper=bf16 matrix-approximation-rank=2",
}


def gradients(rank, step):
    random = np.random.default_rng([runner.SEED, rank, step])
    return [
        Tensor("f32", random.standard_normal(shape).astype(np.float32))
        for shape in SHAPES
    ]


def run(directory, inputs, pipeline, *flags):
    """Returns results by rank and step."""
    world, steps = len(inputs), len(inputs[0])
    directory.clear_outputs()
    directory.write_inputs(inputs)
    arguments = directory.arguments("step", world, steps, pipeline)
    result = runner.finish(runner.start([*arguments, *flags]))
    assert (result.code, result.stderr) == (0, "")
    return directory.read_outputs(world, steps)


def same(a, b):
    return a.dtype == b.dtype and a.data.tobytes() == b.data.tobytes()


def check_resume(tmp_path, text, pipeline, world):
    """Returns the states of all ranks at the end."""
    directory = runner.Directory(tmp_path)
    directory.write_module(text)
    inputs = [
        [gradients(rank, step) for step in range(STEPS)] for rank in range(world)
    ]
    middle, end, whole = (
        str(tmp_path / f"{part}.{{rank}}.safetensors")
        for part in ("middle", "end", "whole")
    )
    half = 4
    expected = run(directory, inputs, pipeline, f"--state-out={whole}")
    first = run(
        directory, [i[:half] for i in inputs], pipeline, f"--state-out={middle}"
    )
    second = run(
        directory,
        [i[half:] for i in inputs],
        pipeline,
        f"--state-in=strict:{middle}",
        f"--state-out={end}",
    )
    states = []
    for rank in range(world):
        steps = first[rank] + second[rank]
        for step in range(STEPS):
            for number, (got, wanted) in enumerate(
                zip(steps[step], expected[rank][step], strict=True)
            ):
                assert same(got, wanted), f"rank {rank}, step {step}, {number}"
        got = tensors.load(end.format(rank=rank))
        wanted = tensors.load(whole.format(rank=rank))
        assert set(got) == set(wanted)
        assert all(same(got[key], wanted[key]) for key in wanted)
        states.append(got)
    return states


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("name", PIPELINES)
def test_resume(tmp_path, name, world):
    for states in check_resume(tmp_path, MODULE, PIPELINES[name], world):
        assert states["powersgd.iter"].data.reshape(()) == STEPS


@pytest.mark.parametrize("options", ["int8", "int4 bucket-cap-mb=0.001"])
def test_resume_of_random_rounding(tmp_path, options):
    """The number of steps, on which its random numbers depend, is a state."""
    pipeline = f"hook={options} rounding=stochastic"
    for states in check_resume(tmp_path, MODULE, pipeline, world=3):
        assert states["rounding.iter"].data.reshape(()) == STEPS


PARTS = """ddp.process_group @dp size 3
func.func @step(%g0: tensor<40x30xf32>, %g1: tensor<30xf32>,
                %g2: tensor<8x3x3xf32>, %g3: tensor<40x30xf32>)
    -> (tensor<410xf32>, tensor<24xf32>, tensor<40x30xf32>) {
  %b = ddp.pack %g0, %g1 : tensor<40x30xf32>, tensor<30xf32>
      -> !ddp.bucket<f32, [40x30, 30]>
  %r0 = ddp.reduce_scatter mean %b on @dp
      : !ddp.bucket<f32, [40x30, 30]> -> tensor<410xf32>
  %r2 = ddp.reduce_scatter mean %g2 on @dp : tensor<8x3x3xf32> -> tensor<24xf32>
  %r3 = ddp.all_reduce mean %g3 on @dp : tensor<40x30xf32>
  return %r0, %r2, %r3 : tensor<410xf32>, tensor<24xf32>, tensor<40x30xf32>
}
"""


def test_resume_of_parts(tmp_path):
    """Reduce-scatters keep the error of whole gradients, as all-reduces do."""
    states = check_resume(tmp_path, PARTS, "hook=int4", world=3)
    sizes = sorted(t.data.size for t in states[0].values())
    assert sizes == [72, 1200, 1230]
    assert all(t.data.any() for t in states[1].values())
