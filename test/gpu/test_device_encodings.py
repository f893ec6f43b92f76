# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Encoded reductions on a device, to the last bit: affine codes against PyTorch's
hooks, and all codes against the models of test/parity, with errors that are fed
back, both roundings, in flight."""

import cases
import model
import numpy as np
import pytest
import quantization_model
import runner
import test_parity
import test_rounding
from cases import Function, Grad, Module
from tensors import Tensor, difference
from test_quantization import AFFINE, DTYPES, ONE_EACH, SCALED, VALUES


def test_every_code(device, exact, worlds, tmp_path):
    grads = [
        Grad((1, 257), dtype, reduction, values=values, hook=hook)
        for number, hook in enumerate(SCALED + AFFINE)
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


def test_pytorchs_hooks(device, like_the_oracle, pool, worlds, tmp_path):
    """Blocks of one element, of a warp, and of several thread blocks."""
    grads = [
        Grad(shape, dtype, values=values, hook=hook)
        for hook in AFFINE
        for dtype in DTYPES
        for shape, some in [((1, 257), VALUES), ((1024,), VALUES[:2]), ((5, 1001), ["wide"])]
        for values in some
    ]
    module = Module([Function("step", grads)])
    device.modules.require(module.text(), ONE_EACH.text())
    for world in worlds:
        path = tmp_path / str(world)
        path.mkdir()
        test_parity.check(path, pool.run_groups, module, ONE_EACH, world, steps=1)


SIGNS = """ddp.process_group @dp
func.func @step(%x: tensor<{size}x{dtype}>)
    -> (tensor<{size}x{dtype}>, tensor<{size}x{dtype}>) {{
  %b = ddp.pack %x : tensor<{size}x{dtype}> -> !ddp.bucket<{dtype}, [{size}]>
  %r = ddp.all_reduce mean %b on @dp wire !ddp.encoded<{code}> as "b0"
      : !ddp.bucket<{dtype}, [{size}]>
  %u = ddp.unpack %r : !ddp.bucket<{dtype}, [{size}]> -> tensor<{size}x{dtype}>
  %e = ddp.encoding_error %x as !ddp.encoded<{code}> : tensor<{size}x{dtype}>
  return %u, %e : tensor<{size}x{dtype}>, tensor<{size}x{dtype}>
}}
"""


@pytest.mark.parametrize("code, block", [("ui1", 64), ("ui1", 0), ("ui8", 100), ("ui8", 0)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_codes_of_other_dialects(device, exact, worlds, tmp_path, dtype, code, block):
    """What hooks of other dialects are made of, and what a rank's codes lose."""
    size = 5003
    name = f"{code}, {block}" if block else code
    text = SIGNS.format(size=size, dtype=dtype, code=name)
    device.modules.require(text)
    for world in worlds:
        path = tmp_path / str(world)
        path.mkdir()
        directory = runner.Directory(path)
        directory.write_module(text)
        random = np.random.default_rng([runner.SEED, DTYPES.index(dtype), world])
        inputs = [
            model.cast(Tensor("f64", random.standard_normal(size)), dtype)
            for _ in range(world)
        ]
        if block:
            inputs[0].data[7] = 0x7FC0 if dtype == "bf16" else np.nan
        directory.write_inputs([[[tensor]] for tensor in inputs])
        got = runner.run(directory, "step", world, 1)
        arrays = [model._values(tensor) for tensor in inputs]
        reduce = quantization_model.reduce_affine
        if code == "ui1":
            reduce = quantization_model.reduce_signs
        total = reduce(arrays, block, world)
        want = model.cast(Tensor("f32", total), dtype)
        for rank in range(world):
            reduced, lost = got[rank][0]
            assert difference(reduced, want) is None, f"rank {rank} of {world}"
            error = quantization_model.encoding_error(arrays[rank], code, block)
            wanted = Tensor(dtype, error.view(inputs[rank].data.dtype))
            assert difference(lost, wanted) is None, f"rank {rank} of {world}"


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
