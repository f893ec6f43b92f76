# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers in whole compiled steps: dropout, and noise on averages.

Draws do not depend on the hook. So if Inductor calls PyTorch's generator
(``fallback_random``), the oracle for draws is the uncompiled step; if Inductor draws
itself, it is the step with Inductor's own reductions.
"""


import pytest
import torch
from torch import nn
from torch._inductor import config

import ranks
import test_compile

SEED = 20261128
STEPS = 3
POWERSGD = {
    "hook": "powersgd",
    "matrix_approximation_rank": 2,
    "start_powerSGD_iter": 2,
}
HOOKS = [{"hook": "allreduce"}, POWERSGD]


def make_models():
    """Returns two models with dropout, the same on all ranks."""
    torch.manual_seed(7)
    return [
        nn.Sequential(nn.Linear(24, 33), nn.Dropout(0.4), nn.ReLU(), nn.Linear(33, 7))
        for _ in range(2)
    ]


def make_step(both):
    """Returns a step of two models: it draws noise for the first model's averages before the
    second model's dropout, although all gradients are in one bucket.

    The step returns the parameters and the draws.
    """

    def step(parameters, x):
        updated, drawn = [], []
        for model, mine in zip(both, parameters, strict=True):
            named = dict(zip(dict(model.named_parameters()), mine, strict=True))
            output = torch.func.functional_call(model, named, (x,))
            loss = ((output - 0.3) ** 2).mean()
            averages = map(test_compile.reduced, torch.autograd.grad(loss, mine))
            noises = []
            for parameter, average in zip(mine, averages, strict=True):
                noise = torch.rand_like(average)
                noises.append(noise)
                change = average + 0.01 * noise
                updated.append(parameter.detach() - 0.05 * change)
            masks = nn.functional.dropout(torch.ones(5, 9), 0.3, True)
            drawn += [*noises, masks]
        half = len(updated) // 2
        return [updated[:half], updated[half:]], drawn

    return step


def compiled(step, options):
    import ddphook.torch

    torch._dynamo.reset()
    torch._dynamo.config.trace_autograd_ops = True
    if options is None:
        return torch.compile(step, fullgraph=True)
    return ddphook.torch.compile(step, fullgraph=True, **options)


def inputs_of(rank, step):
    generator = torch.Generator().manual_seed(SEED + 101 * step + rank)
    return torch.randn(8, 24, generator=generator)


def run(step, rank, parameters, first=0, steps=STEPS):
    """Returns the final parameters and, for each step, the draws and the generator's state."""
    history = []
    for number in range(first, first + steps):
        parameters = [[p.requires_grad_() for p in mine] for mine in parameters]
        parameters, drawn = step(parameters, inputs_of(rank, number))
        history.append([*drawn, torch.get_rng_state()])
    return parameters, history


def begin(rank, both):
    """Seeds each rank differently."""
    torch.manual_seed(SEED + rank)
    return [[p.detach().clone() for p in model.parameters()] for model in both]


def flat(parameters):
    return torch.cat([p.detach().flatten() for mine in parameters for p in mine])


def check_draws(got, expected, what):
    for number, (mine, others) in enumerate(zip(got, expected, strict=True)):
        for place, (a, b) in enumerate(zip(mine, others, strict=True)):
            assert torch.equal(a, b), (what, number, place)


def draws(rank, fallback):
    import ddphook.torch

    print(f"seed {SEED}")
    ranks.use_pytorchs_kernels()
    both = make_models()
    step = make_step(both)
    with config.patch(fallback_random=fallback):
        end, inductor = run(compiled(step, None), rank, begin(rank, both))
        expected = inductor
        if fallback:
            _, expected = run(step, rank, begin(rank, both))
            check_draws(inductor, expected, "Inductor alone")
        for options in HOOKS:
            ours, got = run(compiled(step, options), rank, begin(rank, both))
            check_draws(got, expected, options)
            if options["hook"] == "allreduce":
                assert torch.equal(flat(ours), flat(end))
            else:
                distance = (flat(ours) - flat(end)).norm() / flat(end).norm()
                assert 0 < distance < 0.2, options
            ddphook.torch.close()
    # The draws of the last step, without the generator's state.
    return [value.tolist() for value in expected[-1][:-1]]


ONE_RANK = pytest.param(1, marks=pytest.mark.full("two ranks do the same and more"))


@pytest.mark.parametrize(
    "fallback",
    [
        pytest.param(True, id="pytorchs"),
        pytest.param(False, id="inductors", marks=pytest.mark.full("compiles the models again")),
    ],
)
@pytest.mark.parametrize("world", [ONE_RANK, 2])
def test_draws_are_those_without_a_hook(world, fallback):
    drawn = ranks.run(world, draws, fallback)
    assert all(drawn[0] != others for others in drawn[1:]), "ranks draw the same"


def run_part(rank, options, first, steps, folder):
    """Runs some steps of a job, from a checkpoint unless they are the first ones."""
    import ddphook.torch

    both = make_models()
    parameters = begin(rank, both)
    file = folder / f"{rank}.pt"
    if first > 0:
        saved = torch.load(file)
        parameters = saved["parameters"]
        torch.set_rng_state(saved["generator"])
        ddphook.torch.load_state_dict(saved["states"])
    step = compiled(make_step(both), options)
    parameters, history = run(step, rank, parameters, first, steps)
    saved = {
        "parameters": parameters,
        "generator": torch.get_rng_state(),
        "states": ddphook.torch.state_dict(),
    }
    torch.save(saved, file)
    return flat(parameters).tolist(), [[v.tolist() for v in row] for row in history]


@pytest.mark.full("a third of a minute; the suite python resumes jobs, too")
@pytest.mark.parametrize("world", [1, 2])
def test_a_restart_from_a_checkpoint(world, tmp_path):
    """Three steps, and another one in other processes, equal four steps."""
    whole = ranks.run(world, run_part, POWERSGD, 0, 4, tmp_path)
    begun = ranks.run(world, run_part, POWERSGD, 0, 3, tmp_path)
    ended = ranks.run(world, run_part, POWERSGD, 3, 1, tmp_path)
    for (expected, draws), (_, first), (got, second) in zip(
        whole, begun, ended, strict=True
    ):
        assert first + second == draws
        assert got == expected
