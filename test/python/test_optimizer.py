# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers that run in the modules of buckets.

They are compared with PyTorch's: the same hook and ``optimizer.step()``, and
``_hook_then_optimizer``. SGD has the same bits after every step. Adam does not, because
PyTorch's square root is not correctly rounded. It differs by a few ulps per step, so it
continues from PyTorch's values after each step.
"""

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import optimizer_overlap_hooks
from torch.distributed.optim.functional_adam import _FunctionalAdam
from torch.distributed.optim.functional_adamw import _FunctionalAdamW
from torch.distributed.optim.functional_sgd import _FunctionalSGD

import models
import ranks

STEPS = 6
BUCKETS = {"bucket_cap_mb": 0.02}
# Some ulps of a parameter of about 1, for one step of Adam.
TOLERANCE = 8 * torch.finfo(torch.float32).eps

SGD = [
    {"lr": 0.05},
    {"lr": 0.05, "momentum": 0.9},
    {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-2},
    {"lr": 0.05, "momentum": 0.8, "dampening": 0.3, "maximize": True},
]
ADAM = [
    {"lr": 0.01},
    {"lr": 0.01, "betas": (0.4, 0.99), "weight_decay": 1e-2, "amsgrad": True},
    {"lr": 0.01, "maximize": True, "eps": 1e-6},
]


def train_step(ddp, rank, optimizer, step):
    generator = torch.Generator().manual_seed(1_000_003 + step * 101 + rank)
    x = torch.rand(6, 64, generator=generator) * 2 - 1
    ddp.zero_grad()
    (ddp(x).float() - 0.3).square().mean().backward()
    if optimizer is not None:
        optimizer.step()


def train(ddp, rank, optimizer, steps=STEPS, first=0, scheduler=None):
    """Returns the parameters after each step."""
    history = []
    for step in range(first, first + steps):
        train_step(ddp, rank, optimizer, step)
        if scheduler is not None:
            scheduler.step()
        history.append(models.parameters(ddp))
    return history


def go_on_from(theirs, their_states, ours, our_states):
    """Copies a model's and its optimizer's values to another one."""
    with torch.no_grad():
        for source, target in zip(theirs.parameters(), ours.parameters()):
            target.copy_(source)
            for name, value in their_states.get(source, {}).items():
                if isinstance(value, torch.Tensor):
                    our_states[target][name].copy_(value)


def check_together(rank, theirs, their_optimizer, ours, our_optimizer, what, exact):
    """Trains two models, and compares them after every step."""

    def states(optimizer, ddp):
        if optimizer is not None:
            return optimizer.state
        return ddp.functional.state

    for step in range(STEPS):
        train_step(theirs, rank, their_optimizer, step)
        train_step(ours, rank, our_optimizer, step)
        got, expected = models.parameters(ours), models.parameters(theirs)
        if exact:
            models.check_equal([got], [expected], f"{what}, step {step}")
            continue
        scale = expected.abs().clamp_min(1)
        assert ((got - expected).abs() <= TOLERANCE * scale).all(), (what, step)
        theirs_now = states(their_optimizer, theirs)
        go_on_from(theirs, theirs_now, ours, states(our_optimizer, ours))


def _beside_step(rank, name, cases, hook):
    import ddphook.torch

    for cls, options in cases:
        theirs = models.make(name, rank, **BUCKETS)
        theirs.register_comm_hook(None, hook)
        ours = models.make(name, rank, **BUCKETS)
        theirs_step = cls(theirs.parameters(), **options)
        ours_step = cls(ours.parameters(), **options)
        what = f"{name}, {cls.__name__}, {options}"
        exact = cls is torch.optim.SGD
        with ddphook.torch.register(ours, hook, optimizer=ours_step):
            check_together(rank, theirs, theirs_step, ours, ours_step, what, exact)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_option(world):
    cases = [(torch.optim.SGD, options) for options in SGD]
    cases += [(torch.optim.Adam, options) for options in ADAM]
    cases.append((torch.optim.AdamW, {"lr": 0.01, "amsgrad": True}))
    ranks.run(world, _beside_step, "mlp", cases, default_hooks.fp16_compress_hook)


@pytest.mark.parametrize(
    "name", ["conv", "strided", "frozen", "mixed-types", "scalars"]
)
def test_every_layout(name):
    cases = [(torch.optim.SGD, SGD[2]), (torch.optim.AdamW, ADAM[0])]
    ranks.run(2, _beside_step, name, cases, default_hooks.allreduce_hook)


def _beside_functional(rank):
    import ddphook.torch

    for cls, options in [
        (_FunctionalSGD, SGD[1]),
        (_FunctionalAdam, ADAM[0]),
        (_FunctionalAdamW, ADAM[0]),
    ]:
        theirs, their_hook = _with_functional(rank, cls, options)
        ours, our_hook = _with_functional(rank, cls, options)
        theirs.register_comm_hook(None, their_hook)
        # The optimizer only has the parameters from the third on.
        untouched = list(ours.parameters())[1].clone()
        with ddphook.torch.register(ours, our_hook):
            exact = cls is _FunctionalSGD
            check_together(rank, theirs, None, ours, None, cls.__name__, exact)
        assert torch.equal(list(ours.parameters())[1], untouched)


def _with_functional(rank, cls, options):
    """Returns a model, and PyTorch's hook that runs a functional optimizer."""
    ddp = models.make("mlp", rank, **BUCKETS)
    chosen = list(ddp.parameters())[2:]
    ddp.functional = cls(chosen, **options)
    state = optimizer_overlap_hooks._OptimizerHookState(ddp.functional, chosen)
    hook = default_hooks.bf16_compress_hook
    return ddp, optimizer_overlap_hooks._hook_then_optimizer(hook, state)


def test_pytorchs_hook_then_optimizer():
    ranks.run(2, _beside_functional)


def _powersgd(rank):
    import ddphook.torch

    histories = []
    for mine in (False, True):
        ddp = models.make("mlp", rank, **BUCKETS)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
        given = {"optimizer": optimizer} if mine else {}
        with ddphook.torch.register(ddp, "powersgd", start_powerSGD_iter=2, **given):
            histories.append(train(ddp, rank, optimizer))
    models.check_equal(histories[1], histories[0])


def test_behind_powersgd():
    ranks.run(2, _powersgd)


def _groups_and_schedule(rank):
    import ddphook.torch

    histories = []
    for mine in (False, True):
        ddp = models.make("mlp", rank, **BUCKETS)
        parameters = list(ddp.parameters())
        optimizer = torch.optim.SGD(
            [
                {"params": parameters[::2], "weight_decay": 0.01},
                {"params": parameters[1::2], "lr": 0.1, "momentum": 0.5},
            ],
            lr=0.05,
        )
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
        steps = []
        optimizer.register_step_post_hook(lambda *_: steps.append(1))
        ddp_options = {"optimizer": optimizer} if mine else {}
        with ddphook.torch.register(ddp, "allreduce", **ddp_options):
            histories.append(train(ddp, rank, optimizer, scheduler=scheduler))
        assert len(steps) == STEPS
    models.check_equal(histories[1], histories[0])


def test_parameter_groups_and_a_scheduler():
    ranks.run(2, _groups_and_schedule)


def _resume(rank):
    import ddphook.torch

    for cls, options in [(torch.optim.SGD, SGD[1]), (torch.optim.Adam, ADAM[1])]:
        whole = models.make("mlp", rank)
        optimizer = cls(whole.parameters(), **options)
        with ddphook.torch.register(whole, "fp16", optimizer=optimizer):
            expected = train(whole, rank, optimizer, 10)
        # Four steps in modules, loading the optimizer's state, and six more steps.
        first = models.make("mlp", rank)
        optimizer = cls(first.parameters(), **options)
        with ddphook.torch.register(first, "fp16", optimizer=optimizer):
            train(first, rank, optimizer, 4)
        saved = optimizer.state_dict()
        second = models.make("mlp", rank)
        second.load_state_dict(first.state_dict())
        optimizer = cls(second.parameters(), **options)
        optimizer.load_state_dict(saved)
        with ddphook.torch.register(second, "fp16", optimizer=optimizer):
            got = train(second, rank, optimizer, 6, first=4)
        models.check_equal(got, expected[4:])


def _load_and_add_later(rank):
    import ddphook.torch

    ddp = models.make("mlp", rank)
    parameters = list(ddp.parameters())
    optimizer = torch.optim.SGD(parameters[1:], lr=0.5, momentum=0.9)
    saved = optimizer.state_dict()
    with ddphook.torch.register(ddp, "fp16", optimizer=optimizer):
        train(ddp, rank, optimizer, 1)
        # Loading replaces the groups and states.
        saved["param_groups"][0]["lr"] = 0.0
        optimizer.load_state_dict(saved)
        first, second = [p.clone() for p in parameters[:2]]
        train(ddp, rank, optimizer, 1)
        assert torch.equal(parameters[1], second)
        optimizer.add_param_group({"params": [parameters[0]], "lr": 0.5})
        train(ddp, rank, optimizer, 1)
        assert not torch.equal(parameters[0], first)
        assert torch.equal(parameters[1], second)


def test_what_the_optimizer_is_told_later():
    ranks.run(2, _load_and_add_later)


def test_the_optimizers_state_dict():
    ranks.run(2, _resume)


def _step_after_close(rank):
    import ddphook.torch

    ddp = models.make("mlp", rank)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5)
    with ddphook.torch.register(ddp, "fp16", optimizer=optimizer):
        loss = optimizer.step(lambda: _loss(ddp))
        assert loss > 0
        before = models.parameters(ddp)
        with pytest.raises(ddphook.FailedPreconditionError, match="not reduced"):
            optimizer.step()
        with ddp.no_sync():
            _loss(ddp)
        with pytest.raises(ddphook.FailedPreconditionError, match="'0.weight'"):
            optimizer.step()
        assert torch.equal(models.parameters(ddp), before)
    optimizer.step()
    assert not torch.equal(models.parameters(ddp), before)


def _loss(ddp):
    loss = ddp(torch.ones(2, 64)).square().mean()
    loss.backward()
    return loss


def test_step_is_given_back():
    ranks.run(2, _step_after_close)


class Reused(torch.nn.Module):
    """Uses its last weight twice, the first time without autograd."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(64, 600)
        # Fills the first bucket, which has a capacity of 1 MiB.
        self.last = torch.nn.Parameter(torch.eye(600))

    def forward(self, x):
        return self.first(x) @ self.last.detach() @ self.last


def _reused(rank):
    import ddphook.torch

    ddp = torch.nn.parallel.DistributedDataParallel(Reused())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5)
    ddphook.torch.register(ddp, "allreduce", optimizer=optimizer)
    _loss(ddp)  # All parameters are in one bucket, which is the last to be updated.
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _loss(ddp)


def test_a_parameter_that_is_still_needed():
    ranks.run(2, _reused)


def _refused(rank):
    import ddphook.torch

    ddp = models.make("mlp", rank)
    stranger = torch.nn.Parameter(torch.zeros(3))
    parameters = list(ddp.parameters())
    state = optimizer_overlap_hooks._OptimizerHookState(_FunctionalSGD(parameters))
    wrapped = optimizer_overlap_hooks._hook_then_optimizer(
        default_hooks.allreduce_hook, state
    )
    half = models.make("mlp", rank).to(torch.bfloat16)
    for model, hook, optimizer, error, text in [
        (ddp, "fp16", torch.optim.RMSprop(parameters), "UnsupportedError", "RMSprop"),
        (
            ddp,
            "fp16",
            torch.optim.SGD([*parameters, stranger]),
            "InvalidArgumentError",
            "shape (3,)",
        ),
        (
            ddp,
            "fp16",
            torch.optim.Adam(parameters, capturable=True),
            "UnsupportedError",
            "capturable",
        ),
        (ddp, wrapped, torch.optim.SGD(parameters), "InvalidArgumentError", "two"),
        (
            half,
            "fp16",
            torch.optim.SGD(half.parameters()),
            "UnsupportedError",
            "bfloat16",
        ),
    ]:
        with pytest.raises(getattr(ddphook, error)) as raised:
            ddphook.torch.register(model, hook, optimizer=optimizer)
        assert text in str(raised.value)
    with pytest.raises(ddphook.UnsupportedError, match="compiled step"):
        ddphook.torch.compile(_loss, hook=wrapped)


def test_what_cannot_run_in_modules():
    ranks.run(1, _refused)
