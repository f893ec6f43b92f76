# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled PowerSGD compared with PyTorch's real hooks on real Gloo process groups.

Products may be summed in any order, so steps are compared one by one, each from the
oracle's state, within the limits of powersgd_condition.py. Vanilla steps, uncompressed
tensors, counters and random numbers are compared to the bit. Test ids say whether
PyTorch ("torch") or the model of powersgd_model.py ("numpy") gave the numbers:
PyTorch's hooks cannot run some of the cases.
"""

import numpy as np
import pytest

import model
import powersgd_cases
import powersgd_condition
import powersgd_random
import powersgd_runner
import runner
from powersgd_cases import SHAPES, Case, Deviations, distances, largest, wide
from powersgd_model import WIRE, Config, Model, Snapshot
from tensors import Tensor, difference

EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}


def torch_reference(pool):
    def reference(case, flat):
        job = (case.config, case.bucket_shapes, case.dtype, flat)
        return pool.run_powersgd(case.world, [job])[0]

    return reference


def numpy_reference(case, flat):
    arguments = (case.config, case.world, case.bucket_shapes, case.dtype)
    powersgd, ranks = Model(*arguments), range(case.world)
    out = [[] for _ in ranks]
    snapshots = [[powersgd.snapshot(r)] for r in ranks]
    for step in range(len(flat[0])):
        results = powersgd.step([rank[step] for rank in flat])
        for rank in ranks:
            out[rank].append(results[rank])
            snapshots[rank].append(powersgd.snapshot(rank))
    return out, snapshots


def part(tensor, begin, size):
    return Tensor(tensor.dtype, tensor.data[begin : begin + size])


def expected_out(case, tensor):
    """Returns the expected result: `sum` gives W times PyTorch's mean."""
    if case.reduction == "mean":
        return tensor
    values = model.cast(tensor, "f64").data * case.world
    return model.cast(Tensor("f64", values), case.dtype)


def check_vanilla(case, got, flat, step, reorders):
    """Compares with the formula rather than the hook, to include `sum`: bits, unless ranks
    may be added in another order; each addend may lose at most one rounding."""
    hook = ("allreduce",)
    if case.config.wrapper:
        hook = ("wrap", WIRE[case.config.wrapper], hook)
    for number in range(len(case.buckets)):
        tensors = [rank[step][number] for rank in flat]
        want = model.run_hook(hook, tensors, case.reduction == "mean")
        for rank in range(case.world):
            if reorders:
                unit = EPSILON[case.config.inner_dtype(case.dtype)] * case.world
                scale = max(largest(wide(tensor)) for tensor in tensors)
                ours, theirs = wide(got[rank][number]), wide(want[rank])
                far = powersgd_cases.distance(ours, theirs, scale)
                assert far <= unit * (case.world if case.reduction == "sum" else 1)
                continue
            report = difference(got[rank][number], want[rank])
            assert not report, f"vanilla step, rank {rank}, b{number}: {report}"


def check_pieces(case, got, want, addends, reorders):
    """Compares uncompressed tensors: by bits, unless the order of a sum is another, or a
    `sum` moves a rounding. `addends` has what the ranks added up, by bucket; each addend
    may lose at most one rounding."""
    is_exact = case.reduction == "mean" and not reorders
    for number, layout in enumerate(powersgd_runner.layouts(case)):
        for begin, size in layout.pieces:
            ours = part(got[number], begin, size)
            theirs = part(want[number], begin, size)
            if is_exact:
                report = difference(ours, theirs)
                assert not report, f"b{number} from {begin}: {report}"
            else:
                unit = EPSILON[case.config.inner_dtype(case.dtype)] * case.world
                scale = largest(addends[number][begin : begin + size])
                if case.reduction == "sum":
                    scale *= case.world
                far = powersgd_cases.distance(wide(ours), wide(theirs), scale)
                assert far <= unit, f"b{number} from {begin}: {far} of {unit}"


def addends_of(case, gradients, before):
    """Returns, by bucket, the largest |gradient + error| of all ranks, element-wise."""
    result = []
    for number in range(len(case.buckets)):
        parts = []
        for rank in range(case.world):
            total = wide(gradients[rank][number]).copy()
            if number in before[rank].error:
                total += wide(before[rank].error[number])[: total.size]
            parts.append(np.abs(total))
        result.append(np.max(parts, 0))
    return result


def check_state(case, after, want):
    """Checks the parts of a state that must be exact after a compressed step, by rank."""
    for rank in range(case.world):
        assert after[rank].iter == want[rank].iter
        words = powersgd_runner.as_ours(case, want[rank]).generator
        assert np.array_equal(after[rank].generator, words)
        for number, q in after[rank].q.items():
            report = difference(q, after[0].q[number])
            assert not report, f"b{number}.q of rank {rank} and rank 0: {report}"


def check(tmp_path, case, reference, pack=False, injected=2, on_gpu=False):
    """Runs all steps up to the first compressed one without resetting states, then `injected`
    more, each from the reference's state. `on_gpu`: three and more ranks are added in an order
    that is not Gloo's, and the reference's QR may choose other signs."""
    steps = case.first + 1 + injected
    gradients = case.gradients(steps)
    flat = case.flat(gradients)
    out, snapshots = reference(case, flat)
    out = [[[expected_out(case, t) for t in s] for s in rank] for rank in out]
    ranks, layouts = range(case.world), powersgd_runner.layouts(case)
    option = f"pack-collectives={str(pack).lower()}"
    deviations = Deviations()
    reorders = case.world > 2 and (pack or on_gpu)
    any_signs = on_gpu and case.config.inner_dtype(case.dtype) in ("f32", "f64")

    def compare(step, got, after):
        now = [flat[r][step] for r in ranks]
        before = [snapshots[r][step] for r in ranks]
        want = [snapshots[r][step + 1] for r in ranks]
        check_state(case, after, want)
        addends = addends_of(case, now, before)
        limits = powersgd_condition.limits(case, now, before, reorders)
        for rank in ranks:
            check_pieces(case, got[rank], out[rank][step], addends, reorders)
            for number in range(len(layouts)):
                report = difference(got[rank][number], got[0][number])
                assert not report, f"rank {rank} and rank 0: {report}"
            ours = got[rank], after[rank]
            theirs = out[rank][step], want[rank]
            found = distances(
                layouts, now[rank], before[rank], ours, theirs, any_signs
            )
            deviations.add(limits, found)

    inputs = [rank[: case.first + 1] for rank in gradients]
    got, after = powersgd_runner.run(tmp_path, case, inputs, option)
    for step in range(case.first):
        results = [got[r][step] for r in ranks]
        check_vanilla(case, results, flat, step, on_gpu and case.world > 2)
    compare(case.first, [got[r][case.first] for r in ranks], after)
    for step in range(case.first + 1, steps):
        inputs = [[rank[step]] for rank in gradients]
        before = [snapshots[r][step] for r in ranks]
        got, after = powersgd_runner.run(tmp_path, case, inputs, option, before)
        compare(step, [got[r][0] for r in ranks], after)
    kind = f"{case.kind} packed" if reorders else case.kind
    powersgd_cases.MEASURED.setdefault(kind, Deviations()).merge(deviations)
    report = "; ".join(deviations.beyond)
    assert not report, f"{case.pipeline(option)}: {report}"


@pytest.mark.parametrize("rank", [2, 4])
def test_signs_of_a_qr(rank):
    """Columns of Q that point the other way are far off, unless a QR of rank 3 and more may
    have turned them round; a single element that does is always far off."""
    config = Config(matrix_approximation_rank=rank)
    case = Case("signs", ((40, 30),), "f32", config, 1)
    (layout,) = powersgd_runner.layouts(case)
    q = np.random.default_rng(runner.SEED).standard_normal((30, rank))

    def far(other, any_signs):
        states = [
            Snapshot(q={0: Tensor("f64", factor.reshape(-1))}) for factor in (other, q)
        ]
        out = [Tensor("f64", np.zeros(layout.count))]
        pairs = [(out, state) for state in states]
        found = distances([layout], out, Snapshot(), *pairs, any_signs)
        return dict(found)["Q", 0, 0]

    turned = q * np.where(np.arange(rank) % 2, -1, 1)
    assert far(turned, False) > 1
    assert (far(turned, True) == 0) == (rank > 2)
    turned[np.unravel_index(np.abs(q).argmax(), q.shape)] *= -1
    assert far(turned, True) > 1


def ids(cases, reference, marks=()):
    return [
        pytest.param(c, i, id=f"{c.name}-{reference}", marks=marks) for i, c in enumerate(cases)
    ]


CASES = powersgd_cases.matrix_of_cases() + powersgd_cases.extra_cases()


@pytest.mark.parametrize("case, number", ids(CASES, "torch"))
def test_step_by_step(pool, tmp_path, case, number):
    check(tmp_path, case, torch_reference(pool), pack=number % 2 == 1)


SUMS = [
    Case("mlp", tuple(SHAPES["mlp"]), "f32", Config(), 2, reduction="sum"),
    Case("conv-noef-cold", tuple(SHAPES["conv"]), "f32",
         Config(use_error_feedback=False, warm_start=False,
                matrix_approximation_rank=4), 3, reduction="sum"),
    Case("awkward-f64", tuple(SHAPES["awkward"]), "f64",
         Config(matrix_approximation_rank=3), 4, reduction="sum"),
    Case("same-bf16", tuple(SHAPES["same"]), "f32",
         Config(matrix_approximation_rank=2, wrapper="bf16"), 2, reduction="sum"),
    Case("batched", tuple(SHAPES["conv"]), "f32",
         Config(matrix_approximation_rank=2, batched=True), 3, reduction="sum"),
    Case("one-rank", tuple(SHAPES["mlp"]), "f32", Config(), 1, reduction="sum"),
]  # fmt: skip


@pytest.mark.parametrize("case, number", ids(SUMS, "torch"))
def test_sum_is_world_times_mean(pool, tmp_path, case, number):
    check(tmp_path, case, torch_reference(pool), pack=number % 2 == 1)


# By default there are two groups of 3.7 MiB, with matrices of two shapes in each.
LARGE = ((1100, 600), (7,), (600, 512), (1100, 600), (600, 512))
GROUPED = [
    Case("grouped", LARGE, "f32", Config(matrix_approximation_rank=2), 3, cap_mb=25),
    Case("grouped-sum", LARGE, "f32", Config(matrix_approximation_rank=4), 2,
         cap_mb=25, reduction="sum"),
]  # fmt: skip


@pytest.mark.parametrize(
    "case, number",
    ids(GROUPED[:1], "torch") + ids(GROUPED[1:], "torch", pytest.mark.full("as the mean")),
)
def test_groups_by_default(pool, tmp_path, case, number):
    check(tmp_path, case, torch_reference(pool), pack=True, injected=1)


# PyTorch's hook raises for 0-D tensors, as for empty ones.
WITHOUT_MATRIX = ((), (20, 24), (0, 5), (), (33, 17), (4, 0), (7,), (20, 24))
NUMPY_CASES = [
    Case("scalars", WITHOUT_MATRIX, "f32", Config(min_compression_rate=1.3), 2),
    Case("scalars-f64", WITHOUT_MATRIX, "f64",
         Config(matrix_approximation_rank=4, min_compression_rate=0.5), 3),
    Case("scalars-fp16", WITHOUT_MATRIX, "f32",
         Config(wrapper="fp16", min_compression_rate=1.3), 2),
    Case("scalars-batched", WITHOUT_MATRIX, "f32", Config(batched=True), 2),
    Case("scalars-many", WITHOUT_MATRIX, "f32",
         Config(min_compression_rate=1.3), 3, cap_mb=0.001),
    Case("only-a-scalar", ((),), "f32", Config(), 2),
    Case("only-an-empty-one", ((0, 3),), "f32", Config(), 2),
    Case("five-ranks", tuple(SHAPES["conv"]), "f32",
         Config(matrix_approximation_rank=2), 5),
    Case("eight-ranks", tuple(SHAPES["mlp"]), "f32",
         Config(matrix_approximation_rank=4), 8),
]  # fmt: skip


@pytest.mark.parametrize("case, number", ids(NUMPY_CASES, "numpy"))
def test_what_pytorch_cannot_run(tmp_path, case, number):
    check(tmp_path, case, numpy_reference, pack=number % 2 == 1)


@pytest.mark.parametrize("same", [False, True], ids=["each", "same"])
@pytest.mark.parametrize("kind", powersgd_cases.KINDS)
@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_first_factors_are_those_of_torch(pool, tmp_path, kind, same, seed):
    """After one vanilla step, the initial Qs are those that PyTorch will draw."""
    dtype, wrapper, batched = powersgd_cases.KINDS[kind]
    config = Config(
        matrix_approximation_rank=3,
        random_seed=seed,
        min_compression_rate=1.3,
        batch_tensors_with_same_shape=same,
        batched=batched,
        wrapper=wrapper,
    )
    case = Case("factors", tuple(SHAPES["same"]), dtype, config, 1)
    _, (after,) = powersgd_runner.run(tmp_path, case, case.gradients(1))
    (layout,) = powersgd_runner.layouts(case)
    job = (layout.draws, config.inner_dtype(dtype))
    ((want,),) = pool.call("draw", [([seed], [job])], [0])
    report = difference(after.q[0], Tensor(config.inner_dtype(dtype), want))
    assert not report, report
    generator = np.random.RandomState(seed)
    generator.randint(1_000_000_000)
    words = powersgd_random.generator_words(generator)
    assert np.array_equal(after.generator, words)
    assert after.iter == 1


def free_case(name, kind, world, feedback=True, rank=2):
    dtype, wrapper, batched = powersgd_cases.KINDS[kind]
    config = Config(
        matrix_approximation_rank=rank,
        use_error_feedback=feedback,
        batched=batched,
        wrapper=wrapper,
    )
    shapes = tuple(SHAPES["transformer"])
    return Case(name, shapes, dtype, config, world, values="gaussian")


# The drift at the last step beyond which something is wrong. With error feedback, a
# rounding grows from step to step; in 16 bits until nothing agrees.
FREE = [
    (free_case("f32-r1", "f32", 2, rank=1), 0.1),
    (free_case("f32-r2", "f32", 2), 0.1),
    (free_case("f32-r2-w3", "f32", 3), 0.1),
    (free_case("f32-r4", "f32", 2, rank=4), 0.1),
    (free_case("f32-r2-noef", "f32", 2, feedback=False), 1e-4),
    (free_case("f64-r2", "f64", 2), 1e-9),
    (free_case("batched-r2", "batched", 2), 1e-2),
    (free_case("fp16-r2", "fp16", 2), 4),
    (free_case("bf16-r2", "bf16", 2), 4),
]


@pytest.mark.parametrize(
    "case, limit", [pytest.param(c, x, id=f"{c.name}-torch") for c, x in FREE]
)
def test_free_running(pool, tmp_path, case, limit):
    """Measures the drift over twenty compressed steps without resetting states."""
    steps = case.first + 20
    gradients = case.gradients(steps)
    flat = case.flat(gradients)
    out, snapshots = torch_reference(pool)(case, flat)
    got, _ = powersgd_runner.run(tmp_path, case, gradients, "pack-collectives=false")
    before = [rank[case.first] for rank in snapshots]
    limits = powersgd_condition.limits(case, [r[case.first] for r in flat], before)
    layouts, drift = powersgd_runner.layouts(case), []
    for step in range(steps):
        ours, theirs = got[0][step][0], out[0][step][0]
        check_pieces(case, [ours], [theirs], None, False)
        if step < case.first:
            assert not difference(ours, theirs)
        results = ([ours], Snapshot()), ([theirs], Snapshot())
        found = dict(distances(layouts, flat[0][step], Snapshot(), *results))
        if step == case.first:
            deviations = Deviations()
            deviations.add(limits, found.items())
            assert not deviations.beyond
        drift.append(max(found.values()))
    compressed = drift[case.first :]
    powersgd_cases.DRIFT[case.name] = compressed
    assert max(compressed) <= limit


@pytest.mark.parametrize("kind", ["f32", "bf16", "batched"])
def test_transports_give_the_same_bits(tmp_path, kind):
    case = free_case("transports", kind, 3)
    runs = []
    for transport in ("shm", "gloo"):
        env = {"DDPHOOK_TRANSPORT": transport}
        gradients = case.gradients(5)
        runs.append(powersgd_runner.run(tmp_path, case, gradients, env=env))
    (first, states), (second, others) = runs
    for rank in range(case.world):
        for step in range(5):
            assert not difference(first[rank][step][0], second[rank][step][0])
        assert not difference(states[rank].error[0], others[rank].error[0])
        assert not difference(states[rank].q[0], others[rank].q[0])


@pytest.mark.parametrize("kind", ["f32", "fp16", "batched"])
def test_a_run_in_two_halves(tmp_path, kind):
    """Six steps equal a part of them, its state, and the rest in another process."""
    case = free_case("halves", kind, 2)
    gradients = case.gradients(6)
    whole, end = powersgd_runner.run(tmp_path, case, gradients)
    for cut in (1, 3):
        begin = [rank[:cut] for rank in gradients]
        _, middle = powersgd_runner.run(tmp_path, case, begin)
        rest = [rank[cut:] for rank in gradients]
        got, after = powersgd_runner.run(tmp_path, case, rest, before=middle)
        for rank in range(case.world):
            for step in range(6 - cut):
                want = whole[rank][cut + step][0]
                assert not difference(got[rank][step][0], want)
            assert not difference(after[rank].error[0], end[rank].error[0])
            assert not difference(after[rank].q[0], end[rank].q[0])
            assert np.array_equal(after[rank].generator, end[rank].generator)
