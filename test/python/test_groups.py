# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Process groups, several models, and ranks with unequal numbers of batches."""

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d as c10d
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as local
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.distributed.algorithms.join import Join

import models
import ranks

BUCKETS = {"bucket_cap_mb": 0.02}


def _subgroups(rank):
    """Ranks 0 and 2 train one model while ranks 1 and 3 train another."""
    import ddphook.torch

    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    group = groups[rank % 2]
    theirs = models.make("mlp", rank, process_group=group, **BUCKETS)
    theirs.register_comm_hook(group, default_hooks.fp16_compress_hook)
    expected = models.train(theirs, rank, 6)
    ours = models.make("mlp", rank, process_group=group, **BUCKETS)
    with ddphook.torch.register(ours, "fp16"):
        got = models.train(ours, rank, 6)
    models.check_equal(got, expected)
    return got[-1].sum().item()


def test_models_on_subgroups():
    sums = ranks.run(4, _subgroups)
    assert sums[0] == sums[2] != sums[1] == sums[3]


def _groups_of_states(rank):
    """The hook's state has another group than the model."""
    import ddphook.torch

    groups = [dist.new_group([0, 1]), dist.new_group([2])]
    group = groups[rank // 2]
    for hook, state in (
        (default_hooks.allreduce_hook, lambda: group),
        (default_hooks.fp16_compress_hook, lambda: group),
        (powersgd.powerSGD_hook, lambda: powersgd.PowerSGDState(group, 1, 2)),
        (local.post_localSGD_hook, lambda: local.PostLocalSGDState(group, group, 2)),
    ):
        theirs = models.make("mlp", rank, bucket_cap_mb=100)
        theirs.register_comm_hook(state(), hook)
        expected = models.train(theirs, rank, 4)
        ours = models.make("mlp", rank, bucket_cap_mb=100)
        with ddphook.torch.register(ours, hook, state=state()):
            got = models.train(ours, rank, 4)
        assert models.difference(got, expected) < 1e-6, hook
        # Bits are equal before the first compressed step.
        models.check_equal(got[:2], expected[:2], hook)
    with pytest.raises(ddphook.UnsupportedError, match="names its own"):
        ddphook.torch.compile(lambda x: x, hook="fp16", state=group)
    return got[-1].sum().item()


def test_groups_of_states():
    sums = ranks.run(3, _groups_of_states)
    assert sums[0] == sums[1] != sums[2]


def _train_two(first, second, rank):
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.05)
    history = []
    for step in range(8):
        generator = torch.Generator().manual_seed(step * 10 + rank)
        x = torch.rand(4, 64, generator=generator)
        optimizer.zero_grad()
        (first(x) * second(x)).square().mean().backward()
        optimizer.step()
        history.append(
            torch.cat([models.parameters(first), models.parameters(second)])
        )
    return history


def _two_models(rank):
    """Two models of equal layout in one graph have separate modules."""
    import ddphook.torch

    theirs = [models.make("mlp", rank, **BUCKETS) for _ in range(2)]
    for model in theirs:
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    expected = _train_two(*theirs, rank)
    ours = [models.make("mlp", rank, **BUCKETS) for _ in range(2)]
    handles = [ddphook.torch.register(model, "bf16") for model in ours]
    got = _train_two(*ours, rank)
    for handle in handles:
        handle.close()
    models.check_equal(got, expected)


def test_two_models_in_one_graph():
    ranks.run(2, _two_models)


def _train_uneven(ddp, rank):
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    with Join([ddp]):
        for step in range(4 + 3 * rank):
            generator = torch.Generator().manual_seed(step * 10 + rank)
            optimizer.zero_grad()
            ddp(torch.rand(4, 64, generator=generator)).square().mean().backward()
            optimizer.step()
    return [models.parameters(ddp)]


def _join(rank):
    import ddphook.torch

    theirs = models.make("mlp", rank, **BUCKETS)
    theirs.register_comm_hook(None, default_hooks.fp16_compress_hook)
    expected = _train_uneven(theirs, rank)
    ours = models.make("mlp", rank, **BUCKETS)
    with ddphook.torch.register(ours, "fp16"):
        got = _train_uneven(ours, rank)
    models.check_equal(got, expected)


def test_join():
    ranks.run(3, _join)


def _post_local(rank):
    import ddphook.torch

    near = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    arguments = {"subgroup": near, "start_localSGD_iter": 4}
    for all_reduce in (True, False):
        arguments["post_local_gradient_allreduce"] = all_reduce
        state = local.PostLocalSGDState(None, **arguments)
        theirs = models.make("mlp", rank, **BUCKETS)
        theirs.register_comm_hook(state, local.post_localSGD_hook)
        expected = models.train(theirs, rank, 8)
        ours = models.make("mlp", rank, **BUCKETS)
        with ddphook.torch.register(ours, "post_local_sgd", **arguments):
            got = models.train(ours, rank, 8)
        models.check_equal(got, expected, str(all_reduce))


def test_post_local_sgd_on_subgroups():
    ranks.run(4, _post_local)


def _again(rank):
    """PyTorch is shut down and initialized again, with other ranks."""
    import gc

    import ddphook.torch
    from ddphook.torch import _graph, _ops
    from test_graph import traced

    graph = traced(lambda x: _reduced(x), (4,))
    _graph.rewrite(graph, "hook=fp16", 60.0)
    step = torch.fx.GraphModule({}, graph)
    files = []
    store = c10d._get_default_store()
    for number in range(6):
        alone = number == 3
        if number:
            dist.destroy_process_group()
            # Rank 0 takes part in one more job than rank 1.
            mine = dist.HashStore() if alone else dist.PrefixStore(str(number), store)
            place, world = (0, 1) if alone else ((rank + number) % 2, 2)
            dist.init_process_group("gloo", store=mine, rank=place, world_size=world)
        mean = rank + 1.0 if alone else 1.5
        assert step(torch.full((4,), rank + 1.0)).tolist() == [mean] * 4
        if not alone or rank == 0:
            ddp = models.make("mlp", rank)
            with ddphook.torch.register(ddp, "fp16", timeout=60):
                models.train(ddp, rank, 1)
        if number != 2:  # Otherwise the previous job's session still exists.
            _ops.close()
        gc.collect()
        files.append(len(os.listdir("/proc/self/fd")))
    # Previous jobs leave neither code nor sockets.
    assert files[5] <= files[1], files


def _reduced(tensor):
    ops = torch.ops._c10d_functional
    return ops.wait_tensor(ops.all_reduce(tensor, "avg", "0"))


def test_pytorch_is_initialized_again():
    ranks.run(2, _again)


def _forgotten(rank):
    """A model and handle without references leave the job automatically."""
    import gc
    import threading

    import ddphook.torch

    def count():
        return sum(thread.name == "ddphook-torch" for thread in threading.enumerate())

    ddp = models.make("mlp", rank)
    ddphook.torch.register(ddp, "fp16")
    models.train(ddp, rank, 2)
    assert count() == 1
    del ddp
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "ddphook-torch":
            thread.join(60)
    assert count() == 0
    # A model that still exists when the process exits is closed then.
    kept = nn.parallel.DistributedDataParallel(nn.Linear(3, 3))
    ddphook.torch.register(kept, "fp16")
    kept(torch.ones(1, 3)).sum().backward()


def test_handles_that_nobody_closes():
    ranks.run(2, _forgotten)
