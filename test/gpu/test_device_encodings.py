# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Encoded reductions on a device, to the last bit against the models of test/parity:
casts and scaled codes, errors that are fed back, both roundings, in flight."""

import cases
import numpy as np
import pytest
import runner
import test_parity
import test_rounding
from cases import Function, Grad, Module
from tensors import difference
from test_quantization import DTYPES, ONE_EACH, SCALED, VALUES


def test_every_code(device, worlds, tmp_path):
    grads = [
        Grad((1, 257), dtype, reduction, values=values, hook=hook)
        for number, hook in enumerate(SCALED)
        for dtype in DTYPES
        for values in ("special", VALUES[number % 3])
        for reduction in [("mean", "sum")[number % 2]]
    ]
    module = Module([Function("step", grads)])
    device.modules.require(module.text(), ONE_EACH.text())
    for world in worlds:
        path = tmp_path / str(world)
        path.mkdir()
        reference = cases.model_reference
        test_parity.check(path, reference, module, ONE_EACH, world, steps=1)


@pytest.mark.parametrize("hook", test_rounding.HOOKS)
def test_steps(device, worlds, tmp_path, hook):
    """Rounded stochastically, with error feedback; an infinity is not fed back."""
    grads = [Grad((7, 133), "f32"), Grad((5, 61), "bf16"), Grad((129,), "f64")]
    module = Module([Function("step", grads)])
    options = f"{test_rounding.options_of(hook, True)} bucket-cap-mb=0"
    device.modules.require(module.text(), options)
    for world in worlds:
        path = tmp_path / str(world)
        path.mkdir()
        directory = runner.Directory(path)
        directory.write_module(module.text())
        inputs = cases.make_inputs(module, "step", world, 3, [runner.SEED, world])
        inputs[-1][1][0].data[0, 7] = np.inf
        directory.write_inputs(inputs)
        got = runner.run(directory, "step", world, 3, options)
        for number, grad in enumerate(grads):
            bucket = test_rounding.Bucket(hook, f"step.arg{number}", True)
            for step in range(3):
                flats = [
                    test_rounding.flatten([inputs[rank][step][number]])
                    for rank in range(world)
                ]
                want = bucket.reduce(flats, mean=True)
                for rank in range(world):
                    result = test_rounding.flatten([got[rank][step][number]])
                    assert difference(result, want) is None, (grad, step, rank)
