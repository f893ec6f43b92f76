# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far two right results of a compressed step may lie apart.

Nobody promises the order of a sum, so matrix products, norms and QR factorisations
differ from processor to processor by rounding errors. What these do to the result
depends on the matrices: where columns of P or Q are nearly dependent, orthonormal
ones turn far. So the limits are computed from every step, by small-sample
statistical condition estimation (Kenney and Laub, SIAM J. Sci. Comput. 15, 1994):
the model runs the step again, with a random error of the size of the rounding
errors in every result whose order is free; what that changes is what the step makes
of rounding errors.
"""

import numpy as np

import runner
from powersgd_cases import distances
from powersgd_model import Arithmetic, Model

# The distance between the smallest number above one and one, halved.
UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}

SAMPLES = 3
# An estimate from three samples is more than ten times too small in less than one
# of 800 cases (Kenney and Laub, equation 2.14); errors of one step are many.
FACTOR = 10
# In 16 bits every sum is disturbed as far as a rounding goes, and few really differ.
FACTOR_16_BIT = 3
# What a result that no error is magnified in may be off by: a rounding in the
# result, one in the operand, on both sides.
LEAST = 4


class _Disturbed(Arithmetic):
    """Adds to every sum a random error as large as its rounding errors."""

    def __init__(self, dtype, rng, disturbs_ranks):
        super().__init__(dtype)
        self.unit, self.rng = UNIT[dtype], rng
        self.disturbs_ranks = disturbs_ranks

    def reduce(self, values, squares, count):
        """Every partial sum is rounded; of `count` products of random signs, they
        are about as large as the root of the sum of the squares. In 16 bits the
        sum is more precise, and rounding it may give either neighbour."""
        values = np.asarray(values)
        if self.is_16_bit:
            noise = np.abs(values) * self.rng.uniform(-1, 1, values.shape)
        else:
            noise = np.sqrt(count * squares) * self.rng.standard_normal(values.shape)
        with np.errstate(all="ignore"):
            return super().reduce(values + self.unit * noise, squares, count)

    def householder(self, factor):
        """Each of the reflections leaves an error of a unit of a column's norm, in
        the columns that it was given and in those that it gives."""
        rows, columns = factor.shape

        def disturb(matrix):
            scale = self.unit * np.sqrt(columns / rows) * np.linalg.norm(matrix, axis=0)
            return matrix + scale * self.rng.standard_normal(matrix.shape)

        return disturb(super().householder(disturb(factor)))

    def ring_sum(self, values):
        total = super().ring_sum(values)
        if not self.disturbs_ranks or not total.size:
            return total
        # As many roundings as there are hops, each in any order of the ranks.
        scale = np.max(np.abs(values), 0) * self.unit * (len(values) - 1)
        return self.round(total + scale * self.rng.uniform(-1, 1, total.shape))


def limits(case, gradients, before, reorders_ranks=False):
    """By what was compared, as powersgd_cases.distances() says it. `gradients`
    [rank][bucket], flat; `before` the state of every rank. `reorders_ranks`: ranks
    may be summed in another order than in PyTorch."""
    inner = case.config.inner_dtype(case.dtype)

    def run(arithmetic=None):
        model = Model(case.config, case.world, case.bucket_shapes, case.dtype)
        model.math = arithmetic or model.math
        model.restore(before)
        results = model.step(gradients)
        return model, [(results[r], model.snapshot(r)) for r in range(case.world)]

    model, want = run()
    worst = {}
    for sample in range(SAMPLES):
        rng = np.random.default_rng([runner.SEED, case.seed, sample])
        _, got = run(_Disturbed(inner, rng, reorders_ranks))
        for rank in range(case.world):
            state = gradients[rank], before[rank]
            for key, far in distances(model.layouts, *state, got[rank], want[rank]):
                worst[key] = max(worst.get(key, 0.0), far)
    # Beyond half of the digits nothing would be tested any more.
    most, least = np.sqrt(UNIT[inner]), LEAST * UNIT[inner]
    factor = FACTOR_16_BIT if inner in ("f16", "bf16") else FACTOR
    return {key: min(factor * far + least, most) for key, far in worst.items()}
