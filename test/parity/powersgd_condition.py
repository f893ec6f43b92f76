# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The permitted distance between two correct results of a compressed step.

The order of a sum is not specified, so matrix products, norms and QR factorizations
differ between processors by rounding errors. Their effect on the result depends on the
matrices: if columns of P or Q are nearly dependent, the orthonormal ones may turn far.
So the limits are computed for every step, by small-sample statistical condition
estimation (Kenney and Laub, SIAM J. Sci. Comput. 15, 1994): the model repeats the step
with a random error, as large as the rounding errors, in every result whose order is
not specified. The change is the effect of rounding errors on the step.
"""

import numpy as np

import runner
from powersgd_cases import distances
from powersgd_model import Arithmetic, Model

# Half the distance between one and the next larger number.
UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}

SAMPLES = 3
# In less than one of 800 cases, an estimate from three samples is more than ten times too
# small (Kenney and Laub, equation 2.14); a step has many errors.
FACTOR = 10
# In 16 bits, every sum is disturbed by a whole rounding, but few sums really differ.
FACTOR_16_BIT = 3
# The permitted error of a result that magnifies no error: one rounding of the result and
# one of the operand, on both sides.
LEAST = 4


class _Disturbed(Arithmetic):
    """Arithmetic that adds to every sum a random error as large as its rounding errors."""

    def __init__(self, dtype, rng, disturbs_ranks):
        super().__init__(dtype)
        self.unit, self.rng = UNIT[dtype], rng
        self.disturbs_ranks = disturbs_ranks

    def reduce(self, values, squares, count):
        """Disturbs sums: every partial sum is rounded, and for `count` products of random signs,
        partial sums are about as large as the root of the sum of the squares. In 16 bits the
        sum is more precise, and rounding it may give either neighbour."""
        values = np.asarray(values)
        if self.is_16_bit:
            noise = np.abs(values) * self.rng.uniform(-1, 1, values.shape)
        else:
            noise = np.sqrt(count * squares) * self.rng.standard_normal(values.shape)
        with np.errstate(all="ignore"):
            return super().reduce(values + self.unit * noise, squares, count)

    def householder(self, factor):
        """Disturbs the given and the resulting columns: each reflection causes an error of one
        unit of a column's norm."""
        rows, columns = factor.shape

        def disturb(matrix):
            scale = self.unit * np.sqrt(columns / rows) * np.linalg.norm(matrix, axis=0)
            return matrix + scale * self.rng.standard_normal(matrix.shape)

        return disturb(super().householder(disturb(factor)))

    def ring_sum(self, values):
        total = super().ring_sum(values)
        if not self.disturbs_ranks or not total.size:
            return total
        # There is one rounding per hop, and ranks may be added in any order.
        scale = np.max(np.abs(values), 0) * self.unit * (len(values) - 1)
        return self.round(total + scale * self.rng.uniform(-1, 1, total.shape))


def limits(case, gradients, before, reorders_ranks=False):
    """Returns limits by the keys of powersgd_cases.distances(). `gradients` is
    [rank][bucket], flat; `before` is the state of every rank. If `reorders_ranks`, ranks
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
    # Beyond half of the digits, a comparison would no longer test anything.
    most, least = np.sqrt(UNIT[inner]), LEAST * UNIT[inner]
    factor = FACTOR_16_BIT if inner in ("f16", "bf16") else FACTOR
    return {key: min(factor * far + least, most) for key, far in worst.items()}
