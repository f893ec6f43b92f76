# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sharded models in jobs that go wrong, and with parameters of unusual kinds.

Whatever a rank does, the others raise an error before they have waited much longer than
the timeout.
"""

import contextlib
import os

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

TIMEOUT_S = 10


def _die(*_):
    os._exit(9)


def _raise(*_):
    raise ValueError("a rank's own error")


def _in_phase(rank, shape, phase, does):
    """Trains a model; in the second step, the last rank does something at one place."""
    net = sharded.sharded(shape)
    is_odd = rank == dist.get_world_size() - 1
    if is_odd and phase == "register":
        does()
    handle = ddphook.torch.register(net, "int4", timeout=TIMEOUT_S)
    sharded.train(net, 1)
    state = handle.state_dict()
    if is_odd and phase == "all-gather":
        net.second.register_forward_pre_hook(does)
    elif is_odd and phase == "reduce-scatter":
        net.first.register_full_backward_hook(does)
    elif is_odd and phase == "all-reduce":
        for each in handle._collectives:
            each._installed[2] = each._group._all_reduce_hook = does
    if phase == "load":
        if is_odd:
            does()
        handle.load_state_dict(state)
    sharded.train(net, 1)
    if is_odd and phase == "close":
        does()
    handle.close()


PHASES = ["register", "all-gather", "reduce-scatter", "all-reduce", "load"]


@pytest.mark.parametrize("phase", PHASES)
def test_a_rank_that_dies_is_an_error_on_the_others(phase):
    *others, lost = ranks.collect(4, _in_phase, (2, 2), phase, _die)
    assert lost == ("died", 9)
    for kind, text in others:
        assert kind == "raised", (phase, text)
        # FSDP itself gathers parameters.
        assert "ddphook._errors" in text or "RuntimeError" in text, text


def test_a_rank_that_dies_before_it_closes():
    *others, lost = ranks.collect(2, _in_phase, (2,), "close", _die)
    assert lost == ("died", 9)
    assert [kind for kind, _ in others] == ["ok"], others


@pytest.mark.parametrize("phase", ["all-gather", "reduce-scatter"])
def test_an_error_of_one_rank_ends_the_others(phase):
    other, own = ranks.collect(2, _in_phase, (2,), phase, _raise)
    assert own[0] == "raised" and "a rank's own error" in own[1], own
    assert other[0] == "raised" and "ddphook" in other[1] + "RuntimeError", other


def _lone_loads(rank):
    net, plain = sharded.sharded((2,)), sharded.sharded((2,))
    handle = ddphook.torch.register(net, "int4", timeout=120)
    sharded.train(net, 1)
    state = handle.state_dict()
    meeting, timeout_s = handle._meeting, handle._meeting.timeout_s
    for lone in 0, 1:
        meeting.timeout_s = 0.2
        if rank == lone:
            # Not even a load that the other rank gave up before counts.
            with pytest.raises(ddphook.DeadlineExceededError, match="for rank . to load states"):
                handle.load_state_dict(state)
        meeting.timeout_s = timeout_s
        dist.barrier()
    sharded.train(net, 2, first=1)
    with ddphook.torch.register(plain, "int4", timeout=120):
        sharded.train(plain, 3)
    assert not sharded.difference(sharded.values(net), sharded.values(plain))
    handle.load_state_dict(state)
    sharded.train(net, 1)
    handle.close()


def test_a_load_that_one_rank_takes_changes_nothing():
    ranks.run(2, _lone_loads)


def _closed(rank):
    net = sharded.sharded((2,))
    handle = ddphook.torch.register(net, "int8", timeout=TIMEOUT_S)
    sharded.train(net, 1)
    if rank == 1:
        handle.close()
    else:
        with pytest.raises(ddphook.Error):
            sharded.train(net, 1)
    # FSDP would go on without any communication.
    sharded.train(net, 1)


def test_a_hook_that_one_rank_has_closed():
    other, own = ranks.collect(2, _closed)
    assert other[0] == "raised" and "ddphook._errors" in other[1], other
    assert own[0] == "raised", own


class Optional(Net):
    """Uses a parameter of its own group only if it is told to."""

    uses = True

    def forward(self, x):
        y = self.second(self.first(x).relu())[:, :5]
        return y @ self.scale if self.uses else y


def _other_parameters(rank, shape, steps):
    net = sharded.sharded(shape, Optional())
    ddphook.torch.register(net, "int4", timeout=TIMEOUT_S)
    sharded.train(net, steps)
    net.uses = rank != 1
    sharded.train(net, 1, first=steps)


@pytest.mark.parametrize("shape, steps", [((2,), 0), ((2,), 2), ((2, 1), 2)])
def test_ranks_that_reduce_other_parameters(shape, steps):
    for kind, text in ranks.collect(2, _other_parameters, shape, steps):
        assert kind == "raised", text
        assert "ddphook._errors" in text or "RuntimeError" in text, text


def _other_meshes(rank):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    net = nn.Sequential(nn.Linear(4, 4))
    fully_shard(net, mesh=DeviceMesh("cpu", [1, 0] if rank == 1 else [0, 1]))
    with pytest.raises(ddphook.PlanMismatchError, match=r"the mesh '\[0, 1\]', but rank 1"):
        ddphook.torch.register(net, "int8", timeout=TIMEOUT_S)
    net = sharded.sharded((2,))
    if rank == 0:
        # The other rank never registers its hook.
        with pytest.raises(ddphook.DeadlineExceededError, match="for rank 1 to register"):
            ddphook.torch.register(net, "int8", timeout=1)


def test_meshes_that_do_not_fit():
    ranks.run(2, _other_meshes)


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.counts = nn.Parameter(torch.arange(6).view(3, 2), requires_grad=False)
        self.phases = nn.Parameter(self.counts.to(torch.complex64), requires_grad=False)
        self.weight = nn.Parameter(torch.rand(5), requires_grad=False)

    def forward(self, x):
        return x + self.counts.sum() * self.phases.real.mean() * self.weight.sum() / 1000


class Unusual(Net):
    """Has groups that are not used or frozen, also of types that no hook can reduce, and
    parameters with fewer rows than shards. (FSDP reduces none without elements.)"""

    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(3, 3)
        self.few = nn.Linear(3, 1)
        self.frozen = Frozen()

    def forward(self, x):
        return self.few(self.frozen(super().forward(x)))


def _unusual(shape, hook, **options):
    from torch.distributed.fsdp import fully_shard

    net, mesh = Unusual(), sharded.mesh_of(shape)
    for part in net.children():
        fully_shard(part, mesh=mesh)
    fully_shard(net, mesh=mesh)
    if not hook:
        sharded.train(net, 3)
        return sharded.values(net)
    with ddphook.torch.register(net, hook, timeout=120, **options) as handle:
        sharded.train(net, 3)
        assert handle.statistics()["steps"] > 0
        found = sharded.values(net)
        handle.load_state_dict(handle.state_dict())
        sharded.train(net, 1, first=3)
    return found


def _unusuals(rank, shape):
    want = _unusual(shape, None)
    for options in {}, dict(exempt="bias|unused"):
        for hook in "allreduce", "int4":
            got = _unusual(shape, hook, **options)
            for name, value in want.items():
                # Gloo adds four ranks in another order.
                limit = 1e-5 if hook == "allreduce" else 0.1
                assert np.allclose(got[name], value, rtol=limit, atol=limit), (hook, name)


@pytest.mark.parametrize("shape", [(2,), (4,), (2, 2)])
def test_parameters_of_unusual_kinds(shape):
    ranks.run(int(np.prod(shape)), _unusuals, shape)


def _alone(shape, given, made=Net):
    net = sharded.sharded(shape, made())
    with ddphook.torch.register(net, timeout=120, **given):
        sharded.train(net, 4)
    return sharded.values(net)


def _two_models(rank, shape):
    hooks = dict(hook="int4"), dict(hook="int8", error_feedback=True)
    want = [_alone(shape, given) for given in hooks]
    nets = [sharded.sharded(shape) for _ in hooks]
    with contextlib.ExitStack() as stack:
        for net, given in zip(nets, hooks):
            stack.enter_context(ddphook.torch.register(net, timeout=120, **given))
        for step in range(4):
            # Both backward passes run before either model is updated.
            losses = [sharded.loss(net, step, rank) for net in nets]
            for each in reversed(losses):
                each.backward()
            for net in nets:
                optimizer = torch.optim.SGD(net.parameters(), lr=sharded.RATE)
                optimizer.step()
                optimizer.zero_grad()
    for net, values in zip(nets, want):
        assert not sharded.difference(sharded.values(net), values)
    outer = nn.Sequential(nets[0])
    with ddphook.torch.register(nets[0], "int8", timeout=120):
        with pytest.raises(ddphook.FailedPreconditionError, match="has a hook already"):
            ddphook.torch.register(outer, "int8", timeout=120)


@pytest.mark.parametrize("shape", [(2,), (2, 2)])
def test_two_models_on_one_mesh(shape):
    ranks.run(int(np.prod(shape)), _two_models, shape)


def _two_models_of_a_group(rank):
    """Two models whose replicas have one process group of the backend."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    override = {"replica": ddphook.torch.Options(hook="int8", error_feedback=False)}
    names = ("replica", "shard")
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=names, backend_override=override)

    def made():
        net = Net()
        for part in net.first, net.second:
            fully_shard(part, mesh=mesh)
        return fully_shard(net, mesh=mesh)

    alone = made()
    sharded.train(alone, 3)
    nets = made(), made()
    for step in range(3):
        for net in nets:
            sharded.train(net, 1, first=step)
    for net in nets:
        assert not sharded.difference(sharded.values(net), sharded.values(alone))
    with pytest.raises(ddphook.FailedPreconditionError, match="has a hook of its own"):
        ddphook.torch.register(nets[0], "int4", timeout=TIMEOUT_S)


def test_two_models_with_one_process_group():
    ranks.run(2, _two_models_of_a_group)
