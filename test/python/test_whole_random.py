# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares random numbers in whole steps with PyTorch's compiled step for equal seeds."""

import functools
import random
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree
from torch.utils.checkpoint import checkpoint

import ranks
import test_whole

SEED = 20261128
STEPS = 3
# The number of results that are draws.
DRAWS = 10
# Inductor uses the lower half of a seed.
SEEDS = [77, 1000077]


class Model(nn.Module):
    """Applies dropout by a module, a function and attention."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 36)
        self.drop = nn.Dropout(0.25)
        self.last = nn.Linear(12, 5)

    def forward(self, x):
        x = self.drop(self.first(x))
        q, k, v = (part.reshape(1, 7, 3, 4).transpose(1, 2) for part in x.split(12, -1))
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
        x = F.dropout(x.transpose(1, 2).reshape(7, 12), 0.5, True)
        return self.last(x)


def make():
    torch.manual_seed(SEED)
    model = Model()
    parameters = {k: v.detach() for k, v in model.named_parameters()}

    def step(parameters, x):
        parameters = {k: v.detach().requires_grad_() for k, v in parameters.items()}
        y = torch.func.functional_call(model, parameters, (x,))
        loss = (y - 0.3).square().mean()
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        averages = test_whole.average(gradients)
        new = {
            name: (value - test_whole.RATE * gradient).detach()
            for (name, value), gradient in zip(parameters.items(), averages)
        }
        ones = torch.ones_like(x)
        # Unused draws do not count.
        F.dropout(torch.rand(5), 0.5)
        drawn = (
            F.dropout(ones, 0.5),
            # For these types, Inductor rounds products less often.
            (F.dropout(ones.half(), 0.1) != 0).float(),
            (F.dropout(ones.bfloat16(), 0.7) != 0).float(),
            (F.dropout(ones.double(), 0.4) != 0).float(),
            torch.rand_like(x),
            torch.bernoulli(x.abs()),
            # Draws follow the memory order.
            F.dropout(ones.reshape(7, 3, 4).permute(2, 0, 1), 0.5),
            torch.rand_like(x.t()),
            torch.rand(0, 3).sum() + torch.rand(4),
            F.dropout(ones, 1.0) + F.dropout(ones, 0.0),
        )
        return new, test_whole.reduced(loss.detach()), drawn

    return step, parameters


def data(rank, number):
    generator = torch.Generator().manual_seed(SEED + 10 * number + rank)
    return torch.rand(7, 12, generator=generator) * 2 - 1


def _compiled(rank, directory):
    """Returns the results of Inductor's step, step by step; the last ones are its draws."""
    import ddphook.torch

    step, parameters = make()
    if rank == 0:
        ddphook.torch.export(
            step, parameters, data(0, 0), file=directory / "step.mlir", whole=True
        )
    torch._dynamo.config.trace_autograd_ops = True
    compiled = torch.compile(step, fullgraph=True)
    seed, counts, history = SEEDS[rank], set(), []

    def seeds(low, high, size, out):
        counts.add(out.numel())
        return out.copy_(seed + torch.arange(out.numel()))

    with mock.patch.object(torch.ops.aten.randint, "low_out", seeds):
        for number in range(STEPS):
            results = compiled(parameters, data(rank, number))
            parameters = {k: v.detach() for k, v in results[0].items()}
            history.append([v.tolist() for v in _pytree.tree_leaves(results)])
            (count,) = counts
            seed += count
    return history


@pytest.mark.full("half a minute; test_compile_random draws under Inductor")
@pytest.mark.parametrize("world", [1, 2])
def test_inductors_bits(world, tmp_path):
    expected = ranks.run(world, _compiled, tmp_path)
    _, parameters = make()
    arguments = [[*parameters.values()] for _ in range(world)]
    seeds = [torch.tensor(seed) for seed in SEEDS[:world]]
    draws = []
    for number in range(STEPS):
        for rank in range(world):
            inputs = [*arguments[rank], data(rank, number), seeds[rank]]
            test_whole.save(inputs, tmp_path / f"in.{rank}")
        # Each step runs in another process: only the seed is carried over.
        native = test_whole.run_native(
            tmp_path / "step.mlir", world, "hook=allreduce", tmp_path
        )
        for rank, (*results, seed) in enumerate(native):
            wanted = expected[rank][number]
            test_whole.check_close(results, wanted)
            for got, want in zip(results[-DRAWS:], wanted[-DRAWS:]):
                assert torch.equal(got.flatten(), torch.tensor(want).flatten())
            # The last one is no draw.
            draws.append(torch.cat([got.flatten() for got in results[-DRAWS:-1]]))
            arguments[rank], seeds[rank] = results[: len(parameters)], seed
    for i, first in enumerate(draws):
        for second in draws[:i]:
            assert (first != second).float().mean() > 0.2


def philox(key, counter):
    """Returns Philox 4x32 with ten rounds, in Python's integers."""
    word = (1 << 32) - 1
    for _ in range(10):
        first, second = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = (
            (second >> 32) ^ counter[1] ^ key[0],
            second & word,
            (first >> 32) ^ counter[3] ^ key[1],
            first & word,
        )
        key = ((key[0] + 0x9E3779B9) & word, (key[1] + 0xBB67AE85) & word)
    return counter


def test_seeds_of_64_bits():
    from ddphook.torch import _random

    # The published results for zeros and for ones.
    known = (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox((0, 0), (0, 0, 0, 0)) == known
    ones = (1 << 32) - 1
    known = (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    assert philox((ones, ones), (ones, ones, ones, ones)) == known
    generator = random.Random(SEED)
    for seed in [0, -1, 1 << 32, *(generator.getrandbits(63) for _ in range(5))]:
        key = (seed & ones, seed >> 32 & ones)
        words = [philox(key, (place, 0, 0, 0))[0] & 0x7FFFFFFF for place in range(15)]
        expected = torch.tensor(words, dtype=torch.float32) * 4.6566127342e-10
        got = _random.uniform(torch.tensor(seed), [3, 5])
        assert torch.equal(got.flatten(), expected), seed


def drawn_by(step, x, seed):
    """Returns the results of a captured step, and the seed of the next one."""
    from ddphook.torch import _whole

    captured = _whole.capture(step, (x,))
    run = torch.fx.Interpreter(torch.fx.GraphModule({}, captured.graph)).run
    *results, seed = run(x, torch.tensor(seed))
    return results, int(seed)


def _again(rank):
    """Checks dropout with a checkpoint, which computes it twice, and without one; and draws
    from states that the step has saved."""
    x = torch.rand(4, 6)

    def part(value):
        return torch.tanh(F.dropout(value @ weight_of(value), 0.5))

    def weight_of(value):
        return value.new_ones(6, 6) * 0.1 + value.mean()

    def step(x, around):
        x = x.detach().requires_grad_()
        first = around(part, x)
        last = F.dropout(around(part, first), 0.25)
        (gradient,) = torch.autograd.grad((last + 1).square().sum(), [x])
        return test_whole.reduced(gradient), last.detach()

    def plain(x):
        return step(x, lambda function, value: function(value))

    def checkpointed(x):
        return step(x, functools.partial(checkpoint, use_reentrant=False))

    def anew(x):
        around = functools.partial(
            checkpoint, use_reentrant=False, preserve_rng_state=False
        )
        return step(x, around)

    expected, seed = drawn_by(plain, x, SEED)
    assert seed == SEED + 3
    got, seed = drawn_by(checkpointed, x, SEED)
    assert seed == SEED + 3
    for mine, other in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, other)
    # The program makes the second draw a different one.
    got, seed = drawn_by(anew, x, SEED)
    assert seed == SEED + 5
    assert not torch.allclose(got[0], expected[0])

    def kept(x):
        state = torch.get_rng_state()
        first = torch.rand(4, 6)
        torch.set_rng_state(state)
        second = torch.rand(4, 6)
        with torch.random.fork_rng(devices=[]):
            third = torch.rand(4, 6)
        fourth = torch.rand(4, 6)
        return test_whole.reduced(x), first, second, third, fourth

    (_, first, second, third, fourth), seed = drawn_by(kept, x, SEED)
    assert torch.equal(first, second) and torch.equal(third, fourth)
    assert not torch.equal(first, third)
    assert seed == SEED + 2
    return True


def test_draws_that_are_made_again():
    assert ranks.run(1, _again) == [True]


def _refused(rank, directory):
    import ddphook
    import ddphook.torch

    def normal(x):
        return test_whole.reduced(x + torch.randn_like(x))

    def whole_numbers(x):
        return test_whole.reduced(x * torch.randint(0, 5, [3]))

    for step, operator in ((normal, "aten.randn"), (whole_numbers, "aten.randint")):
        with pytest.raises(ddphook.UnsupportedError, match=operator) as raised:
            ddphook.torch.export(
                step, torch.ones(3), file=directory / "no.mlir", whole=True
            )
        line = step.__code__.co_firstlineno + 1
        assert f"({__file__}:{line})" in str(raised.value)

    def seeded(x):
        torch.manual_seed(5)
        return test_whole.reduced(F.dropout(x))

    def seeded_behind(x):
        result = test_whole.reduced(F.dropout(x))
        torch.manual_seed(5)
        return result

    for step in (seeded, seeded_behind):
        # The seed is refused even if the generator already has that state.
        torch.manual_seed(5)
        before = torch.get_rng_state()
        with pytest.raises(ddphook.UnsupportedError, match="but it seeds the generator"):
            ddphook.torch.export(
                step, torch.ones(3), file=directory / "no.mlir", whole=True
            )
        assert torch.equal(torch.get_rng_state(), before)


def test_other_random_numbers_are_refused(tmp_path):
    ranks.run(1, _refused, tmp_path)


def _model_as_an_input(rank, directory):
    """Exports a step that leaves gradients, so that it is traced a second time and compared."""
    import ddphook.torch

    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))

    def step(model, x):
        model.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        for parameter in model.parameters():
            gradient = test_whole.reduced(parameter.grad)
            parameter.data = parameter.data - gradient
        return loss.detach()

    file = directory / "step.mlir"
    ddphook.torch.export(step, model, torch.ones(2, 4), file=file, whole=True)
    text = file.read_text()
    # A draw is a single loop.
    assert text.count("linalg.generic") < text.count("arith.muli")
    return [line for line in text.splitlines() if line.startswith("// ")]


def test_a_model_as_an_input(tmp_path):
    (lines,) = ranks.run(1, _model_as_an_input, tmp_path)
    arguments = [line for line in lines if line.startswith("// arg")]
    results = [line for line in lines if line.startswith("// result")]
    assert "is the seed of random numbers" in arguments[-1]
    assert results[-1].endswith("is the seed of the next step")
    assert len(arguments) == 4 and len(results) == 4
