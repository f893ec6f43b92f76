# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Collectives in flight, compared with PyTorch's hooks: the tests of test_parity.py and
test_powersgd.py, compiled with overlap, with one, two and four in flight."""

import dataclasses
import itertools

import numpy as np
import pytest

import cases
import runner
import test_parity
import test_powersgd
from cases import Function, Grad, Module
from powersgd_cases import SHAPES, Case
from powersgd_model import Config
from tensors import difference
from test_parity import torch_hooks  # noqa: F401

DEPTHS = (1, 2, 4)


@dataclasses.dataclass(frozen=True)
class Options(cases.Options):
    overlap: str = "true"
    overlap_depth: int = 2


@dataclasses.dataclass(frozen=True)
class OverlapCase(Case):
    overlap: str = ""

    def pipeline(self, *more):
        return super().pipeline(*more, self.overlap)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("hook", ["allreduce", "fp16", "bf16"])
@pytest.mark.parametrize("body", ["plain", "produced", "consumed"])
def test_hooks(torch_hooks, tmp_path, body, hook, depth):  # noqa: F811
    """Small buckets; gradients are computed, and averages used, between the reductions."""
    (function,) = cases.everything(groups=("dp", "dp2")).functions
    ready = np.random.default_rng(runner.SEED).permutation(len(function.grads))
    module = Module(
        [Function("step", function.grads, None, body, list(ready))],
        {"dp": "", "dp2": ""},
    )
    options = Options(hook=hook, bucket_cap_mb=0.002, overlap_depth=depth)
    world = 2 + depth % 3
    test_parity.check(tmp_path, torch_hooks, module, options, world)


@pytest.mark.parametrize(
    "hook",
    [
        "int4",
        "int8 error-feedback=true",
        "int4 rounding=stochastic random-seed=7",
        "fp8 rounding=stochastic random-seed=7",
    ],
)
def test_error_feedback(tmp_path, hook):
    """In flight, with error feedback in a state: bits equal those of the same steps without
    overlap."""
    grads = [Grad((n, 33), "f32") for n in (40, 1, 129, 7)]
    module = Module([Function("step", grads, None, "produced", [2, 0, 3, 1])])
    directory = runner.Directory(tmp_path)
    directory.write_module(module.text())
    world, steps = 3, 3
    directory.write_inputs(
        cases.make_inputs(module, "step", world, steps, [runner.SEED, 4])
    )
    options = f"hook={hook} bucket-cap-mb=0.01 first-bucket-mb=0"
    threads = {"DDPHOOK_BACKEND_OPTIONS": "async_progress=always"}
    want = runner.run(directory, "step", world, steps, f"{options} overlap=false")
    got = runner.run(directory, "step", world, steps, options, threads)
    for rank, step in itertools.product(range(world), range(steps)):
        for number, (ours, theirs) in enumerate(zip(got[rank][step], want[rank][step])):
            where = f"rank {rank}, step {step}, gradient {number}"
            assert difference(ours, theirs) is None, where


SHAPES_OF_ALL = tuple(SHAPES["transformer"] + SHAPES["same"])
POWERSGD = [
    ("ranks-1", Config(), 3, 0.01, ""),
    ("ranks-4", Config(matrix_approximation_rank=4), 2, 0.01, ""),
    ("groups", Config(matrix_approximation_rank=4), 2, None, "group-mb=0.0078125"),
    ("cold", Config(warm_start=False, use_error_feedback=False), 2, 0.01, ""),
    ("fp16", Config(matrix_approximation_rank=2, wrapper="fp16"), 2, 0.01, ""),
    ("batched", Config(matrix_approximation_rank=2, batched=True), 2, 0.01, ""),
    ("vanilla", Config(start_powerSGD_iter=5), 2, 0.01, ""),
]


# Whether buckets and groups alternate.
POWERSGD_DEPTHS = [(1, "true"), (2, "true"), (4, "true"), (1, "false"), (2, "false")]


@pytest.mark.parametrize("depth, interleave", POWERSGD_DEPTHS)
@pytest.mark.parametrize("name, config, world, cap_mb, more", POWERSGD)
def test_powersgd_step_by_step(
    pool, tmp_path, name, config, world, cap_mb, more, depth, interleave
):
    overlap = f"{more} overlap=true overlap-depth={depth} interleave={interleave}"
    overlap = overlap.strip()
    case = OverlapCase(
        name, SHAPES_OF_ALL, "f32", config, world, cap_mb=cap_mb, overlap=overlap
    )
    reference = test_powersgd.torch_reference(pool)
    test_powersgd.check(tmp_path, case, reference, pack=depth != 1)
