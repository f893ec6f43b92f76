# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An independent model of PowerSGD and its batched variant, in numpy.

Written from docs/parity.md. Products are accumulated in double and rounded once to the
bucket's type, so they follow PyTorch to a few rounding errors. Everything else (vanilla
steps, uncompressed tensors, random numbers, counters) is exact. test_powersgd_oracle.py
checks it against the real hooks. It replaces them where they raise: for 0-D and empty
tensors.
"""

import math
from dataclasses import dataclass, field

import numpy as np

import model
import powersgd_random
from tensors import Tensor

WIRE = {None: None, "fp16": "f16", "bf16": "bf16"}


@dataclass(frozen=True)
class Config:
    """PyTorch's options by their names, the hook, and its wrapper."""

    matrix_approximation_rank: int = 1
    start_powerSGD_iter: int = 2
    min_compression_rate: float = 2
    use_error_feedback: bool = True
    warm_start: bool = True
    orthogonalization_epsilon: float = 0
    random_seed: int = 0
    batch_tensors_with_same_shape: bool = False
    batched: bool = False
    wrapper: str = None
    # An option of ours for cases in which PyTorch divides by zero.
    keep_zero_columns: bool = True

    def torch_options(self):
        """Returns the keyword arguments of PowerSGDState."""
        own = ("batched", "wrapper", "keep_zero_columns")
        return {k: v for k, v in vars(self).items() if k not in own}

    def pipeline(self):
        """Returns the options of ddp-pipeline. Defaults are left out, except for the first
        iteration, whose default is too late for tests."""
        parts = ["hook=batched_powersgd" if self.batched else "hook=powersgd"]
        if self.wrapper:
            parts.append(f"wrapper={self.wrapper}")
        if not self.keep_zero_columns:
            parts.append("keep-zero-columns=false")
        for name, value in self.torch_options().items():
            if name == "start_powerSGD_iter" or value != getattr(Config, name):
                text = str(value).lower() if isinstance(value, bool) else value
                parts.append(f"{name.lower().replace('_', '-')}={text}")
        return " ".join(parts)

    def inner_dtype(self, dtype):
        return WIRE[self.wrapper] or dtype


@dataclass
class Snapshot:
    """The state of one rank between two steps; dictionaries are by bucket number. Buckets
    without memory so far are missing."""

    iter: int = 0
    generator: np.ndarray = None  # In the format of powersgd.generator.
    error: dict = field(default_factory=dict)
    p: dict = field(default_factory=dict)
    q: dict = field(default_factory=dict)
    stats: tuple = (0, 0)


@dataclass(frozen=True)
class Matrix:
    offset: int
    rows: int
    columns: int
    rank: int


class Layout:
    """The contents of a bucket of these shapes: the matrices in the order of P's and Q's
    memory, the uncompressed pieces, and the draws."""

    def __init__(self, shapes, config):
        self.sizes = [math.prod(shape) for shape in shapes]
        self.count = sum(self.sizes)
        self.total = self.count
        # An empty square has nothing to compress, and draws nothing.
        self.is_compressed = self.count > 0 or not config.batched
        self.pieces, groups, offset = [], {}, 0
        self.compressed = 0
        if config.batched:
            side = math.isqrt(max(self.count - 1, 0)) + 1 if self.count else 0
            self.total = side * side
            rank = config.matrix_approximation_rank
            groups[side, side] = [Matrix(0, side, side, rank)]
            self.compressed = 2 * side * rank
        else:
            for shape, size in zip(shapes, self.sizes):
                matrix = _matrix(offset, shape, size, config)
                if matrix:
                    key = matrix.rows, matrix.columns
                    groups.setdefault(key, []).append(matrix)
                    self.compressed += sum(key) * matrix.rank
                else:
                    self.pieces.append((offset, size))
                    self.compressed += size
                offset += size
        self.matrices = [m for group in groups.values() for m in group]
        self.draws = [
            sum(m.columns * m.rank for m in part)
            for group in groups.values()
            for part in (
                [group]
                if config.batch_tensors_with_same_shape and not config.batched
                else [[m] for m in group]
            )
        ]

    def factors(self, flat, side):
        """Yields the factors in P's (side 0) or Q's (1) memory, as 2-D views."""
        offset = 0
        for matrix in self.matrices:
            rows = (matrix.rows, matrix.columns)[side]
            size = rows * matrix.rank
            yield flat[offset : offset + size].reshape(rows, matrix.rank)
            offset += size


def _matrix(offset, shape, size, config):
    if not shape or size == 0:
        return None
    rows, columns = shape[0], size // shape[0]
    rank = min(rows, columns, config.matrix_approximation_rank)
    if (rows + columns) * rank * config.min_compression_rate < rows * columns:
        return Matrix(offset, rows, columns, rank)
    return None


class Arithmetic:
    """Arithmetic on wide arrays (f64 for f64, else f32) that hold values of one type."""

    def __init__(self, dtype):
        self.dtype = dtype
        self.wide = np.float64 if dtype == "f64" else np.float32
        self.is_16_bit = dtype in ("f16", "bf16")

    def load(self, tensor):
        return model.cast(tensor, "f64" if self.dtype == "f64" else "f32").data

    def store(self, values):
        wide = "f64" if self.dtype == "f64" else "f32"
        return model.cast(Tensor(wide, np.ascontiguousarray(values)), self.dtype)

    def round(self, values):
        with np.errstate(all="ignore"):
            values = np.asarray(values).astype(self.wide)
        return self.load(self.store(values)) if self.is_16_bit else values

    def reduce(self, values, squares, count):
        """Rounds sums of `count` products each, whose order is not specified; `squares` are the
        sums of the products' squares, from which rounding errors are estimated."""
        return self.round(values)

    def matmul(self, a, b):
        a, b = a.astype(np.float64), b.astype(np.float64)
        return self.reduce(a @ b, (a * a) @ (b * b), a.shape[1])

    def householder(self, factor):
        return np.linalg.qr(factor)[0]

    def ring_sum(self, values):
        return self.load(model.ring_sum([self.store(v) for v in values]))

    def orthogonalize(self, factor, epsilon, keep_zeros=True):
        """Orthogonalizes in place, by Householder QR from rank 3 on if LAPACK has the type."""
        if factor.shape[1] > 2 and not self.is_16_bit:
            factor[:] = self.householder(factor.astype(np.float64))
            return
        with np.errstate(all="ignore"):
            for i in range(factor.shape[1]):
                column = factor[:, i].astype(np.float64)
                squares = column * column
                norm = np.sqrt(np.sum(squares))
                # The root halves a relative error.
                spread = np.sum(squares * squares) / (4 * norm * norm)
                norm = self.reduce(norm, spread, len(column))
                if epsilon:
                    norm = self.round(norm + self.wide(epsilon))
                if keep_zeros and norm == 0:
                    factor[:, i] = self.round(_unit_column(factor[:, :i]))
                else:
                    factor[:, i] = self.round(factor[:, i] / norm)
                if i + 1 == factor.shape[1]:
                    break
                column, rest = factor[:, i : i + 1], factor[:, i + 1 :]
                products = self.round(column * rest).astype(np.float64)
                squares = (products * products).sum(0, keepdims=True)
                share = self.reduce(
                    products.sum(0, keepdims=True), squares, len(products)
                )
                rest[:] = self.round(rest - self.round(share * column))


def _unit_column(before):
    """Returns the unit vector orthogonal to orthonormal columns and farthest from them."""
    before = before.astype(np.float64)
    best = np.argmin((before * before).sum(1))
    column = -before @ before[best]
    column[best] += 1
    return column / np.linalg.norm(column)


class Model:
    """PowerSGD on all ranks of a group. `buckets` is a list of lists of shapes."""

    def __init__(self, config, world, buckets, dtype):
        self.config, self.world, self.dtype = config, world, dtype
        self.layouts = [Layout(shapes, config) for shapes in buckets]
        self.math = Arithmetic(config.inner_dtype(dtype))
        self.generator = np.random.RandomState(config.random_seed)
        self.iter = 0
        self.stats = [0, 0]
        self.error = [{} for _ in range(world)]
        self.p, self.q = {}, {}

    def step(self, grads, mean=True):
        """Runs a step on grads[rank][bucket], flat; returns results in the same nesting."""
        out = [[None] * len(self.layouts) for _ in range(self.world)]
        for number in range(len(self.layouts)):
            tensors = [rank[number] for rank in grads]
            results = self._bucket(number, tensors, mean)
            for rank, result in enumerate(results):
                out[rank][number] = result
        self.iter += 1
        return out

    def snapshot(self, rank):
        """Returns a rank's state. P and Q are those of `mean`: PyTorch has no `sum`."""
        def stored(memory):
            return {b: self.math.store(values.copy()) for b, values in memory.items()}

        return Snapshot(
            self.iter,
            powersgd_random.generator_words(self.generator),
            stored(self.error[rank]),
            stored(self.p),
            stored(self.q),
            tuple(self.stats),
        )

    def restore(self, snapshots):
        first = snapshots[0]
        self.iter, self.stats = first.iter, list(first.stats)
        self.generator = powersgd_random.generator_from_words(first.generator)
        load = self.math.load
        self.error = [{b: load(e) for b, e in s.error.items()} for s in snapshots]
        self.p = {b: load(p).copy() for b, p in first.p.items()}
        self.q = {b: load(q).copy() for b, q in first.q.items()}

    def _bucket(self, number, tensors, mean):
        is_compressed = self.layouts[number].is_compressed
        if self.iter < self.config.start_powerSGD_iter or not is_compressed:
            hook = ("allreduce",)
            if self.config.wrapper:
                hook = ("wrap", WIRE[self.config.wrapper], hook)
            return model.run_hook(hook, tensors, mean)
        values = [self.math.load(model.cast(t, self.math.dtype)) for t in tensors]
        results = self._compressed(number, values, mean)
        return [model.cast(self.math.store(r), self.dtype) for r in results]

    def _compressed(self, number, values, mean):
        config, math_, layout = self.config, self.math, self.layouts[number]

        def divide(x):
            return math_.round(x / math_.wide(self.world))

        padding = np.zeros(layout.total - layout.count, math_.wide)
        values = [np.concatenate([x, padding]) for x in values]
        self.stats[0] += layout.count
        self.stats[1] += layout.compressed
        if config.use_error_feedback:
            zero = np.zeros(layout.total, math_.wide)
            errors = [e.get(number, zero) for e in self.error]
            values = [math_.round(x + e) for x, e in zip(values, errors)]

        epsilon = 0 if config.batched else config.orthogonalization_epsilon
        if not config.warm_start or number not in self.q:
            drawn = powersgd_random.draw(self.generator, layout.draws, math_.dtype)
            self.q[number] = math_.load(drawn).copy()
        q = self.q[number]
        for factor in layout.factors(q, 1):
            math_.orthogonalize(factor, epsilon, config.keep_zero_columns)

        rest = math_.ring_sum(
            [
                np.concatenate(
                    [np.empty(0, math_.wide)]
                    + [x[begin : begin + size] for begin, size in layout.pieces]
                )
                for x in values
            ]
        )
        rest = divide(rest) if mean else rest
        p = math_.ring_sum([self._products(layout, x, q, 0) for x in values])
        for factor in layout.factors(p, 0):
            math_.orthogonalize(factor, epsilon, config.keep_zero_columns)
        q = math_.ring_sum([self._products(layout, x, p, 1) for x in values])
        self.p[number], self.q[number] = p, divide(q)

        out = np.empty(layout.total, math_.wide)
        begin = 0
        for offset, size in layout.pieces:
            out[offset : offset + size] = rest[begin : begin + size]
            begin += size
        factors = (
            layout.factors(p, 0),
            layout.factors(self.q[number] if mean else q, 1),
        )
        for matrix, left, right in zip(layout.matrices, *factors):
            size = matrix.rows * matrix.columns
            product = math_.matmul(left, right.T).reshape(-1)
            out[matrix.offset : matrix.offset + size] = product
        if config.use_error_feedback:
            share = out if mean else divide(out)
            for rank, x in enumerate(values):
                self.error[rank][number] = math_.round(x - share)
        if not config.warm_start:
            self.p, self.q = {}, {}
        return [out[: layout.count]] * self.world

    def _products(self, layout, x, factors, side):
        """Returns every M·Q (side 0: `factors` are Qs) or Mᵀ·P (side 1)."""
        parts = [np.empty(0, self.math.wide)]
        pairs = zip(layout.matrices, layout.factors(factors, 1 - side))
        for matrix, factor in pairs:
            size = matrix.rows * matrix.columns
            view = x[matrix.offset : matrix.offset + size]
            view = view.reshape(matrix.rows, matrix.columns)
            product = self.math.matmul(view if side == 0 else view.T, factor)
            parts.append(product.reshape(-1))
        return np.concatenate(parts)
