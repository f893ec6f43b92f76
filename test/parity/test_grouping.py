# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PowerSGD in groups of matrices computes the same as bucket by bucket.

There is no oracle: compiled code is compared with itself. With one and two ranks,
results and states are equal bit by bit; with three, up to rounding, since an element's
position in its message determines the order in which ranks are added.
"""

import numpy as np
import pytest

import powersgd_runner
import runner
from powersgd_cases import SHAPES, Case
from powersgd_model import Config
from tensors import Tensor

STEPS = 4
OPTIONS = {
    "error feedback": ({}, ""),
    "three collectives": ({}, "pack-collectives=false"),
    "without error feedback": ({"use_error_feedback": False}, ""),
    "cold": ({"warm_start": False}, ""),
    "fp16": ({"wrapper": "fp16"}, ""),
    "no overlap": ({}, "overlap=false"),
    "local errors": ({}, "local-error-feedback=true"),
    "interleaved": ({}, "interleave=true overlap-depth=2"),
    "sum": ({}, ""),
}


def gradients(shapes, rank, step):
    random = np.random.default_rng([runner.SEED, rank, step])
    return [Tensor("f32", random.standard_normal(s).astype(np.float32)) for s in shapes]


# Shapes, and the size of a group in MiB.
MODELS = {
    # With 8 KiB, most groups are single matrices, and some have several.
    "layers": (SHAPES["transformer"] + SHAPES["same"] + [(7,)], 0.0078125),
    # Each of twelve groups has a matrix of either shape: their factors are in 24 locations
    # of Q.
    "many groups": ([(24, 20), (20, 30)] * 12 + [(7,)], 0.005),
    # Matrices that the runtime splits into blocks of rows.
    "large": ([(1100, 512), (7,), (800, 600), (512, 600)], 2.2),
}


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("model", MODELS)
def test_groups_change_nothing(tmp_path, model, options, world):
    settings, pipeline = OPTIONS[options]
    shapes, group_mb = MODELS[model]
    config = Config(matrix_approximation_rank=2, start_powerSGD_iter=2, **settings)
    reduction = "sum" if options == "sum" else "mean"
    case = Case(
        f"grouping {options}", tuple(shapes), "f32", config, world, reduction=reduction
    )
    inputs = [
        [gradients(shapes, rank, step) for step in range(STEPS)]
        for rank in range(world)
    ]
    whole, whole_state = powersgd_runner.run(
        tmp_path, case, inputs, f"{pipeline} group-mb=0"
    )
    parts, parts_state = powersgd_runner.run(
        tmp_path, case, inputs, f"{pipeline} group-mb={group_mb}"
    )

    def check(got, want):
        assert got.dtype == want.dtype
        if world <= 2:
            np.testing.assert_array_equal(got.data, want.data)
            return
        limit = 1e-2 if config.wrapper else 1e-4
        wide = want.data.astype(np.float64)
        error = np.abs(got.data.astype(np.float64) - wide).max(initial=0)
        assert error <= limit * np.abs(wide).max(initial=0)

    for rank in range(world):
        for step in range(STEPS):
            for got, want in zip(parts[rank][step], whole[rank][step], strict=True):
                check(got, want)
        got, want = parts_state[rank], whole_state[rank]
        assert got.iter == want.iter == STEPS
        np.testing.assert_array_equal(got.generator, want.generator)
        for part, all_of in ((got.error, want.error), (got.q, want.q)):
            assert part.keys() == all_of.keys()
            for number in part:
                check(part[number], all_of[number])
