# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Users of process groups of the backend "ddphook": HSDP, FSDP2, DTensor, functional
collectives, ZeRO's optimizer, DDP, and PyTorch's own tests of collectives."""

import contextlib
import itertools
import os
import tempfile
import unittest
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ranks
from test_process_group import AVG, SEED, Flat, mean, quantization_model, random, same


def model():
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(16, 33), nn.ReLU(), nn.Linear(33, 8, bias=False))


def batch(rank, step):
    return random(rank, (4, 16), seed=SEED + step)


def loss(net, rank, step):
    return net(batch(rank, step)).square().mean()


def in_shards(gradients, ranks_):
    """Returns the flat shard of each rank: its rows of each gradient, padded."""
    chunks = [list(each.chunk(ranks_)) for each in gradients]
    shards = []
    for rank in range(ranks_):
        pieces = []
        for each, rows in zip(gradients, chunks):
            length = -(-each.shape[0] // ranks_)
            piece = each.new_zeros(length, *each.shape[1:])
            if rank < len(rows):
                piece[: len(rows[rank])] = rows[rank]
            pieces.append(piece)
        shards.append(pieces)
    return shards


def between(hook, shards):
    """Returns the mean over replicas of one rank's flat shards, by a model."""
    if hook == "fp16":
        halves = [each.half() / len(shards) for each in shards]
        return sum(halves[1:], halves[0]).float()
    arrays = [each.numpy() for each in shards]
    reduced = quantization_model.reduce_scaled(arrays, "i8", 256, len(shards))
    return torch.from_numpy(reduced)


def by_hand(hook, steps):
    """Trains without any library: replicas {0, 1} and {2, 3}, each in two shards."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0625)
    for step in range(steps):
        gradients = []
        for rank in range(4):
            net.zero_grad()
            loss(net, rank, step).backward()
            gradients.append([p.grad.clone() for p in net.parameters()])
        means = [
            [(a + b) / 2 for a, b in zip(gradients[first], gradients[first + 1])]
            for first in (0, 2)
        ]
        for layer in ([0, 1], [2]):
            parameters = [list(net.parameters())[number] for number in layer]
            replicas = [in_shards([each[n] for n in layer], 2) for each in means]
            rows = [[] for _ in layer]
            for shard in range(2):
                flats = [torch.cat([p.reshape(-1) for p in r[shard]]) for r in replicas]
                pieces = between(hook, flats).split([p.numel() for p in replicas[0][shard]])
                for kept, piece, like in zip(rows, pieces, replicas[0][shard]):
                    kept.append(piece.view(like.shape))
            for parameter, pieces in zip(parameters, rows):
                parameter.grad = torch.cat(pieces)[: parameter.shape[0]].clone()
        optimizer.step()
    return [p.detach() for p in net.parameters()]


def _hsdp(rank):
    import ddphook.torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    for hook in "fp16", "int8":
        override = {"replicate": ddphook.torch.Options(hook=hook)}
        names = ("replicate", "shard")
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=names, backend_override=override)
        assert dist.get_backend(mesh.get_group("replicate")) == "ddphook"
        net = model()
        for layer in net[0], net[2]:
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0625)
        for step in range(3):
            optimizer.zero_grad()
            loss(net, rank, step).backward()
            optimizer.step()
        for got, expected in zip(net.parameters(), by_hand(hook, 3), strict=True):
            same(got.detach().full_tensor(), expected, hook)

    # One dimension, whose reduce-scatters are compressed.
    override = {0: ("ddphook", ddphook.torch.Options(hook="bf16"))}
    mesh = init_device_mesh("cpu", (4,), backend_override=override)
    net, alone = model(), model()
    fully_shard(net, mesh=mesh)
    loss(net, rank, 0).backward()
    loss(alone, rank, 0).backward()
    shards = in_shards([p.grad for p in alone.parameters()], 4)
    flat = torch.cat([piece.reshape(-1) for shard in shards for piece in shard])
    sizes = [piece.numel() for piece in shards[rank]]
    pieces = mean("bf16", flat).view(4, -1)[rank].split(sizes)
    for got, piece, like in zip(net.parameters(), pieces, shards[rank], strict=True):
        local = got.grad.to_local()
        same(local, piece.view(like.shape)[: local.shape[0]])


def test_hsdp_and_fsdp2():
    ranks.run(4, _hsdp)


def _users(rank):
    """DTensor, functional collectives, ZeRO's optimizer."""
    import ddphook.torch
    import torch.distributed._functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    override = {0: ("ddphook", ddphook.torch.Options(hook="fp16"))}
    mesh = init_device_mesh("cpu", (2,), backend_override=override)
    g = mesh.get_group()
    x = random(rank, (4, 3))
    expected = mean("fp16", x.reshape(-1).clone()).view(4, 3)
    partial = DTensor.from_local(x, mesh, [Partial("avg")], run_check=False)
    same(partial.redistribute(placements=[Replicate()]).to_local(), expected)
    same(partial.redistribute(placements=[Shard(0)]).to_local(), expected.chunk(2)[rank])
    for made in (
        functional.all_reduce(x, "avg", g),
        functional.all_reduce(x, "avg", (mesh, 0)),
        *functional.all_reduce_coalesced([x], "avg", g),
        functional.all_gather_tensor(functional.reduce_scatter_tensor(x, "avg", 0, g), 0, g),
    ):
        same(functional.wait_tensor(made), expected)
    two = functional.reduce_scatter_tensor_coalesced([x, x + 1], "avg", [0, 0], g)
    same(functional.wait_tensor(two[0]), expected.chunk(2)[rank])
    compiled = torch.compile(
        lambda x: functional.wait_tensor(functional.all_reduce(x, "avg", g)) + 1,
        backend="eager",
    )
    same(compiled(x), expected + 1)

    nets = [model() for _ in range(2)]
    zero = ZeroRedundancyOptimizer(
        nets[0].parameters(), torch.optim.Adam, process_group=g, lr=0.01
    )
    plain = torch.optim.Adam(nets[1].parameters(), lr=0.01)
    for step in range(3):
        for net, optimizer in zip(nets, (zero, plain)):
            optimizer.zero_grad()
            loss(net, rank, step).backward()
            for p in net.parameters():
                dist.all_reduce(p.grad, AVG, group=g)
            optimizer.step()
    for got, expected in zip(nets[0].parameters(), nets[1].parameters()):
        same(got.detach(), expected.detach())


def test_dtensor_functional_collectives_and_zero():
    ranks.run(2, _users)


def _default_group(rank):
    """A job whose default group has a hook; DDP's reducer calls it from C++."""
    import ddphook.torch

    store = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())
    dist.destroy_process_group()
    options = ddphook.torch.Options("fp16")
    dist.init_process_group("ddphook", store=store, rank=rank, world_size=2, pg_options=options)
    assert dist.get_backend() == "ddphook"
    x = random(rank, 1000)
    expected = mean("fp16", x.clone())
    flat = DistributedDataParallel(Flat(x))
    flat(x).backward()
    same(flat.module.weight.grad, expected)
    # A group without options compresses nothing.
    exact = x.clone()
    dist.all_reduce(exact, group=dist.new_group())
    assert not torch.equal(exact / 2, expected)
    # A hook of a model and the hook of its group.
    with ddphook.torch.register(DistributedDataParallel(Flat(x)), "int8") as handle:
        assert "int8" in repr(handle)


def test_default_group():
    ranks.run(2, _default_group)


# Tests of DDP and of GPUs, and tests that wait for a long time.
OTHERS = ["DistributedDataParallel", "ddp", "DDP", "SyncBatch", "cuda", "nccl", "multigpu"]
OTHERS += ["barrier_timeout", "all_to_all_group"]
# Tests that pass on Gloo alone, since they look for its name.
DIFFERENT = {"test_get_backend"}
SOME = [
    "test_all_gather_coalesced_simple",
    "test_all_reduce_coalesced_sum",
    "test_all_reduce_group_sum",
    "test_all_reduce_sum_async",
    "test_all_reduce_sum_complex",
    "test_all_to_all_single_unequal_split",
    "test_barrier_group",
    "test_batch_isend_irecv_gloo",
    "test_destroy_group",
    "test_get_future",
    "test_reduce_sum",
    "test_scatter",
    "test_send_recv_any_source",
]


def outcomes(rank, world, names, backends):
    """Runs tests of PyTorch's collectives on each backend in turn, those that a backend
    passes on the next one; returns what became of each on the last."""
    os.environ |= {"WORLD_SIZE": str(world), "BACKEND": "gloo", "INIT_METHOD": "env://"}
    os.environ["TEMP_DIR"] = tempfile.gettempdir()
    from torch.testing._internal.common_utils import TestCase
    from torch.testing._internal.distributed import distributed_test

    import ddphook.torch  # noqa: F401 - registers the backend.

    os.environ["BACKEND"] = "mpi"  # Otherwise, tests of groups want eight ranks.
    base = distributed_test.DistributedTest._DistTestBase
    attributes = {"runTest": None, "rank": rank, "world_size": world}
    case = type("Case", (base, TestCase), attributes)()
    store = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    names = names or [
        name
        for name in dir(base)
        if name.startswith("test_") and not any(word in name for word in OTHERS)
    ]
    found, wait = {}, timedelta(seconds=60)
    for name, backend in itertools.product(names, backends):
        if found.get(name, "ok") != "ok":
            continue
        prefix = dist.PrefixStore(f"{backend} {name}", store)
        meetings = itertools.count()

        def meet(*_, prefix=prefix, meetings=meetings, **__):
            number = next(meetings)
            prefix.set(f"{number} {rank}", "")
            prefix.wait([f"{number} {each}" for each in range(world)], wait)

        case._barrier = meet
        try:
            dist.init_process_group(
                backend,
                store=prefix,
                rank=rank,
                world_size=world,
                timeout=wait,
            )
            getattr(case, name)()
            outcome = "ok"
        except (unittest.SkipTest, SystemExit):
            outcome = "skipped"
        except BaseException as error:  # noqa: BLE001 - returned.
            outcome = f"{backend}: {type(error).__name__}: {error}"
        store.set(f"{backend} {name} {rank}", outcome)
        seen = [store.get(f"{backend} {name} {each}").decode() for each in range(world)]
        found[name] = next((each for each in seen if each != "ok"), "ok")
        # Other ranks may still connect to this one until all have ended the test.
        with contextlib.suppress(AssertionError, RuntimeError, ValueError):
            dist.destroy_process_group()
    end = dist.PrefixStore("end", store)
    dist.init_process_group("gloo", store=end, rank=rank, world_size=world)
    return found


@pytest.mark.full("runs a hundred of PyTorch's tests, each on two backends")
def test_pytorchs_tests_of_collectives():
    found = ranks.run(4, outcomes, 4, [], ["gloo", "ddphook"])[0]
    failed = {name: text for name, text in found.items() if text.startswith("ddphook")}
    assert failed.keys() <= DIFFERENT, failed
    assert list(found.values()).count("ok") >= 100, found


def test_some_of_pytorchs_tests_of_collectives():
    found = ranks.run(4, outcomes, 4, SOME, ["ddphook"])[0]
    assert found == dict.fromkeys(SOME, "ok")
