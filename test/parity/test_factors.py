# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What PowerSGD sends beyond PyTorch: alternating factors, and factors in an encoding
(docs/numerics.md).

Each step starts from the states that compiled code saved, and is computed in double from
them. A result is a projection, which does not depend on the signs or the basis of factors.
"""

import ml_dtypes
import numpy as np
import pytest

from numerics_cases import START, make_case, pipeline, run
from powersgd_cases import SHAPES, Case, distance, largest, wide
from powersgd_model import Config, Layout

ROUNDING = {"f32": 2.0**-23, "f64": 2.0**-52}
ALTERNATE = "alternate=true"


def flat(values):
    return np.concatenate([wide(value) for value in values])


def make(kind, world, **options):
    """Returns a case, the layout of its bucket, and the option `hook`."""
    config = Config(matrix_approximation_rank=2, batched=kind == "batched")
    dtype = "f32" if kind == "batched" else kind
    case = Case(
        "factors", tuple(SHAPES["mlp"]), dtype, config, world, "gaussian", **options
    )
    (layout,) = [Layout(shapes, config) for shapes in case.bucket_shapes]
    return case, layout, "hook=batched_powersgd" if config.batched else "hook=powersgd"


def totals(case, layout, gradients, states):
    """Returns each rank's M: its gradient, padded, plus its error."""
    padding = np.zeros(layout.total - layout.count)
    return [
        np.concatenate([flat(values), padding]) + wide(s["b0.error"])
        for values, s in zip(gradients, states)
    ]


def in_matrices(layout, values):
    for matrix in layout.matrices:
        end = matrix.offset + matrix.rows * matrix.columns
        yield values[matrix.offset : end].reshape(matrix.rows, matrix.columns)


def project(layout, values, states, side):
    """Returns M·Q̂·Q̂ᵀ (side 1) or P̂·P̂ᵀ·M (side 0) of each matrix; other parts of a bucket
    stay as they are."""
    out = values.copy()
    factors = layout.factors(wide(states["b0.p" if side == 0 else "b0.q"]), side)
    for part, factor in zip(in_matrices(layout, out), factors):
        basis, _ = np.linalg.qr(factor)
        part[:] = basis @ (basis.T @ part) if side == 0 else part @ basis @ basis.T
    return out


@pytest.mark.parametrize("world, reduction", [(1, "sum"), (2, "mean"), (3, "sum"), (4, "mean")])
@pytest.mark.parametrize(
    "kind, more",
    [
        ("f32", "overlap=false"),
        ("f64", "local-error-feedback=true"),
        ("f32", "numerics=improved group-mb=0.002"),
        ("batched", ""),
    ],
)
def test_alternating_factors(tmp_path, kind, more, world, reduction):
    case, layout, hook = make(kind, world, reduction=reduction)
    options = pipeline(f"{hook} {ALTERNATE} {more}")
    gradients = case.gradients(START + 3)
    _, states, _ = run(tmp_path, case, [r[:START] for r in gradients], options)
    limit = 100 * ROUNDING[case.dtype]
    factor = world if reduction == "sum" else 1
    for step in range(START, START + 3):
        side = 1 if step % 2 == 0 else 0
        now = [r[step] for r in gradients]
        matrices = totals(case, layout, now, states)
        got, after, _ = run(tmp_path, case, [[g] for g in now], options, states)
        mean = project(layout, np.mean(matrices, 0), states[0], side)
        scale = largest(matrices[0])
        for rank in range(world):
            want = mean[: layout.count] * factor
            far = distance(flat(got[rank][0]), want, scale * factor)
            assert far <= limit, f"result of rank {rank}, step {step}: {far}"
            kept = mean
            if more.startswith(("local", "numerics")):
                kept = project(layout, matrices[rank], states[rank], side)
            far = distance(wide(after[rank]["b0.error"]), matrices[rank] - kept, scale)
            assert far <= limit, f"error of rank {rank}, step {step}: {far}"
            for name in ("b0.p", "b0.q"):
                assert after[rank][name].data.tobytes() == after[0][name].data.tobytes()
        # Both factors of the result are kept, up to their bases.
        for name, of in (("P", 0), ("Q", 1)):
            far = distance(project(layout, mean, after[0], of), mean, scale)
            assert far <= limit, f"{name}, step {step}: {far}"
        states = after


@pytest.mark.parametrize("world", [1, 2])
def test_groups_change_nothing(tmp_path, world):
    shapes = [(24, 20), (20, 30)] * 6 + [(7,)]
    case = make_case("f32", world, shapes)
    gradients = case.gradients(START + 4)
    options = pipeline(f"hook=powersgd {ALTERNATE}")
    want, whole, _ = run(tmp_path, case, gradients, f"{options} group-mb=0")
    got, parts, _ = run(tmp_path, case, gradients, f"{options} group-mb=0.005")
    for rank in range(world):
        for step in range(START + 4):
            np.testing.assert_array_equal(flat(got[rank][step]), flat(want[rank][step]))
        # P, which the last step did not reduce, may be orthogonalized.
        for name in whole[rank].keys() - {"b0.p"}:
            state = whole[rank][name].data
            assert parts[rank][name].data.tobytes() == state.tobytes(), name


def test_a_step_that_is_not_finite_is_skipped(tmp_path):
    """Whichever factor it reduces."""
    case = make_case("f32", 2)
    options = pipeline(f"hook=powersgd {ALTERNATE} numerics=improved")
    for steps in (START, START + 1):
        gradients = case.gradients(START + 3)
        _, before, _ = run(tmp_path, case, [r[:steps] for r in gradients], options)
        bad = [[r[steps]] for r in gradients]
        bad[1][0][0].data.reshape(-1)[5] = np.inf
        got, after, _ = run(tmp_path, case, bad, options, before)
        for rank in range(2):
            assert not np.isfinite(flat(got[rank][0])).all()
            for name in ("b0.error", "b0.p", "b0.q"):
                same = before[rank][name].data.tobytes()
                assert after[rank][name].data.tobytes() == same, name
            assert int(after[rank]["powersgd.nonfinite"].data.reshape(())) == 1


# Sizes of blocks, and what the largest codes of a block may be.
CODES = {"int8": (256, (127, 126)), "int4": (64, (7,)), "fp8": (256, (448,))}


def is_decoded(values, wrapper):
    """True if the values are codes times a scale of their block, up to rounding."""
    size, largest_codes = CODES[wrapper]

    def are_codes(block, largest_code):
        codes = block / (largest(block) or 1) * largest_code
        whole = codes.astype(ml_dtypes.float8_e4m3fn) if wrapper == "fp8" else np.rint(codes)
        return np.abs(codes - whole.astype(float)).max() < 1e-4 * largest_code

    return all(
        any(are_codes(values[i : i + size], code) for code in largest_codes)
        for i in range(0, len(values), size)
    )


@pytest.mark.parametrize(
    "wrapper, kind, more, world",
    [
        ("int8", "f32", "", 1),
        ("int8", "f32", "", 2),
        ("int8", "f32", "", 4),
        ("int8", "f64", "pack-collectives=false", 3),
        ("int4", "f32", ALTERNATE, 2),
        ("fp8", "f32", "overlap=false", 3),
        ("int8", "batched", ALTERNATE, 3),
    ],
)
def test_factors_in_an_encoding(tmp_path, wrapper, kind, more, world):
    """Ranks get codes, and the error has what they lost."""
    case, layout, hook = make(kind, world)
    options = pipeline(f"{hook} wrapper={wrapper} {more}")
    gradients = case.gradients(START + 2)
    first, states, _ = run(tmp_path, case, [r[:START] for r in gradients], options)
    for rank in range(world):
        mean = np.mean([flat(r[0]) for r in gradients], 0)
        far = distance(flat(first[rank][0]), mean, largest(mean))
        assert far <= 8 * ROUNDING[case.dtype], "before PowerSGD, nothing is encoded"
    for step in range(START, START + 2):
        now = [r[step] for r in gradients]
        matrices = totals(case, layout, now, states)
        got, after, _ = run(tmp_path, case, [[g] for g in now], options, states)
        result = np.concatenate([flat(got[0][0]), np.zeros(layout.total - layout.count)])
        for rank in range(world):
            assert flat(got[rank][0]).tobytes() == flat(got[0][0]).tobytes()
            if kind == "batched":  # The padding's result is in the error alone.
                continue
            far = distance(
                wide(after[rank]["b0.error"]), matrices[rank] - result, largest(result)
            )
            assert far <= 8 * ROUNDING[case.dtype], f"error of rank {rank}, step {step}: {far}"
        side = 0 if ALTERNATE in more and step % 2 == 0 else 1
        sent = wide(after[0]["b0.p" if side == 0 else "b0.q"])
        assert is_decoded(sent, wrapper)
        # All that is not compressed is one message.
        pieces = [result[begin : begin + size] for begin, size in layout.pieces]
        assert is_decoded(np.concatenate([np.empty(0), *pieces]), wrapper)
        if ALTERNATE in more:
            mean = project(layout, np.mean(matrices, 0), states[0], 1 - side)
            far = distance(result[: layout.count], mean[: layout.count], largest(mean))
            assert far < (0.4 if wrapper == "int4" else 0.05), f"step {step}: {far}"
        states = after
