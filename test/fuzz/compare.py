# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a program's results have to be: bit for bit, or, behind PowerSGD, as close
as rounding errors in its products leave them."""

import numpy as np

import inputs
from buckets import innermost
from evaluate import Evaluator
from powersgd import NEVER, LowRank, config_of
from program import walk

# Runs of the model with other rounding errors; and how much more than they differ
# by a result may differ by.
SAMPLES = 4
MARGIN = 16
# Relative to a tensor's largest element. Nothing is known beyond.
LARGEST_SPREAD = 0.05
_PARAMETERS_BEYOND_PYTORCH = (
    "numerics",
    "local-error-feedback",
    "keep-zero-columns",
    "independent-columns",
    "skip-nonfinite",
    "fp32-error",
)


def compresses(program):
    """Whether PowerSGD has a compressed step."""
    if program.options.get("hook") not in ("powersgd", "batched_powersgd"):
        return False
    return config_of(program.options).start_powerSGD_iter < NEVER


def has_model(program):
    """Whether the model knows PowerSGD's results: where its buckets are all in the
    entry's own block, so that random numbers have one order."""
    if any(name in program.options for name in _PARAMETERS_BEYOND_PYTORCH):
        return False
    hooks = [program.hook, *(f.hook for f in program.funcs)]
    for func in program.funcs:
        top = func.body.ops if func.name == program.entry else []
        for op in walk(func.body):
            if op.kind == "all_reduce" and op not in top:
                return False
            if op.kind in ("bucket_reduce", "state_load"):
                return False
            hooks.append(op.attrs.get("hook"))
    if any(hook and "powersgd" in innermost(hook) for hook in hooks):
        return False
    if not config_of(program.options).warm_start:
        return len(Evaluator(program, 0).buckets.low_rank()) == 1
    return True


def expected_results(program, values):
    """Runs of the model: [sample][step][rank][number]. None if results depend on
    memory that nothing wrote; empty if there is no model."""
    low_rank = compresses(program)
    if low_rank and not has_model(program):
        return []
    samples = []
    for poison, seed in [(float("nan"), 0), (-1234.0, 0)] + [
        (0.0, seed) for seed in range(1, SAMPLES) if low_rank
    ]:
        evaluator = Evaluator(program, poison)
        if low_rank:
            evaluator.low_rank = LowRank(program, evaluator.buckets, seed)
        samples.append([evaluator.step(step) for step in values])
    for one, other in zip(_flat(samples[0]), _flat(samples[1])):
        if inputs.difference(one, other):
            return None
    return [samples[0], *samples[2:]]


def _flat(sample):
    return [value for step in sample for rank in step for value in rank]


def difference(got, samples):
    """None where a value agrees with the model, else in words."""
    first = samples[0]
    if all(inputs.difference(first, other) is None for other in samples[1:]):
        return inputs.difference(got, first)
    wide = [np.asarray(s, np.float64) for s in samples]
    got = np.asarray(got, np.float64)
    known = np.all(np.isfinite(wide), axis=0)
    with np.errstate(all="ignore"):
        spread = max((np.abs(s - wide[0])[known].max(initial=0) for s in wide[1:]))
    largest = np.abs(wide[0])[known].max(initial=0)
    if not spread <= LARGEST_SPREAD * largest:
        return None
    with np.errstate(all="ignore"):
        far = known & ~(np.abs(got - wide[0]) <= MARGIN * spread)
    if not far.any():
        return None
    at = int(np.argmax(far.reshape(-1)))
    return (
        f"{int(far.sum())} of {got.size} elements are more than {MARGIN * spread:.1e} "
        f"off, first at {at}: expected {wide[0].reshape(-1)[at]!r}, but got "
        f"{got.reshape(-1)[at]!r}"
    )
