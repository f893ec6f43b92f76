# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Divisions by numbers of ranks whose inverse is not exact, as PyTorch's eager hooks do
them on CUDA tensors: every bit, against the model of test/parity. Every element is 0 on
all ranks but one, so that the order of sums does not matter."""

import functools

import cases
import pytest
import runner
from cases import Function, Grad, Module, Options

WORLDS = (3, 5, 6, 7)
HOOKS = [
    ("allreduce",),
    ("fp16",),
    ("bf16",),
    ("wrap", "f16", ("allreduce",)),
    ("quantization_pertensor",),
    ("quantization_perchannel",),
]


@pytest.mark.parametrize("is_exact", [False, True], ids=["torch", "exact"])
@pytest.mark.parametrize("world", WORLDS)
def test_every_hook(device, worlds, tmp_path, world, is_exact):
    grads = [
        Grad((41, 37), dtype, values=values, hook=hook)
        for hook in HOOKS
        for dtype in ("f16", "bf16", "f32", "f64")
        for values in ("gaussian", "wide", "subnormal")
    ]
    module = Module([Function("step", grads)])
    options = Options(bucket_cap_mb=0)
    device.modules.require(module.text(), options.text())
    if device.is_real and world not in worlds:
        pytest.skip(f"{world} ranks; choose them with --worlds")
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    inputs = cases.make_inputs(module, "step", world, 1, [runner.SEED, world])
    inputs = cases.with_one_owner(inputs)
    directory.write_inputs(inputs)
    env = {"EMULATED_CUDA_DEVICES": world}
    if device.name != "guarded":
        env["DDPHOOK_BACKEND_OPTIONS"] = f"exact_division={int(is_exact)}"
    got = runner.run(directory, "step", world, 1, options.text(), env)

    def report(on_cuda):
        reference = functools.partial(cases.model_reference, on_cuda=on_cuda)
        want = cases.expected(module, "step", options, inputs, reference)
        return cases.difference_of(got, want)

    on_cuda = device.name != "guarded" and not is_exact
    assert not report(on_cuda)
    assert report(not on_cuda), "both divisions have the same bits"
