# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The hook `topk` on a device, over several steps, to the last bit against the model
of test/parity: ties, infinities and NaNs, all element types, in one and in several
buckets."""

import pytest
import test_topk
from cases import Function, Grad, Module
from tensors import DTYPES
from topk_model import Bucket


def make_modules(device, worlds, module, options):
    """Each is of a job of so many ranks; of how many, the recorder does not know."""
    for world in (1, 2, 4) if device.modules.record else worlds:
        device.modules.make(test_topk.sized(module, world), options)
    if device.modules.record:
        pytest.skip("recorded")


@pytest.mark.parametrize("kind", ["gaussian", "ties", "special"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_steps(device, exact, worlds, tmp_path, dtype, kind):
    number = list(DTYPES).index(dtype) + len(kind)
    density = test_topk.DENSITIES[number % 3]
    reduction = ["mean", "sum"][number % 2]
    grads = [Grad(shape, dtype, reduction) for shape in test_topk.SHAPES]
    module = Module([Function("step", grads)])
    options = f"hook=topk density={density}"
    make_modules(device, worlds, module, options)
    for world in worlds:
        path = tmp_path / str(world)
        path.mkdir()
        inputs = test_topk.make_inputs(module, world, kind)
        got = test_topk.run(path, module, inputs, options)
        bucket = Bucket(world, density)
        test_topk.check(got, inputs, range(len(grads)), bucket, reduction == "mean")


def test_several_buckets(device, exact, worlds, tmp_path):
    """Beside each other in flight with another hook; without feeding back."""
    grads = [Grad((41, 17)), Grad((1,), "bf16"), Grad((2000,), "f16", "sum")]
    grads.append(Grad((19,), hook=("allreduce",)))
    module = Module([Function("step", grads)])
    options = "hook=topk error-feedback=false bucket-cap-mb=0"
    make_modules(device, worlds, module, options)
    for world in worlds:
        path = tmp_path / str(world)
        path.mkdir()
        inputs = test_topk.make_inputs(module, world, "gaussian")
        got = test_topk.run(path, module, inputs, options)
        for number, grad in enumerate(grads[:-1]):
            bucket = Bucket(world, feedback=False)
            test_topk.check(got, inputs, [number], bucket, grad.reduction == "mean")
