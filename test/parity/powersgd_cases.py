# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models, options and gradients for the tests of PowerSGD, and the distance of results.
powersgd_condition.py has the permitted distance.

The full product of shapes, options and ranks would be thousands of cases; `pairwise`
chooses a few that contain every pair of values of any two settings.
"""

import itertools
import random
from dataclasses import dataclass

import numpy as np

import cases
import model
import runner
from cases import Function, Grad, Module, Options
from powersgd_model import Config
from tensors import Tensor

# Gradients of real models, and unusual ones. Convolutions are treated as matrices with
# shape[0] rows.
SHAPES = {
    "mlp": [(64, 32), (64,), (48, 64), (48,), (10, 48), (10,)],
    "conv": [(8, 3, 3, 3), (8,), (16, 8, 3, 3), (16,), (10, 256), (10,)],
    "transformer": [
        *[(48,), (48,), (144, 48), (144,), (48, 48), (48,)],
        *[(48,), (48,), (192, 48), (192,), (48, 192), (48,)],
    ],
    "awkward": [
        *[(1, 257), (257, 1), (2, 4000), (3, 5), (31, 37), (97, 101), (7,)],
        *[(20, 24), (2, 2, 2, 2), (1, 1), (24, 20), (20, 24)],
    ],
    "same": [(20, 24), (33, 17), (20, 24), (5,), (20, 4, 6), (33, 17), (20, 24)],
    "nothing": [(7,), (3, 5), (64,), (1, 257), (6, 6)],
    "everything": [(40, 30), (30, 40), (64, 21)],
}

# Element type of the gradients, wrapper, whether batched.
KINDS = {
    "f32": ("f32", None, False),
    "f64": ("f64", None, False),
    "fp16": ("f32", "fp16", False),
    "bf16": ("f32", "bf16", False),
    "batched": ("f32", None, True),
    "batched-f64": ("f64", None, True),
    "batched-fp16": ("f32", "fp16", True),
    "batched-bf16": ("f32", "bf16", True),
}

# Measurements for the summary at the end of a run: the largest deviations by kind, and
# the drift of results whose states are not reset.
MEASURED = {}
DRIFT = {}


@dataclass(frozen=True)
class Case:
    name: str
    shapes: tuple
    dtype: str
    config: Config
    world: int
    values: str = "mixed"
    cap_mb: float = None
    reduction: str = "mean"
    seed: int = 0

    @property
    def first(self):
        """The number of the first compressed step."""
        return max(self.config.start_powerSGD_iter, 0)

    @property
    def kind(self):
        inner = self.config.inner_dtype(self.dtype)
        return f"batched {inner}" if self.config.batched else inner

    @property
    def module(self):
        grads = [Grad(s, self.dtype, self.reduction) for s in self.shapes]
        return Module([Function("step", grads)])

    @property
    def buckets(self):
        """The buckets as lists of gradients' numbers, in the order of communication."""
        module, options = self.module, Options(bucket_cap_mb=self.cap_mb)
        (function,) = module.functions
        return [b[0] for b in cases.buckets_of(module, function, options)]

    @property
    def bucket_shapes(self):
        return [[self.shapes[i] for i in numbers] for numbers in self.buckets]

    def pipeline(self, *more):
        options = Options(bucket_cap_mb=self.cap_mb).text()
        return " ".join(filter(None, [self.config.pipeline(), options, *more]))

    def gradients(self, steps):
        """Returns gradients [rank][step][number]."""
        return [
            [
                [self._gradient(rank, step, i) for i in range(len(self.shapes))]
                for step in range(steps)
            ]
            for rank in range(self.world)
        ]

    def _gradient(self, rank, step, number):
        shape = self.shapes[number]
        rng = np.random.default_rng([runner.SEED, self.seed, rank, step, number])
        # The part that all ranks have in common, as in real gradients.
        shared = np.random.default_rng([runner.SEED, self.seed, step, number])
        kind = self.values
        if kind == "mixed":
            kind = ["gaussian", "decaying"][number % 2]
        if kind == "zeros" and number % 2:
            kind = "gaussian"
        data = _VALUES[kind](shape, rng, shared)
        # Separate matrices may have different scales; in a single matrix of everything, the
        # small ones would vanish in the large ones' rounding errors.
        if not self.config.batched:
            data = data * 10.0 ** (number % 3 - 1)
        tensor = model.cast(Tensor("f64", np.asarray(data)), self.dtype)
        return Tensor(self.dtype, tensor.data.reshape(shape))

    def flat(self, gradients):
        """Converts [rank][step][number] to flat data [rank][step][bucket]."""
        return [
            [
                [
                    Tensor(
                        self.dtype,
                        np.concatenate([step[i].data.reshape(-1) for i in numbers]),
                    )
                    for numbers in self.buckets
                ]
                for step in rank
            ]
            for rank in gradients
        ]


def _gaussian(shape, rng, shared):
    return rng.standard_normal(shape) + shared.standard_normal(shape)


def _decaying(shape, rng, shared):
    """Returns a matrix whose singular values decrease by a factor of 0.6."""
    rows = shape[0] if shape else 1
    columns = int(np.prod(shape, dtype=int)) // rows if rows else 0
    count = min(rows, columns, 12)
    left, right = shared.standard_normal((rows, count)), shared.standard_normal(
        (count, columns)
    )
    matrix = (left * 0.6 ** np.arange(count)) @ right
    noise = rng.standard_normal((rows, columns))
    return (matrix + 0.05 * noise).reshape(shape)


def _zeros(shape, rng, shared):
    return np.zeros(shape)


_VALUES = {"gaussian": _gaussian, "decaying": _decaying, "zeros": _zeros}


def pairwise(factors, seed):
    """Returns rows (one choice for every factor) that contain each pair of choices of two
    factors. The search is greedy; equal seeds give equal rows."""
    names, rng = list(factors), random.Random(seed)
    left = {
        ((a, x), (b, y))
        for a, b in itertools.combinations(names, 2)
        for x in factors[a]
        for y in factors[b]
    }

    def pairs(row):
        return set(itertools.combinations([(n, row[n]) for n in names], 2))

    rows = []
    while left:
        (a, x), (b, y) = min(left, key=repr)
        best = None
        for _ in range(40):
            row = {name: rng.choice(factors[name]) for name in names}
            row[a], row[b] = x, y
            gain = len(pairs(row) & left)
            if best is None or gain > best[0]:
                best = gain, row
        rows.append(best[1])
        left -= pairs(best[1])
    return rows


FACTORS = {
    "shapes": list(SHAPES),
    "kind": list(KINDS),
    "world": [1, 2, 3, 4],
    "rank": [1, 2, 3, 4, 8],
    "feedback": [True, False],
    "warm": [True, False],
    "epsilon": [0, 1e-8],
    "same": [True, False],
    "rate": [2, 0.5, 1.3],
    "cap": [None, 0.01],
}


def matrix_of_cases():
    result = []
    for number, row in enumerate(pairwise(FACTORS, 1)):
        dtype, wrapper, batched = KINDS[row["kind"]]
        config = Config(
            matrix_approximation_rank=row["rank"],
            # The earliest step that PyTorch accepts.
            start_powerSGD_iter=2 if row["feedback"] or row["warm"] else number % 2,
            min_compression_rate=row["rate"],
            use_error_feedback=row["feedback"],
            warm_start=row["warm"],
            orthogonalization_epsilon=row["epsilon"],
            random_seed=[0, 1, 2**32 - 1, 12345][number % 4],
            batch_tensors_with_same_shape=row["same"],
            batched=batched,
            wrapper=wrapper,
        )
        name = "-".join(
            [
                row["shapes"],
                row["kind"],
                f"r{row['rank']}",
                f"w{row['world']}",
                "ef" if row["feedback"] else "noef",
                "warm" if row["warm"] else "cold",
                f"eps{row['epsilon']:g}",
                f"rate{row['rate']}",
                "same" if row["same"] else "each",
                "many" if row["cap"] else "one",
            ]
        )
        shapes = tuple(SHAPES[row["shapes"]])
        result.append(
            Case(name, shapes, dtype, config, row["world"], "mixed", row["cap"],
                 seed=number)
        )  # fmt: skip
    return result


def _extra(name, shapes, world, values="mixed", dtype="f32", seed=0, **options):
    shapes = tuple(SHAPES[shapes] if isinstance(shapes, str) else shapes)
    return Case(name, shapes, dtype, Config(**options), world, values, seed=1000 + seed)


def extra_cases():
    """Returns cases that the matrix of cases lacks."""
    r, start = "matrix_approximation_rank", "start_powerSGD_iter"
    rate, epsilon = "min_compression_rate", "orthogonalization_epsilon"
    cold = {"use_error_feedback": False, "warm_start": False}
    return [
        # Becomes NaN in the first compressed step, and stays NaN.
        _extra(
            "zeros-gram-schmidt", "same", 2, "zeros", **{r: 1}, keep_zero_columns=False
        ),
        _extra("zeros-epsilon", "same", 2, "zeros", **{r: 2, epsilon: 1e-8}),
        _extra("zeros-qr", "same", 3, "zeros", **{r: 4}),
        _extra("zeros-batched", [(40, 30)], 2, "zeros", **{r: 3, "batched": True}),
        _extra("large-epsilon", "mlp", 3, **{r: 2, epsilon: 0.5}),
        _extra("negative-start", "conv", 2, **{start: -3}, **cold),
        _extra("late-start", "conv", 3, **{start: 4, r: 2}),
        # Vectors are matrices of one column; here, compressing them saves bytes.
        _extra("vectors", "mlp", 3, **{rate: 0.1, r: 3}),
        _extra("everything-at-any-rate", "awkward", 2, **{rate: 1e-3, r: 8}),
        _extra("nothing-at-any-rate", "transformer", 3, **{rate: 1000}),
        _extra("rank-beyond-all", [(12, 9), (9, 12), (30, 7)], 2, **{r: 64, rate: 0.1}),
        _extra("f16", "transformer", 3, dtype="f16", **{r: 4}),
        _extra("bf16", "transformer", 3, dtype="bf16", **{r: 4}),
        _extra("f64-through-bf16", "conv", 2, dtype="f64", wrapper="bf16"),
        _extra("f16-through-bf16", "conv", 2, dtype="f16", wrapper="bf16"),
        _extra("larger", [(300, 200), (200,), (257, 511)], 4, **{r: 4}),
    ]


def wide(tensor):
    return model.cast(tensor, "f64").data.reshape(-1)


def distance(got, want, scale):
    """Returns max |got − want| / scale of flat arrays; infinite if only one is not finite,
    or if the scale is zero but there is a difference."""
    if got.shape != want.shape:
        raise AssertionError(f"expected {want.shape} elements, but got {got.shape}")
    odd = ~np.isfinite(want)
    if not np.array_equal(got[odd], want[odd], equal_nan=True):
        return np.inf
    with np.errstate(all="ignore"):
        gap = np.abs(got[~odd] - want[~odd]).max(initial=0)
    if np.isnan(gap):
        return np.inf
    return 0.0 if gap == 0 else (gap / scale if scale else np.inf)


def largest(values):
    finite = np.abs(values[np.isfinite(values)])
    return finite.max(initial=0)


def with_signs_of(factor, other):
    """Returns a factor whose columns point where those of another one do. A QR may turn
    columns round, and turns those of P and Q together."""
    if factor.shape[1] <= 2:
        return factor  # Gram-Schmidt has no choice.
    with np.errstate(all="ignore"):
        return factor * np.where((factor * other).sum(axis=0) < 0, -1, 1)


def distances(layouts, gradients, before, got, want, any_signs=False):
    """Compares the results of a compressed step on one rank: yields (what, bucket, number)
    and a distance. Results ("out") and factors ("Q") are compared matrix by matrix,
    relative to the matrix's largest element; errors ("E") relative to that of gradient +
    error before the step; `any_signs` is about the columns of Q. `gradients` is by bucket, `before` is a state; `got` and `want`
    are pairs of results by bucket and the state after the step."""
    (got, after), (want, expected) = got, want
    for bucket, layout in enumerate(layouts):
        ours, theirs = wide(got[bucket]), wide(want[bucket])
        for number, matrix in enumerate(layout.matrices):
            part = slice(matrix.offset, matrix.offset + matrix.rows * matrix.columns)
            far = distance(ours[part], theirs[part], largest(theirs[part]))
            yield ("out", bucket, number), far
        if bucket in after.error:
            ours, theirs = wide(after.error[bucket]), wide(expected.error[bucket])
            total = np.zeros(theirs.shape)
            total[: layout.count] = wide(gradients[bucket])
            if bucket in before.error:
                total += wide(before.error[bucket])
            yield ("E", bucket, 0), distance(ours, theirs, largest(total))
        if bucket in after.q:
            ours, theirs = wide(after.q[bucket]), wide(expected.q[bucket])
            pairs = zip(layout.factors(ours, 1), layout.factors(theirs, 1))
            for number, (left, right) in enumerate(pairs):
                left = with_signs_of(left, right) if any_signs else left
                far = distance(left.reshape(-1), right.reshape(-1), largest(right))
                yield ("Q", bucket, number), far


class Deviations:
    """The largest distances, and the largest ratios to their limits, by what was compared;
    and all distances beyond their limits."""

    def __init__(self):
        self.worst, self.share, self.beyond = {}, {}, []

    def add(self, limits, found):
        """Adds distances in the form of distances(); `limits` has the same keys."""
        for key, far in found:
            what, bucket, number = key
            limit = limits[key]
            self._note(what, far, far / limit)
            if not far <= limit:
                self.beyond.append(
                    f"{what} {number} of bucket {bucket}: {far:.3g} where {limit:.3g} "
                    "is allowed"
                )

    def _note(self, what, far, share):
        self.worst[what] = max(self.worst.get(what, 0.0), float(far))
        self.share[what] = max(self.share.get(what, 0.0), float(share))

    def merge(self, other):
        for what, value in other.worst.items():
            self._note(what, value, other.share.get(what, 0.0))
        self.beyond += other.beyond

    def report(self):
        """Returns one line for a summary."""
        return ", ".join(
            f"{what} {value:.1e} ({self.share[what]:.0%} of its limit)"
            for what, value in sorted(self.worst.items())
        )
