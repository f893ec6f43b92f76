# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States: checkpoints, other buckets, and what PyTorch's state becomes."""

import io
import pickle

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

import models
import ranks
from test_hooks import waiting

OPTIONS = {"matrix_approximation_rank": 2, "start_powerSGD_iter": 3}


def through_a_file(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def _resume(rank, hook, options, before, after):
    """Ten steps, and four and six with a file in between, give the same bits."""
    import ddphook.torch

    whole = models.make("mlp", rank, **before)
    with ddphook.torch.register(whole, hook, **options):
        expected = models.train(whole, rank, 10)

    first = models.make("mlp", rank, **before)
    with ddphook.torch.register(first, hook, **options) as handle:
        got = models.train(first, rank, 4)
        saved = through_a_file(handle.state_dict())
    parameters = first.module.state_dict()
    second = models.make("mlp", rank, **after)
    second.module.load_state_dict(parameters)
    with ddphook.torch.register(second, hook, **options) as handle:
        handle.load_state_dict(saved)
        got += models.train(second, rank, 6, first=4)
    models.check_equal(got, expected, hook)


SMALL, ONE = {"bucket_cap_mb": 0.02}, {"bucket_cap_mb": 100}
# The only DDP that has the same buckets in its first step as in all others.
FIXED = {"find_unused_parameters": True, **SMALL}


def _resume_all(rank):
    _resume(rank, "powersgd", OPTIONS, ONE, ONE)
    _resume(rank, "powersgd", OPTIONS, SMALL, ONE)
    _resume(rank, "powersgd", OPTIONS, ONE, SMALL)
    _resume(rank, "powersgd", {**OPTIONS, "start_powerSGD_iter": 6}, SMALL, SMALL)
    # Numbers that are drawn in a step, bucket by bucket, need the same buckets.
    cold = {**OPTIONS, "warm_start": False}
    _resume(rank, "powersgd", cold, FIXED, FIXED)
    # So do blocks that begin with a bucket.
    _resume(rank, "int8", {"error_feedback": True}, FIXED, FIXED)
    _resume(rank, "int4", {}, FIXED, FIXED)


def _foreign(rank):
    import ddphook.torch

    ddp = models.make("mlp", rank, **ONE)
    state = powersgd.PowerSGDState(None)
    for hook in ("int4", "fp16"):
        with ddphook.torch.register(ddp, hook) as handle:
            with pytest.raises(ddphook.InvalidArgumentError, match=f"hook '{hook}'"):
                handle.load_state_dict(state)
        ddp = models.make("mlp", rank, **ONE)


def test_pytorchs_state_of_another_hook():
    ranks.run(2, _foreign)


def test_resuming_in_the_same_and_in_other_buckets():
    ranks.run(2, _resume_all)


def _batched(rank):
    import ddphook.torch

    _resume(rank, "batched_powersgd", OPTIONS, FIXED, FIXED)
    # The error's parts belong to the bucket as a whole.
    ddp = models.make("mlp", rank, **ONE)
    with ddphook.torch.register(ddp, "batched_powersgd", **OPTIONS) as handle:
        models.train(ddp, rank, 5)
        (key,) = handle.state_dict()["states"]["powersgd.error"]
        assert isinstance(key, tuple) and len(key) == 6


def test_batched():
    ranks.run(2, _batched)


def _contents(rank):
    import ddphook.torch

    ddp = models.make("mlp", rank, **SMALL)
    with ddphook.torch.register(ddp, "powersgd", **OPTIONS) as handle:
        models.train(ddp, rank, 5)
        states = handle.state_dict()["states"]
    names = [name for name, _ in ddp.module.named_parameters()]
    assert sorted(states["powersgd.error"]) == sorted(names)
    assert {int(v) for v in states["powersgd.iter"].values()} == {5}
    shapes = {n: tuple(p.shape) for n, p in ddp.module.named_parameters()}
    for name, error in states["powersgd.error"].items():
        assert tuple(error.shape) == shapes[name]
    # Of an n x m weight Q has m rows.
    q = states["powersgd.q"]
    assert {name: tuple(value.shape) for name, value in q.items()} == {
        name: (shape[1], 2) for name, shape in shapes.items() if name in q
    }
    return {name: value.numpy() for name, value in q.items()}


def test_what_a_state_dict_holds():
    first, second = ranks.run(2, _contents)
    assert first.keys() == second.keys() and "0.weight" in first
    for name in first:
        assert (first[name] == second[name]).all()


def _wrong_states(rank):
    import ddphook.torch

    ddp = models.make("mlp", rank, **ONE)
    with ddphook.torch.register(ddp, "powersgd", **OPTIONS) as handle:
        models.train(ddp, rank, 5)
        good = handle.state_dict()
        strange, partial = through_a_file(good), through_a_file(good)
        strange["states"]["powersgd.iter"]["nobody"] = torch.ones(1)
        for values in partial["states"].values():
            values.pop("0.bias", None)
        for wrong, text in (
            ({}, "format"),
            ({**good, "hook": "hook=fp16"}, "hook=fp16"),
            (strange, "the state has 'nobody'"),
            (partial, "the state lacks '0.bias'"),
            (powersgd, "but got module"),
        ):
            with pytest.raises(ddphook.InvalidArgumentError, match=text):
                handle.load_state_dict(wrong)
        torn = through_a_file(good)
        torn["states"]["powersgd.q"]["0.weight"] += rank
        with pytest.raises(ddphook.PlanMismatchError):
            handle.load_state_dict(torn)
        # Nothing has changed.
        again = handle.state_dict()["states"]
        for role, values in good["states"].items():
            for name, value in values.items():
                assert torch.equal(again[role][name], value)
        # Error feedback of another rank is not this one's.
        handle.load_state_dict({**good, "rank": 1 - rank})


def test_wrong_states():
    ranks.run(2, _wrong_states)


def _from_pytorch(rank):
    """Four steps with PyTorch's hook, four more with ours."""
    import ddphook.torch

    for start in (2, 6):
        state = powersgd.PowerSGDState(None, 2, start)
        theirs = models.make("mlp", rank, **FIXED)
        theirs.register_comm_hook(state, waiting(powersgd.powerSGD_hook))
        models.train(theirs, rank, 4)
        saved = pickle.loads(pickle.dumps(state))
        parameters = {k: v.clone() for k, v in theirs.module.state_dict().items()}
        expected = models.train(theirs, rank, 4, first=4)

        ours = models.make("mlp", rank, **FIXED)
        ours.module.load_state_dict(parameters)
        with ddphook.torch.register(ours, saved):
            got = models.train(ours, rank, 4, first=4)
        deviation = models.difference(got, expected)
        assert deviation < 2e-5, (start, deviation)
        # Without the states the same steps differ by more than rounding.
        fresh = models.make("mlp", rank, **FIXED)
        fresh.module.load_state_dict(parameters)
        with ddphook.torch.register(fresh, "powersgd", **OPTIONS):
            got = models.train(fresh, rank, 4, first=4)
        assert models.difference(got, expected) > 2e-4


def test_continuing_from_a_state_of_pytorch():
    ranks.run(2, _from_pytorch)
