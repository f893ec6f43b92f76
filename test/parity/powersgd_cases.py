# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models, options and gradients for the tests of PowerSGD, and how far results
may lie apart.

The full product of shapes, options and ranks would be thousands of cases;
`pairwise` chooses few that have every pair of settings of any two of them.
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

# Real models' gradients, and awkward ones. Convolutions are seen as matrices of
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

# Element type of the gradients, wrapper, batched.
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

# Relative to the largest element of a matrix (out), of gradient + error (E), of
# a factor (Q): about three times what was measured between PyTorch's hooks and
# an independent model (f64: of what one would expect from f32).
LIMITS = {
    "f32": {"out": 1.5e-5, "E": 1.5e-5, "Q": 1.5e-5},
    "f64": {"out": 1e-13, "E": 1e-13, "Q": 1e-13},
    "batched": {"out": 5e-6, "E": 5e-6, "Q": 5e-6},
    "f16": {"out": 6e-3, "E": 3e-3, "Q": 6e-3},
    "bf16": {"out": 1.5e-2, "E": 5e-3, "Q": 1.5e-2},
}


# What tests measured, for the summary at the end of a run: the largest deviations
# by kind, and the drift of results that nothing brings back.
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
        """The first compressed step."""
        return max(self.config.start_powerSGD_iter, 0)

    @property
    def kind(self):
        inner = self.config.inner_dtype(self.dtype)
        return f"batched {inner}" if self.config.batched else inner

    @property
    def limits(self):
        inner = self.config.inner_dtype(self.dtype)
        return LIMITS["batched" if self.config.batched and inner == "f32" else inner]

    @property
    def module(self):
        grads = [Grad(s, self.dtype, self.reduction) for s in self.shapes]
        return Module([Function("step", grads)])

    @property
    def buckets(self):
        """Lists of gradients' numbers, in the order of communication."""
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
        """[rank][step][number]"""
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
        # What all ranks have in common, as gradients do.
        shared = np.random.default_rng([runner.SEED, self.seed, step, number])
        kind = self.values
        if kind == "mixed":
            kind = ["gaussian", "decaying"][number % 2]
        if kind == "zeros" and number % 2:
            kind = "gaussian"
        data = _VALUES[kind](shape, rng, shared)
        # Matrices of their own may have scales of their own; in a matrix of
        # everything the small ones would drown in the large ones' roundings.
        if not self.config.batched:
            data = data * 10.0 ** (number % 3 - 1)
        tensor = model.cast(Tensor("f64", np.asarray(data)), self.dtype)
        return Tensor(self.dtype, tensor.data.reshape(shape))

    def flat(self, gradients):
        """[rank][step][bucket] of [rank][step][number]."""
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
    """Singular values that fall by a factor of 0.6."""
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
    """Rows (one choice of every factor) in which each pair of choices of two
    factors occurs. Greedy; the same rows for the same seed."""
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
            # The earliest that PyTorch accepts.
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
    """What the matrix of cases does not have."""
    r, start = "matrix_approximation_rank", "start_powerSGD_iter"
    rate, epsilon = "min_compression_rate", "orthogonalization_epsilon"
    cold = {"use_error_feedback": False, "warm_start": False}
    return [
        # Not a number at once, and for ever.
        _extra("zeros-gram-schmidt", "same", 2, "zeros", **{r: 1}),
        _extra("zeros-epsilon", "same", 2, "zeros", **{r: 2, epsilon: 1e-8}),
        _extra("zeros-qr", "same", 3, "zeros", **{r: 4}),
        _extra("zeros-batched", [(40, 30)], 2, "zeros", **{r: 3, "batched": True}),
        _extra("large-epsilon", "mlp", 3, **{r: 2, epsilon: 0.5}),
        _extra("negative-start", "conv", 2, **{start: -3}, **cold),
        _extra("late-start", "conv", 3, **{start: 4, r: 2}),
        # Vectors are matrices of one column; here they are worth compressing.
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
    """max |got − want| / scale for flat arrays; infinite where one is no number
    and the other is, or where there is no scale and yet a difference."""
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


class Deviations:
    """The largest distances seen, by what was compared."""

    def __init__(self):
        self.worst = {}

    def note(self, what, value):
        self.worst[what] = max(self.worst.get(what, 0.0), value)

    def add_out(self, layout, got, want):
        """Flat buckets, compared matrix by matrix; what is not compressed has
        tests of its own. The batched hook's matrix is the bucket."""
        got, want = wide(got), wide(want)
        for matrix in layout.matrices:
            end = matrix.offset + matrix.rows * matrix.columns
            ours, theirs = got[matrix.offset : end], want[matrix.offset : end]
            self.note("out", distance(ours, theirs, largest(theirs)))

    def add_error(self, got, want, gradient, before):
        """`gradient` and `before`, the error before the step, give the scale."""
        total = wide(want).copy()
        total[:] = 0
        flat = wide(gradient)
        total[: flat.size] = flat
        if before is not None:
            total += wide(before)
        self.note("E", distance(wide(got), wide(want), largest(total)))

    def add_q(self, layout, got, want):
        pairs = zip(layout.factors(wide(got), 1), layout.factors(wide(want), 1))
        for ours, theirs in pairs:
            ours, theirs = ours.reshape(-1), theirs.reshape(-1)
            self.note("Q", distance(ours, theirs, largest(theirs)))

    def merge(self, other):
        for what, value in other.worst.items():
            self.note(what, value)

    def beyond(self, limits):
        """None, or which of them exceed their limits."""
        lines = [
            f"{what}: {value:.3g} where {limits[what]:.3g} is allowed"
            for what, value in self.worst.items()
            if not value <= limits[what]
        ]
        return "; ".join(lines) or None
