# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stateless hooks on a device against PyTorch's on the same one: every bit."""

from dataclasses import replace

import cases
import numpy as np
import pytest
import runner
import test_parity
from cases import Function, Grad, Module, Options


@pytest.fixture
def check(device, worlds, pool, tmp_path, like_the_oracle):
    def run(module, options, number=0, **rest):
        device.modules.require(module.text(), options.text())
        chosen = worlds if device.is_real else [worlds[number % len(worlds)]]
        for world in chosen:
            path = tmp_path / str(world)
            path.mkdir()
            # The emulated NCCL does not add in Gloo's order.
            rest["one_owner"] = device.name == "cuda_emulated" and world > 2
            test_parity.check(path, pool.run_groups, module, options, world, **rest)

    return run


HOOKS = [(hook, wrapper) for hook in cases.BASES for wrapper in cases.WRAPPERS]


@pytest.mark.parametrize(
    "number, hook, wrapper", [(i, *hook) for i, hook in enumerate(HOOKS)]
)
def test_every_hook(check, number, hook, wrapper):
    buckets = test_parity.BUCKETS[number % len(test_parity.BUCKETS)]
    module = cases.everything(groups=("dp", "dp2"))
    check(module, Options(hook=hook, wrapper=wrapper, **buckets), number)


@pytest.mark.parametrize("buckets", test_parity.BUCKETS, ids=test_parity.buckets_id)
@pytest.mark.parametrize("hook", ["allreduce", "fp16", "bf16"])
def test_bucket_layouts(check, hook, buckets):
    number = 1 + test_parity.BUCKETS.index(buckets)
    check(cases.everything(), Options(hook=hook, **buckets), number)


def test_every_16_bit_value(check):
    grads = [
        Grad((6, 2**16), "f32", reduction, values="every", hook=hook)
        for reduction in ("mean", "sum")
        for hook in (("fp16",), ("bf16",), ("wrap", "f16", ("bf16",)))
    ]
    check(Module([Function("step", grads)]), Options(), 1, steps=1)


def test_large_buckets(check):
    """Several megabytes, and sizes that no vector divides."""
    grads = [
        Grad((2**20 + 3,), "f32", hook=("fp16",)),
        Grad((2**19 + 1,), "f32", values="wide"),
        Grad((2**18, 3), "f64", "sum"),
        Grad((2**20 + 5,), "bf16"),
    ]
    check(Module([Function("step", grads)]), Options(), 2, steps=1)


@pytest.mark.parametrize("seed", range(8))
def test_random_modules(check, seed):
    rng = np.random.default_rng([runner.SEED, 3000, seed])
    module, options = cases.random_module(rng)
    functions = [replace(f, body="plain", ready=None) for f in module.functions]
    check(replace(module, functions=functions), options, seed)


@pytest.mark.parametrize("body", ["produced", "consumed"])
def test_gradients_that_the_module_computes(device, check, body):
    """In kernels of the module's own."""
    grads = [Grad((n,), "f32", values="wide") for n in (1, 7, 1009, 4096)]
    ready = [2, 0, 3, 1]
    module = Module([Function("step", grads, None, body, ready)])
    if device.name == "guarded":
        pytest.skip("the backend guarded runs no kernels of modules")
    check(module, Options(hook="fp16"), 0)
