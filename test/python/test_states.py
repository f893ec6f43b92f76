# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States: checkpoints, other buckets, and the conversion of PyTorch's states."""

import io
import logging
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


def _resume(rank, hook, options, before, after, optimizer=False):
    """Ten steps, and four and six steps with a file in between, give the same bits.

    The file is loaded twice, the second time into the state that the first load left.
    """
    import ddphook.torch

    def register(model):
        given = dict(options)
        if optimizer:
            given["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.05)
        return ddphook.torch.register(model, hook, **given)

    def train(model, steps, first=0):
        return models.train(model, rank, steps, first=first, lr=0 if optimizer else 0.05)

    whole = models.make("mlp", rank, **before)
    with register(whole):
        expected = train(whole, 10)

    first = models.make("mlp", rank, **before)
    with register(first) as handle:
        got = train(first, 4)
        saved = through_a_file(handle.state_dict())
    parameters = first.module.state_dict()
    second = models.make("mlp", rank, **after)
    second.module.load_state_dict(parameters)
    with register(second) as handle:
        handle.load_state_dict(saved)
        handle.load_state_dict(handle.state_dict())
        got += train(second, 6, first=4)
    models.check_equal(got, expected, (hook, options))


SMALL, ONE = {"bucket_cap_mb": 0.02}, {"bucket_cap_mb": 100}
# Makes DDP use the same buckets in its first step as later.
FIXED = {"find_unused_parameters": True, **SMALL}
# With more than two ranks, the results of all hooks depend on buckets, which determine
# the order in which ranks add an element.
HOOKS = {
    "allreduce": {},
    "int8": {"error_feedback": True},
    "int4": {"rounding": "stochastic"},
    "fp8": {},
    "topk": {},
    "powersgd": OPTIONS,
    # Each step draws numbers, bucket by bucket.
    "powersgd without a warm start": {**OPTIONS, "warm_start": False},
    "powersgd that alternates codes": {**OPTIONS, "alternate": True, "wrapper": "int8"},
    "batched_powersgd": OPTIONS,
}


def _resume_hooks(rank):
    for name, options in HOOKS.items():
        _resume(rank, name.partition(" ")[0], options, SMALL, SMALL)


def _resume_others(rank):
    _resume(rank, "powersgd", {**OPTIONS, "start_powerSGD_iter": 6}, SMALL, SMALL)
    _resume(rank, "int4", {"exempt": "bias"}, SMALL, SMALL)
    for option in ("gradient_as_bucket_view", "static_graph"):
        given = {**SMALL, option: True}
        _resume(rank, "int4", {}, given, given)
    _resume(rank, "int4", {}, FIXED, FIXED)
    _resume(rank, "int8", {}, SMALL, SMALL, optimizer=True)
    # With two ranks, results for matrices do not depend on buckets.
    _resume(rank, "powersgd", OPTIONS, SMALL, ONE)
    _resume(rank, "powersgd", OPTIONS, ONE, SMALL)


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


def test_resuming_gives_the_bits_of_a_run_without_a_stop():
    ranks.run(3, _resume_hooks)


def test_resuming_with_other_models_and_in_other_buckets():
    ranks.run(2, _resume_others)


def _batched(rank):
    import ddphook.torch

    # The error's parts belong to the whole bucket.
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
        state = handle.state_dict()
    states = state["states"]
    assert state["kinds"] == {
        "powersgd.error": "error",
        "powersgd.q": "factor",
        "powersgd.iter": "iteration",
        "powersgd.generator": "generator",
    }
    names = [name for name, _ in ddp.module.named_parameters()]
    assert sorted(states["powersgd.error"]) == sorted(names)
    assert {int(v) for v in states["powersgd.iter"].values()} == {5}
    shapes = {n: tuple(p.shape) for n, p in ddp.module.named_parameters()}
    for name, error in states["powersgd.error"].items():
        assert tuple(error.shape) == shapes[name]
    # For an n x m weight, Q has m rows.
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
        for names in partial["buckets"]:
            names[:] = [name for name in names if name != "0.bias"]
        for wrong, text in (
            ({}, "format"),
            ({**good, "format": "ddphook.torch 1"}, "'ddphook.torch 2', but got"),
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
        # The states are unchanged.
        again = handle.state_dict()["states"]
        for role, values in good["states"].items():
            for name, value in values.items():
                assert torch.equal(again[role][name], value)
        other = through_a_file(good)
        other["buckets"] = [["0.weight"]] * rank + other["buckets"]
        with pytest.raises(ddphook.PlanMismatchError):
            handle.load_state_dict(other)


def test_wrong_states():
    ranks.run(2, _wrong_states)


def _of_another_rank(rank):
    """Loading another rank's states clears the error feedback."""
    import ddphook.torch

    said = io.StringIO()
    logging.getLogger("ddphook").addHandler(logging.StreamHandler(said))
    for hook, options in (("powersgd", OPTIONS), ("int4", {})):
        ddp = models.make("mlp", rank, **SMALL)
        with ddphook.torch.register(ddp, hook, **options) as handle:
            models.train(ddp, rank, 6)
            good = through_a_file(handle.state_dict())
            parameters = {k: v.clone() for k, v in ddp.module.state_dict().items()}
            histories = []
            for is_mine in (True, False):
                models.train(ddp, rank, 2, first=6)
                ddp.module.load_state_dict(parameters)
                state = through_a_file(good)
                errors = state["states"][f"{hook}.error"].values()
                assert any(error.any() for error in errors)
                if is_mine:
                    for error in errors:
                        error.zero_()
                else:
                    state["rank"] = 1 - rank
                assert said.getvalue() == ""
                handle.load_state_dict(state)
                histories.append(models.train(ddp, rank, 2, first=6))
            models.check_equal(*histories, hook)
        assert f"{hook}.error begin at zero" in said.getvalue()
        said.truncate(0)
        said.seek(0)


def test_the_state_of_another_rank():
    ranks.run(2, _of_another_rank)


def _frozen(rank):
    """Parameters that are frozen for a while keep their states."""
    import ddphook.torch

    for hook, options in (("powersgd", OPTIONS), ("int4", {}), ("topk", {})):
        ddp = models.make("mlp", rank, **SMALL)
        with ddphook.torch.register(ddp, hook, **options) as handle:
            models.train(ddp, rank, 5)
            frozen = ddp.module[0].bias
            frozen.requires_grad_(False)
            good = handle.state_dict()
            handle.load_state_dict(good)
            again = handle.state_dict()
            assert again["buckets"] == good["buckets"]
            for role, values in good["states"].items():
                for name, value in values.items():
                    assert torch.equal(again["states"][role][name], value)
            frozen.requires_grad_(True)
            models.train(ddp, rank, 1, first=5)


def test_frozen_parameters():
    ranks.run(2, _frozen)


def _from_pytorch(rank):
    """Runs four steps with PyTorch's hook, and four more with ours."""
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
        # Without the states, the same steps differ by more than rounding.
        fresh = models.make("mlp", rank, **FIXED)
        fresh.module.load_state_dict(parameters)
        with ddphook.torch.register(fresh, "powersgd", **OPTIONS):
            got = models.train(fresh, rank, 4, first=4)
        assert models.difference(got, expected) > 2e-4


def test_continuing_from_a_state_of_pytorch():
    ranks.run(2, _from_pytorch)
