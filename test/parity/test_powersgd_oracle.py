# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of PowerSGD's oracle: compares the numpy model with PyTorch's hooks, and the
bucket object with real DistributedDataParallel. Needs no ddphook."""


import numpy as np
import pytest

import powersgd_cases
import powersgd_condition
import powersgd_model
import powersgd_random
from powersgd_cases import Case, Deviations, distances
from powersgd_model import Config, Layout, Model, Snapshot
from tensors import DTYPES, Tensor, difference

CASES = powersgd_cases.matrix_of_cases() + powersgd_cases.extra_cases()


def run_both(pool, case, steps, make_model=Model):
    """Returns the oracle's results and snapshots, the model's results from the oracle's state
    before every step, and a model that runs freely."""
    flat = case.flat(case.gradients(steps))
    job = (case.config, case.bucket_shapes, case.dtype, flat)
    ((out, snapshots),) = pool.run_powersgd(case.world, [job])
    arguments = (case.config, case.world, case.bucket_shapes, case.dtype)
    injected, free = make_model(*arguments), make_model(*arguments)
    results = []
    for step in range(steps):
        grads = [rank[step] for rank in flat]
        injected.restore([s[step] for s in snapshots])
        one = injected.step(grads)
        states = [injected.snapshot(r) for r in range(case.world)]
        results.append((one, states, free.step(grads)))
    return flat, out, snapshots, results, free


def compare(case, step, flat, out, snapshots, results, deviations):
    """Compares one compressed step from the oracle's state, on all ranks."""
    got, states, _ = results[step]
    grads = [rank[step] for rank in flat]
    limits = powersgd_condition.limits(case, grads, [s[step] for s in snapshots])
    layouts = [Layout(shapes, case.config) for shapes in case.bucket_shapes]
    for rank in range(case.world):
        before, after = snapshots[rank][step], snapshots[rank][step + 1]
        assert states[rank].iter == after.iter
        assert np.array_equal(states[rank].generator, after.generator)
        assert states[rank].stats == after.stats
        assert states[rank].error.keys() == after.error.keys()
        assert states[rank].q.keys() == after.q.keys()
        ours, theirs = (got[rank], states[rank]), (out[rank][step], after)
        found = distances(layouts, grads[rank], before, ours, theirs)
        deviations.add(limits, found)


def assert_exact(case, step, got, out):
    """Compares vanilla steps, and the tensors that are not compressed."""
    for rank in range(case.world):
        for number, shapes in enumerate(case.bucket_shapes):
            ours, theirs = got[rank][number], out[rank][step][number]
            pieces = [(0, ours.data.size)]
            if step >= case.first:
                pieces = Layout(shapes, case.config).pieces
            for begin, size in pieces:
                report = difference(
                    Tensor(case.dtype, ours.data[begin : begin + size]),
                    Tensor(case.dtype, theirs.data[begin : begin + size]),
                )
                assert not report, f"step {step}, rank {rank}, {number}: {report}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_model_follows_the_hooks(pool, case):
    steps = case.first + 4
    flat, out, snapshots, results, free = run_both(pool, case, steps)
    deviations = Deviations()
    for step in range(steps):
        assert_exact(case, step, results[step][0], out)
        if step >= case.first:
            compare(case, step, flat, out, snapshots, results, deviations)
    assert not deviations.beyond, "; ".join(deviations.beyond)
    # In the free run, exact values stay exact, and the others start close.
    for rank in range(case.world):
        last = free.snapshot(rank)
        assert (last.iter, last.stats) == (steps, snapshots[rank][-1].stats)
        assert np.array_equal(last.generator, snapshots[rank][-1].generator)
    for step in range(case.first + 1):
        assert_exact(case, step, results[step][2], out)
    grads = [rank[case.first] for rank in flat]
    before = [rank[case.first] for rank in snapshots]
    layouts = [Layout(shapes, case.config) for shapes in case.bucket_shapes]
    ours, theirs = results[case.first][2][0], out[0][case.first]
    pairs = (ours, Snapshot()), (theirs, Snapshot())
    deviations = Deviations()
    deviations.add(
        powersgd_condition.limits(case, grads, before),
        distances(layouts, grads[0], before[0], *pairs),
    )
    assert not deviations.beyond, "; ".join(deviations.beyond)


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_numbers_are_those_of_torch(pool, dtype):
    rng = np.random.default_rng(7)
    seeds = [0, 1, 2**32 - 1, *range(100, 105)]
    jobs = [([size], dtype) for size in [*range(1, 40), 1000, 5003]]
    jobs += [(rng.integers(1, 40, 6).tolist(), dtype) for _ in range(20)]
    (real,) = pool.call("draw", [(seeds, jobs)], [0])
    numbers = ((seed, job) for seed in seeds for job in jobs)
    for (seed, (sizes, _)), want in zip(numbers, real):
        got = powersgd_random.draw(np.random.RandomState(seed), sizes, dtype)
        report = difference(got, Tensor(dtype, want))
        assert not report, f"seed {seed}, {sizes}: {report}"


@pytest.mark.parametrize("seed", [0, 5, 2**32 - 1])
def test_generator_words_are_the_state(seed):
    generator = np.random.RandomState(seed)
    for _ in range(700):
        again = powersgd_random.generator_from_words(
            powersgd_random.generator_words(generator)
        )
        assert again.randint(10**9) == generator.randint(10**9)


@pytest.mark.parametrize("cap_mb", [None, 0.004], ids=["one", "many"])
@pytest.mark.parametrize("wrapper", [None, "fp16", "bf16"])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_bucket_object_gives_the_bits_of_ddp(pool, world, wrapper, cap_mb):
    """Compares six steps of real DDP with a real PowerSGD hook with the hook called with our
    bucket object."""
    config = Config(
        matrix_approximation_rank=2, min_compression_rate=1.3, wrapper=wrapper
    )
    steps, shapes = 6, powersgd_cases.SHAPES["conv"]
    case = Case("ddp", tuple(shapes), "f32", config, world)
    inputs = case.gradients(steps)
    ranks = tuple(range(world))
    pool.make_groups([ranks])
    grads = [[[t.data for t in step] for step in rank] for rank in inputs]
    hook = ("powersgd", config)
    runs = pool.call(
        "run_ddp",
        [(ranks, hook, "f32", grads[r], cap_mb, steps) for r in ranks],
        ranks,
    )
    # DDP packs again after its first step; steps before the start leave no state.
    buckets = [numbers for numbers, _, _ in runs[0][1][1]]
    assert (len(buckets) > 1) == (cap_mb is not None)
    flat = [
        [
            [
                Tensor("f32", np.concatenate([step[i].reshape(-1) for i in numbers]))
                for numbers in buckets
            ]
            for step in rank
        ]
        for rank in grads
    ]
    bucket_shapes = [[shapes[i] for i in numbers] for numbers in buckets]
    ((out, _),) = pool.run_powersgd(world, [(config, bucket_shapes, "f32", flat)])
    for rank in ranks:
        for step in range(1, steps):
            for number, numbers in enumerate(buckets):
                left = [runs[rank][step][0][i].reshape(-1) for i in numbers]
                want = Tensor("f32", np.concatenate(left))
                report = difference(out[rank][step][number], want)
                assert not report, f"step {step}, rank {rank}, {number}: {report}"


class ForgottenError(Model):
    """Forgets that uncompressed tensors have an error as well."""

    def _compressed(self, number, values, mean):
        out = super()._compressed(number, values, mean)
        for error in self.error:
            for begin, size in self.layouts[number].pieces:
                error[number][begin : begin + size] = 0
        return out


class UngroupedDraws(Model):
    """Draws in the bucket's order rather than shape by shape."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        for layout in self.layouts:
            layout.matrices.sort(key=lambda m: m.offset)
            layout.draws = [m.columns * m.rank for m in layout.matrices]


class StaleQ(Model):
    """Keeps the given Q."""

    def _compressed(self, number, values, mean):
        before = self.q.get(number)
        before = None if before is None else before.copy()
        out = super()._compressed(number, values, mean)
        self.q[number] = self.q[number] if before is None else before
        return out


class LateDivision(Model):
    """Divides uncompressed tensors before the sum, as vanilla steps do."""

    def _compressed(self, number, values, mean):
        pieces = self.layouts[number].pieces
        out = super()._compressed(number, values, mean)[0].copy()
        for begin, size in pieces:
            parts = [v[begin : begin + size] / np.float32(self.world) for v in values]
            out[begin : begin + size] = self.math.ring_sum(parts)
        return [out] * self.world


@pytest.mark.parametrize("wrong", [ForgottenError, UngroupedDraws, StaleQ])
def test_a_wrong_model_is_noticed(pool, wrong):
    """Plausible mistakes exceed the limits."""
    config = Config(matrix_approximation_rank=2, min_compression_rate=1.3)
    shapes = tuple(powersgd_cases.SHAPES["same"])
    case = Case("wrong", shapes, "f32", config, 3, values="gaussian")
    for make_model in (wrong, Model):
        results = run_both(pool, case, 5, make_model)
        flat, out, snapshots, rest, _ = results
        deviations = Deviations()
        for step in range(case.first, 5):
            compare(case, step, flat, out, snapshots, rest, deviations)
        assert bool(deviations.beyond) == (make_model is wrong)


class CoarseProducts(powersgd_model.Arithmetic):
    """Multiplies operands with fewer digits, as tensor cores may: f32 keeps those of TF32, f64
    those of f32, and 16-bit types those of FP8."""

    DIGITS = {"f64": 24, "f32": 11, "f16": 4, "bf16": 4}

    def matmul(self, a, b):
        return super().matmul(self.truncate(a), self.truncate(b))

    def truncate(self, values):
        fraction, exponent = np.frexp(values)
        scale = 2.0 ** self.DIGITS[self.dtype]
        return np.ldexp(np.round(fraction * scale) / scale, exponent)


@pytest.mark.parametrize("kind", powersgd_cases.KINDS)
@pytest.mark.parametrize("shapes", ["mlp", "transformer", "awkward", "everything"])
def test_lost_digits_are_noticed(shapes, kind):
    """Limits that grow with the condition of a step still detect wrong results."""
    dtype, wrapper, batched = powersgd_cases.KINDS[kind]
    config = Config(
        matrix_approximation_rank=8,
        min_compression_rate=1e-3,
        batched=batched,
        wrapper=wrapper,
    )
    shapes = tuple(powersgd_cases.SHAPES[shapes])
    case = Case("digits", shapes, dtype, config, 2)
    flat = case.flat(case.gradients(4))
    arguments = (case.config, case.world, case.bucket_shapes, case.dtype)
    for arithmetic in (powersgd_model.Arithmetic, CoarseProducts):
        right, other = Model(*arguments), Model(*arguments)
        other.math = arithmetic(config.inner_dtype(dtype))
        deviations = Deviations()
        for step in range(4):
            grads = [rank[step] for rank in flat]
            before = [right.snapshot(rank) for rank in range(case.world)]
            other.restore(before)
            want, got = right.step(grads), other.step(grads)
            if step < case.first:
                continue
            limits = powersgd_condition.limits(case, grads, before)
            ours = got[0], other.snapshot(0)
            theirs = want[0], right.snapshot(0)
            found = distances(right.layouts, grads[0], before[0], ours, theirs)
            deviations.add(limits, found)
        assert bool(deviations.beyond) == (arithmetic is CoarseProducts)


def test_a_division_before_the_sum_is_noticed(pool):
    config = Config(use_error_feedback=False)
    case = Case("late", tuple(powersgd_cases.SHAPES["mlp"]), "f32", config, 3)
    _, out, _, results, _ = run_both(pool, case, 3, LateDivision)
    with pytest.raises(AssertionError, match="elements differ"):
        assert_exact(case, 2, results[2][0], out)


def test_sum_is_world_times_mean():
    """Checks docs/parity.md on `sum` in the model: PyTorch has none."""
    case = Case("sum", tuple(powersgd_cases.SHAPES["mlp"]), "f64", Config(), 3)
    flat = case.flat(case.gradients(6))
    arguments = (case.config, case.world, case.bucket_shapes, case.dtype)
    mean, total = Model(*arguments), Model(*arguments)
    for step in range(6):
        grads = [rank[step] for rank in flat]
        (want,) = mean.step(grads)[0]
        (got,) = total.step(grads, mean=False)[0]
        assert np.allclose(got.data, 3 * want.data, rtol=1e-9, atol=1e-12)


def test_batched_hook_of_pytorch_asserts(pool):
    """Shows why the oracle unsqueezes the factors; if this fails, it no longer has to."""
    config = Config(batched=True)
    case = Case("batched", ((8, 8),), "f32", config, 1)
    flat = case.flat(case.gradients(3))
    grads = [[tensor.data for tensor in step] for step in flat[0]]
    jobs = [(config, case.bucket_shapes, case.dtype, grads)]
    pool.make_groups([(0,)])
    with pytest.raises(RuntimeError, match="AssertionError"):
        pool.call("run_powersgd_as_it_is", [((0,), jobs)], [0])
