# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States of hooks of sharded models: ``torch.save``, and PyTorch's distributed checkpoint."""

import logging

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

import ddphook
import ddphook.torch
import ranks
import sharded_model as sharded
from sharded_model import Net


def copy_values(net, other):
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), other.parameters()):
            parameter.to_local().copy_(value.to_local())


def _states(rank, shape, given, path):
    whole, first, second, lost = (sharded.sharded(shape) for _ in range(4))
    with ddphook.torch.register(whole, timeout=120, **given):
        sharded.train(whole, 6)
    with ddphook.torch.register(first, timeout=120, **given) as handle:
        sharded.train(first, 3)
        state = handle.state_dict()
        # The errors of a scattered group, or the shards of a PowerSGD's matrices.
        assert state["states"]
        torch.save(state, f"{path}/{rank}")
    state = torch.load(f"{path}/{rank}")
    for net, loads in (second, True), (lost, False):
        copy_values(net, first)
        with ddphook.torch.register(net, timeout=120, **given) as handle:
            if loads:
                handle.load_state_dict(state)
            sharded.train(net, 3, first=3)
    want = sharded.values(whole)
    assert not sharded.difference(sharded.values(second), want)
    assert sharded.difference(sharded.values(lost), want)
    other = torch.load(f"{path}/{1 - rank if rank < 2 else rank}")
    with ddphook.torch.register(second, timeout=120, **given) as handle:
        invalid = ddphook.InvalidArgumentError
        if "int4" in given.values():
            with pytest.raises(invalid, match="the state of rank 0: .* rank 1 of"):
                handle.load_state_dict(other)
        with pytest.raises(invalid, match="with the hook"):
            handle.load_state_dict({**state, "hook": "hook=fp16"})
        for strange in {}, {**state, "states": None}, {**state, "states": {"shards 2": {}}}:
            with pytest.raises(invalid, match="the state of rank 1: "):
                handle.load_state_dict(strange if rank == 1 else state)
        handle.load_state_dict(state)
        if "powersgd" in given.values():
            sharded.train(second, 1)
            before = values(handle)
            with pytest.raises(ddphook.PlanMismatchError, match="states of another step"):
                handle.load_state_dict(state if rank == 0 else handle.state_dict())
            after = values(handle)
            assert all(torch.equal(local(after[key]), local(before[key])) for key in before)


@pytest.mark.parametrize(
    "shape, given",
    [
        ((2,), dict(hook="int4")),
        ((2,), dict(hook="int8", rounding="stochastic", exempt="bias")),
        ((2, 2), dict(hook="powersgd", start_powerSGD_iter=2, shard_hook="int4")),
    ],
)
def test_a_resumed_job_computes_the_same(tmp_path, shape, given):
    ranks.run(int(np.prod(shape)), _states, shape, given, str(tmp_path))


def _replicate(*args, **options):
    from torch.distributed._composable.replicate_with_fsdp import replicate

    return replicate(*args, **options)


REPLICATED = dict(shard=_replicate)


def _columns(parameter):
    from torch.distributed.tensor import Shard

    return Shard(1) if parameter.dim() > 1 and parameter.shape[1] % 4 == 0 else None


def _checkpoints(rank, cases, path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import DTensor

    for number, (shape, given, options) in enumerate(cases):
        whole, first, second = (sharded.sharded(shape, **options) for _ in range(3))
        with ddphook.torch.register(whole, timeout=120, **given):
            sharded.train(whole, 6)
        with ddphook.torch.register(first, timeout=120, **given) as handle:
            sharded.train(first, 3)
            state = {"net": first.state_dict(), "hook": handle}
            dcp.save(state, checkpoint_id=f"{path}/{number}")
        with ddphook.torch.register(second, timeout=120, **given) as handle:
            # Its state is in no module yet.
            state = {"net": second.state_dict(), "hook": handle}
            dcp.load(state, checkpoint_id=f"{path}/{number}")
            second.load_state_dict(state["net"])
            assert any(isinstance(value, DTensor) for value in values(handle).values())
            sharded.train(second, 3, first=3)
        different = sharded.difference(sharded.values(second), sharded.values(whole))
        assert not different, (shape, given, different)


def _gradient_types(rank, shape):
    net = Net().to(torch.bfloat16)
    for parameter in net.parameters():
        parameter.grad_dtype = torch.float32
    net = sharded.sharded(shape, net)
    with ddphook.torch.register(net, "int4", timeout=120) as handle:
        before = {key: value.dtype for key, value in values(handle).items()}
        net(sharded.batch(0, rank).bfloat16()).sum().backward()
        assert before == {key: value.dtype for key, value in values(handle).items()}
        assert set(before.values()) == {torch.float32}


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_states_have_the_type_of_gradients_before_the_first_step(shape):
    ranks.run(2, _gradient_types, shape)


CASES = {
    "one dimension": [
        ((2,), dict(hook="int4"), {}),
        ((2,), dict(hook="int4", exempt="bias"), dict(shard_placement_fn=_columns)),
        ((2,), dict(hook="int8", rounding="stochastic", error_feedback=True), {}),
        ((2,), dict(hook="powersgd", start_powerSGD_iter=2), REPLICATED),
        # Begins to compress only after the load.
        ((2,), dict(hook="powersgd", start_powerSGD_iter=4), REPLICATED),
        ((2,), dict(hook="powersgd", start_powerSGD_iter=2, warm_start=False), REPLICATED),
        ((2,), dict(hook="batched_powersgd", start_powerSGD_iter=2), REPLICATED),
    ],
    "two dimensions": [
        ((2, 2), dict(hook="int4", shard_hook="fp8"), {}),
        ((2, 2), dict(hook="powersgd", start_powerSGD_iter=2, shard_hook="int4"), {}),
        ((2, 2), dict(hook="topk"), {}),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_a_distributed_checkpoint_resumes_a_job(tmp_path, name):
    ranks.run(2 if name == "one dimension" else 4, _checkpoints, CASES[name], str(tmp_path))


def values(handle):
    """Returns a handle's states by role and name."""
    jobs = handle.state_dict()["states"].values()
    return {(role, name): v for job in jobs for role in job for name, v in job[role].items()}


def local(value):
    return value.to_local() if hasattr(value, "to_local") else value


def _wholes(handle):
    """Returns the whole values of a handle's DTensors; collective."""
    return {name: value.full_tensor().numpy() for (_, name), value in values(handle).items()}


def _saved(rank, path):
    import torch.distributed.checkpoint as dcp

    net = sharded.sharded((2, 2))
    with ddphook.torch.register(net, "int4", timeout=120) as handle:
        sharded.train(net, 3)
        dcp.save({"net": net.state_dict(), "hook": handle}, checkpoint_id=path)
        return _wholes(handle)


def _resharded(rank, shape, path):
    import torch.distributed.checkpoint as dcp

    net, plain = sharded.sharded(shape), sharded.sharded(shape)
    with ddphook.torch.register(net, "int4", timeout=120) as handle:
        state = {"net": net.state_dict(), "hook": handle}
        dcp.load(state, checkpoint_id=path)
        net.load_state_dict(state["net"])
        found = _wholes(handle)
        copy_values(plain, net)
        sharded.train(net, 1, first=3)
    with ddphook.torch.register(plain, "int4", timeout=120):
        sharded.train(plain, 1, first=3)
    # The first step adds the errors.
    assert sharded.difference(sharded.values(net), sharded.values(plain))
    return found


def test_errors_between_replicas_go_over_into_other_shards(tmp_path):
    want, *_ = ranks.run(4, _saved, str(tmp_path))
    assert want["first.weight"].shape == (2, 33, 16)
    assert all(np.count_nonzero(value) for value in want.values())
    for shape in (2, 1), (2, 3):
        for got in ranks.run(int(np.prod(shape)), _resharded, shape, str(tmp_path)):
            assert not sharded.difference(got, want), shape


class Wide(Net):
    def __init__(self):
        super().__init__()
        self.second = nn.Linear(33, 9)


def _refused(rank, path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException

    net = sharded.sharded((4,))
    cases = [
        # The saved model, the model that loads it, and the error on every rank.
        (("int4", (4,), Net), ("int4", (2, 2), Net), "Size mismatch|Missing key"),
        (("int4", (2, 2), Net), ("int4", (4,), Net), "Size mismatch|Missing key"),
        (("int4", (4,), Net), ("fp8", (4,), Net), "with the hook .hook=fp8., but got .hook=int4"),
        (("int4", (4,), Net), ("fp16", (4,), Net), "with the hook 'hook=fp16', but got 'hook=int4"),
        (("int4", (4,), Net), ("int4", (4,), Wide), "Size mismatch .*second.weight"),
        (("powersgd", (2, 2), Net), ("powersgd", (1, 4), Net), "Missing key .*of 1 rank"),
    ]
    for number, (saves, loads, message) in enumerate(cases):
        place = f"{path}/{number}"
        for hook, shape, make in saves, loads:
            options = dict(start_powerSGD_iter=2) if hook == "powersgd" else {}
            net = sharded.sharded(shape, make())
            with ddphook.torch.register(net, hook, timeout=120, **options) as handle:
                sharded.train(net, 3)
                if (hook, shape, make) == saves:
                    dcp.save({"hook": handle}, checkpoint_id=place)
                    continue
                before = values(handle)
                expected = (CheckpointException, ddphook.InvalidArgumentError)
                with pytest.raises(expected, match=message):
                    dcp.load({"hook": handle}, checkpoint_id=place)
                after = values(handle)
                assert all(torch.equal(local(after[key]), local(before[key])) for key in before)
                sharded.train(net, 1)


def test_checkpoints_of_something_else_are_refused(tmp_path):
    ranks.run(4, _refused, str(tmp_path))


def _warnings():
    """Returns the list of all later messages of the log."""
    found = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())
    logging.getLogger("ddphook").addHandler(handler)
    return found


def _partly(rank, path, saves):
    import torch.distributed.checkpoint as dcp

    net, warnings = sharded.sharded((dist.get_world_size(),)), _warnings()
    options = dict(hook="int8", error_feedback=True, rounding="stochastic")
    with ddphook.torch.register(net, timeout=120, **options) as handle:
        sharded.train(net, 3)
        if saves:
            dcp.save({"hook": handle}, checkpoint_id=path)
            return
        planner = dcp.DefaultLoadPlanner(allow_partial_load=True)
        expected = dcp.api.CheckpointException
        with pytest.raises(expected, match="Missing key .*states.shards of 2 ranks"):
            dcp.load({"hook": handle}, checkpoint_id=path)
        before = {key: local(value).clone() for key, value in values(handle).items()}
        dcp.load({"hook": handle}, checkpoint_id=path, planner=planner)
        after = {key: local(value) for key, value in values(handle).items()}
        # States that the checkpoint lacks are unchanged.
        assert all(torch.equal(after[key], before[key]) for key in before)
        assert [text for text in warnings if "int8.error of scale, shards of 4 ranks" in text]
        sharded.train(net, 1)


def test_errors_between_shards_belong_to_as_many_ranks(tmp_path):
    for world, saves in (4, True), (2, False):
        ranks.run(world, _partly, str(tmp_path), saves)


class Unused(Net):
    """A parameter of the outermost group never has a gradient."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.rand(5))


def _unused(rank, path):
    import torch.distributed.checkpoint as dcp

    warnings = _warnings()
    whole, first, early, late = (sharded.sharded((2,), Unused()) for _ in range(4))
    with ddphook.torch.register(whole, "int4", timeout=120):
        sharded.train(whole, 6)
    with ddphook.torch.register(first, "int4", timeout=120) as handle:
        sharded.train(first, 3)
        dcp.save({"hook": handle}, checkpoint_id=path)
    for net in early, late:
        with ddphook.torch.register(net, "int4", timeout=120) as handle:
            warnings.clear()
            if net is late:
                sharded.train(net, 1)
            copy_values(net, first)
            dcp.load({"hook": handle}, checkpoint_id=path)
            lost = [text for text in warnings if "parameters: int4.error of scale, shards" in text]
            assert len(lost) == (net is early), warnings
            sharded.train(net, 3, first=3)
    want = sharded.values(whole)
    assert sharded.difference(sharded.values(early), want)
    assert not sharded.difference(sharded.values(late), want)


def test_errors_of_parameters_that_have_gradients_together(tmp_path):
    ranks.run(2, _unused, str(tmp_path))
