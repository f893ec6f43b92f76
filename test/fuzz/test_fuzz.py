# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A fixed set of the fuzzer's seeds, and whether the fuzzer can fail.

tools/fuzz.sh runs other seeds for as long as one likes. DDPHOOK_FUZZ_SEEDS=FROM:TO
runs others here."""

import collections
import concurrent.futures
import contextlib
import multiprocessing
import os

import numpy as np
import pytest

import compare
import evaluate
import exchanges
import fuzz
import generate
import inputs
import numerics
import reduce
import run
from printer import print_program
from program import Block, Func, Op, Program, Type, Value, count_operations

FIRST, LAST = map(int, os.environ.get("DDPHOOK_FUZZ_SEEDS", "0:300").split(":"))
# With those that once found something that the others do not.
SEEDS = (*range(FIRST, LAST), 9200060, 9803131)
# Of valid modules, in percent.
REFUSED_LIMIT = 1.0

@pytest.fixture(scope="module")
def outcomes():
    """All seeds at once, on all processors."""
    tally = fuzz.Tally()
    # This process may have threads of other tests, and is not forked.
    context = multiprocessing.get_context("forkserver")
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), context) as pool:
        found = dict(pool.map(fuzz.run_seed, SEEDS))
    for outcome in found.values():
        tally.add(outcome)
    print(f"\nseeds {FIRST} to {LAST - 1}\n{tally.summary()}")
    return found


@pytest.mark.parametrize("program", SEEDS)
def test_seed(outcomes, program):
    seed, outcome = program, outcomes[program]
    if outcome.kind not in ("ok", "refused"):
        pytest.fail(
            f"{run.describe(generate.generate(seed))}\n{outcome.kind}: "
            f"{outcome.message}\ntools/fuzz.sh 0.01 --seed {seed} keeps its files",
            pytrace=False,
        )


def test_few_are_refused(outcomes):
    refused = {s: o for s, o in outcomes.items() if o.kind == "refused"}
    messages = collections.Counter(o.key for o in refused.values())
    share = 100 * len(refused) / len(outcomes)
    assert share <= REFUSED_LIMIT, (
        f"{share:.1f} % of valid modules are refused, seeds {sorted(refused)}:\n"
        + "\n".join(f"{n:4d}  {text}" for text, n in messages.most_common())
    )


def _reduce_zeros(dtype, world):
    """A gradient of zeros, which are six of the eight rows of a compressed bucket;
    returns its sum, and 1 divided by the sum's first element."""
    long, wide, number = Type((16,), dtype), Type((6, 8), dtype), Type(None, dtype)
    index = Type(None, "index")
    x, zeros = Value(long, number=0), Value(wide)
    sums = Value(long), Value(wide)
    at, one, first, quotient = Value(index), Value(number), Value(number), Value(number)
    reduction = {"group": "dp", "reduction": "sum"}
    ops = [
        Op("const", [], [zeros], {"value": 0.0}),
        Op("all_reduce", [x], [sums[0]], reduction),
        Op("all_reduce", [zeros], [sums[1]], reduction),
        Op("const", [], [at], {"value": 0}),
        Op("extract", [sums[1], at, at], [first]),
        Op("const", [], [one], {"value": 1.0}),
        Op("scalar", [one, first], [quotient], {"name": "arith.divf"}),
    ]
    func = Func("step", Block([x], ops, [sums[1], quotient]))
    options = {"hook": "batched_powersgd", "start-powersgd-iter": "2"}
    return Program(0, [func], "step", {"dp": None}, world, steps=3, options=options)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_zeros_of_products_have_either_sign(dtype, world):
    """PyTorch's are -0.0 in f32 and 0.0 in bf16, for the same numbers."""
    program = _reduce_zeros(dtype, world)
    outcome = run.run(program)
    assert outcome.kind == "ok", outcome.message
    samples = compare.expected_results(program, inputs.draw_all(program))
    sums = [steps[-1][0][0] for steps in samples]
    for sign in (1, -1):
        assert compare.difference(np.copysign(sums[0], sign), sums) is None
    assert compare.difference(sums[0] + sums[0].dtype.type(1e-7), sums)


def _evaluate(program):
    values = inputs.draw_all(program)
    return evaluate.Evaluator(program, 0.0).step(values[0])


def _differs(program, mistake):
    """Whether the first step's results are others with a mistake in the model. What
    the compiled program gives is what the right model gives: test_seed."""
    right = _evaluate(program)
    with mistake():
        wrong = _evaluate(program)
    pairs = [(a, b) for r, w in zip(right, wrong) for a, b in zip(r, w)]
    return any(compare.difference(a, [b]) for a, b in pairs)


def _divide_first(hook, parts, dtype, mean, offset, count):
    """PyTorch's compiled path, not its hooks: divide, then cast."""
    if mean:
        world = numerics.as_type(len(parts), dtype)
        parts = [numerics.elementwise("arith.divf", (p, world), dtype) for p in parts]
    return RIGHT_HOOK(hook, parts, dtype, False, offset, count)


def _write_through(self, op, env, ranks, block):
    """Every elementwise result also replaces the value it was written over, as if
    nothing else had needed that."""
    RIGHT_OP(self, op, env, ranks, block)
    if op.kind == "linalg" and op.attrs["outs"] == 1:
        env[op.operands[op.attrs["ins"]]] = env[op.result]


def _flat(hook, nodes, *arguments):
    return RIGHT_HOOK(hook, *arguments)


def _move_parts(op, parts, dtype):
    """What is gathered does not begin with the first rank's part."""
    results = RIGHT_EXCHANGE(op, parts, dtype)
    if op.attrs["name"] == "all_gather":
        return [np.roll(result, 1) for result in results]
    return results


RIGHT_EXCHANGE = exchanges.run
RIGHT_HOOK, RIGHT_OP = numerics.run_hook, evaluate.Evaluator._op


@pytest.mark.parametrize(
    "owner, name, wrong",
    [
        (numerics, "run_hook", _divide_first),
        (evaluate.Evaluator, "_op", _write_through),
        (numerics, "to_bf16", lambda values: np.array(values, np.float32)),
        (numerics, "run_on_nodes", _flat),
        (exchanges, "run", _move_parts),
    ],
    ids=[
        "divide-before-casting",
        "lost-copies",
        "bf16-not-rounded",
        "nodes-like-a-flat-group",
        "parts-in-other-places",
    ],
)
def test_a_wrong_model_is_noticed(monkeypatch, owner, name, wrong):
    @contextlib.contextmanager
    def mistake():
        with monkeypatch.context() as context:
            context.setattr(owner, name, wrong)
            yield

    assert any(_differs(generate.generate(seed), mistake) for seed in SEEDS)


def test_a_failure_becomes_small(monkeypatch):
    """A compiler that takes |x| for x, and a large program that shows it."""

    @contextlib.contextmanager
    def mistake():
        with monkeypatch.context() as context:
            context.setitem(numerics._ELEMENTWISE, "math.absf", lambda x: x)
            yield

    def judge(program, keep=None):
        return run.Outcome("wrong" if _differs(program, mistake) else "ok")

    monkeypatch.setattr(run, "run", judge)
    programs = map(generate.generate, range(1000))
    program = next(
        p for p in programs if count_operations(p) > 30 and judge(p).kind == "wrong"
    )
    smaller = reduce.reduce(program, judge(program), seconds=60)
    assert judge(smaller).kind == "wrong"
    assert count_operations(smaller) <= 5, print_program(smaller)
