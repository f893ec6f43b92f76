# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PowerSGD on a device against PyTorch's on the same one, step by step, and what
a module on a device has to keep from step to step."""

import itertools
from dataclasses import replace

import powersgd_cases
import powersgd_runner
import pytest
import test_numerics
import test_powersgd
from powersgd_cases import Case
from powersgd_model import Config
from tensors import difference


def option(pack):
    return f"pack-collectives={str(pack).lower()}"


@pytest.fixture
def worlds_of(device, worlds):
    def choose(case, number):
        device_worlds = worlds if device.is_real else [worlds[number % len(worlds)]]
        return [replace(case, world=world) for world in device_worlds]

    return choose


def ids(cases):
    return [pytest.param(c, i, id=f"{i}-{c.name}") for i, c in enumerate(cases)]


@pytest.mark.parametrize("case, number", ids(test_powersgd.CASES))
def test_step_by_step(device, worlds_of, request, tmp_path, case, number):
    pack = number % 2 == 1
    device.modules.require(case.module.text(), case.pipeline(option(pack)))
    reference = test_powersgd.torch_reference(request.getfixturevalue("pool"))
    for case in worlds_of(case, number):
        path = tmp_path / str(case.world)
        path.mkdir()
        test_powersgd.check(path, case, reference, pack, on_gpu=device.name != "guarded")


def tall(name, shapes, rank, values="gaussian", **options):
    config = Config(matrix_approximation_rank=rank, **options)
    return Case(f"tall-{name}", shapes, "f32", config, 1, values=values)


# Factors that a GPU orthogonalizes on many blocks: P and Q, beside small ones.
TALL = [
    tall("r1", ((94000, 3), (3, 94000), (50, 40)), 1),
    tall("r2", ((35000, 6), (40, 30), (7, 35001)), 2, orthogonalization_epsilon=1e-8),
    tall("r3", ((12400, 9), (64, 48)), 3, warm_start=False),
    tall("r4", ((9000, 12), (12, 9001), (50,), (48, 64)), 4),
    tall("r8", ((2447, 20), (60, 2600), (9,)), 8, use_error_feedback=False),
    tall("zeros", ((9000, 12), (9001, 12)), 4, values="zeros"),
]


@pytest.mark.parametrize("case, number", ids(TALL))
def test_tall_matrices_step_by_step(
    device, worlds_of, request, tmp_path, case, number
):
    """Each step from PyTorch's state. At ranks 1 and 2 from the model's: PyTorch adds
    the squares of a column one after the other in f32, and of so many it loses more
    than the limits allow."""
    device.modules.require(case.module.text(), case.pipeline(option(True)))
    if device.name == "guarded":
        pytest.skip("the host's kernels know no tall factors")
    reference = test_powersgd.numpy_reference
    if case.config.matrix_approximation_rank > 2:
        reference = test_powersgd.torch_reference(request.getfixturevalue("pool"))
    for case in worlds_of(case, number + 1):
        path = tmp_path / str(case.world)
        path.mkdir()
        test_powersgd.check(path, case, reference, True, on_gpu=True)


KINDS = [
    test_powersgd.free_case(f"{kind}-r{rank}", kind, 1, rank=rank)
    for kind, rank in [("f32", 1), ("f32", 2), ("f32", 4), ("f32", 8),
                       ("f64", 2), ("fp16", 2), ("bf16", 2), ("batched", 2)]
]  # fmt: skip


@pytest.mark.parametrize("case, number", ids(KINDS))
def test_a_run_in_two_halves(device, worlds_of, tmp_path, case, number):
    """Six steps, or three, their states saved, and three more in a process that
    loads them: the same bits."""
    device.modules.require(case.module.text(), case.pipeline())
    for case in worlds_of(case, number):
        path = tmp_path / str(case.world)
        path.mkdir()
        gradients = case.gradients(6)
        whole, end = powersgd_runner.run(path, case, gradients)
        begin = [rank[:3] for rank in gradients]
        rest = [rank[3:] for rank in gradients]
        _, middle = powersgd_runner.run(path, case, begin)
        got, after = powersgd_runner.run(path, case, rest, before=middle)
        for rank, step in itertools.product(range(case.world), range(3)):
            assert not difference(got[rank][step][0], whole[rank][3 + step][0])
        for rank in range(case.world):
            assert not difference(after[rank].error[0], end[rank].error[0])
            assert not difference(after[rank].q[0], end[rank].q[0])


@pytest.mark.parametrize("case, number", ids(KINDS))
def test_ranks_agree_and_stay_finite(device, worlds_of, tmp_path, case, number):
    """Twenty compressed steps: all ranks have the same results, and what is left
    out of them comes later."""
    device.modules.require(case.module.text(), case.pipeline())
    for case in worlds_of(case, number + 1):
        path = tmp_path / str(case.world)
        path.mkdir()
        got, states = powersgd_runner.run(path, case, case.gradients(22))
        for rank, step in itertools.product(range(case.world), range(22)):
            assert not difference(got[rank][step][0], got[0][step][0])
            assert not powersgd_cases.wide(got[rank][step][0]).max() > 1e6
        for rank in range(case.world):
            assert states[rank].iter == 22
            assert not difference(states[rank].q[0], states[0].q[0])


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_gradients_of_a_lower_rank(device, tmp_path, kind):
    test_numerics.test_gradients_of_a_lower_rank(tmp_path, kind)


@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("rank", [1, 2])
def test_zeros_stay_zeros(device, tmp_path, kind, rank):
    test_numerics.test_zeros_stay_zeros(tmp_path, "", kind, rank)
