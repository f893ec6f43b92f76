# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of PowerSGD for test_numerics.py and test_statistics.py: a case, its options, and
its results with the states before and after."""

import runner
import tensors
from powersgd_cases import SHAPES, Case
from powersgd_model import Config

START = 2


def make_case(dtype, world, shapes="mlp", **options):
    shapes = tuple(SHAPES[shapes] if isinstance(shapes, str) else shapes)
    return Case("numerics", shapes, dtype, Config(), world, "gaussian", **options)


def pipeline(options, rank=2):
    return (
        f"{options} start-powersgd-iter={START} matrix-approximation-rank={rank}"
    )


def run(path, case, inputs, options, before=None, env=None, summary=False):
    """Returns results [rank][step][number], states by rank {name: Tensor}, and stderr."""
    directory = runner.Directory(path)
    directory.write_module(case.module.text())
    directory.clear_outputs()
    directory.write_inputs(inputs)
    steps = len(inputs[0])
    arguments = directory.arguments("step", case.world, steps, options)
    states_in, states_out = (
        str(directory.path / f"{name}.state.{{rank}}.safetensors")
        for name in ("in", "out")
    )
    if before is not None:
        for rank, states in enumerate(before):
            tensors.save(states_in.format(rank=rank), states)
        arguments.append(f"--state-in=strict:{states_in}")
    arguments.append(f"--state-out={states_out}")
    # Devices print no summary.
    more = {"summary": True} if summary else {}
    result = runner.finish(runner.start(arguments, env, **more))
    assert result.code == 0, f"{options}; stderr:\n{result.stderr}"
    after = [tensors.load(states_out.format(rank=r)) for r in range(case.world)]
    return directory.read_outputs(case.world, steps), after, result.stderr
