# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that first use several process groups in different orders.

Each pair of the three ranks is a group. So each rank is in two groups, and starts with
another group than its peers.
"""

from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import models
import ranks
import test_compile
from test_compile_failures import check, start

PAIRS = ((0, 1), (1, 2), (2, 0))
# The result in each group: the mean of its ranks' numbers.
MEANS = {pair: sum(pair) / 2 for pair in PAIRS}


def make_groups(rank, sort_ranks=True):
    """Returns a rank's groups in its order: around the ring."""
    groups = [dist.new_group(list(pair), sort_ranks=sort_ranks) for pair in PAIRS]
    around = [(rank + number) % 3 for number in range(3)]
    return {PAIRS[n]: groups[n] for n in around if rank in PAIRS[n]}


def by_hand(rank, sort_ranks):
    """Starts both reductions before it awaits one, and leaves the jobs."""
    import ddphook.torch

    groups = make_groups(rank, sort_ranks)
    for _ in range(3):
        for _ in range(2):
            tickets = [
                (start(float(rank), group=group.group_name), MEANS[pair])
                for pair, group in groups.items()
            ]
            for ticket, mean in tickets:
                check(ticket, mean)
        # Leaves jobs in the order of their first uses, which differs between ranks.
        ddphook.torch.close()
    return list(groups)


@pytest.mark.parametrize("sort_ranks", [True, False])
def test_reductions_by_hand(sort_ranks):
    orders = ranks.run(3, by_hand, sort_ranks)
    assert orders == [[(0, 1), (2, 0)], [(1, 2), (0, 1)], [(2, 0), (1, 2)]]


def compiled(rank):
    """Runs a step that reduces a different gradient in each group."""
    import ddphook.torch

    ranks.use_pytorchs_kernels()
    groups = make_groups(rank)
    names = [group.group_name for group in groups.values()]

    def both(x):
        return [test_compile.reduced(x * PAIRS.index(pair), group=name)
                for pair, name in zip(groups, names, strict=True)]

    step = ddphook.torch.compile(both, hook="fp16", fullgraph=True, timeout=60)
    for _ in range(3):
        averages = step(torch.full((5, 3), float(rank)))
        for pair, average in zip(groups, averages, strict=True):
            expected = MEANS[pair] * PAIRS.index(pair)
            assert torch.equal(average, torch.full((5, 3), expected))
    assert set(ddphook.torch.state_dict()) == set(names)
    ddphook.torch.close()


def test_compiled_steps():
    ranks.run(3, compiled)


def hooks(rank):
    """Models with hooks in one backward pass, which uses groups in any order; DDP's
    constructor and ``register`` themselves wait for the group."""
    import ddphook.torch

    groups = make_groups(rank)
    ours = {}
    for pair in PAIRS:
        if rank in pair:
            ours[pair] = models.make("mlp", rank, process_group=groups[pair])
            ddphook.torch.register(ours[pair], "allreduce", timeout=60)
    x = torch.rand(4, 64, generator=torch.Generator().manual_seed(rank))
    sum(ours[pair](x).square().mean() for pair in groups).backward()
    alone = models.MODELS["mlp"]()
    alone.load_state_dict(ours[next(iter(groups))].module.state_dict())
    alone(x).square().mean().backward()
    mine = gradients(alone)
    whole = [torch.empty_like(mine) for _ in range(3)]
    dist.all_gather(whole, mine)
    for pair in groups:
        mean = sum(whole[member] for member in pair) / 2
        torch.testing.assert_close(gradients(ours[pair]), mean)


def gradients(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def test_registered_hooks():
    ranks.run(3, hooks)


def without_a_peer(rank):
    """Rank 2 reduces nothing: the others fail when they wait for its group, and still have
    the averages of their own group."""
    import ddphook.torch
    from ddphook._errors import DeadlineExceededError

    groups = {pair: group.group_name for pair, group in make_groups(rank).items()}
    if rank == 2:
        dist.barrier()
        return
    other = (1, 2) if rank == 1 else (2, 0)
    ranks_of = "1, 2" if rank == 1 else "0, 2"
    late = start(1.0, group=groups[other], timeout_s=2.0)
    for _ in range(2):
        check(start(float(rank), group=groups[0, 1]), 0.5)
    for _ in range(2):
        with pytest.raises(DeadlineExceededError, match=rf"ranks of \[{ranks_of}\] .* within 2 s"):
            check(late, 1.0)
        late = start(1.0, group=groups[other], timeout_s=2.0)
    check(start(float(rank), group=groups[0, 1]), 0.5)
    dist.barrier()
    ddphook.torch.close()
    assert not ddphook.torch.state_dict()


def test_a_peer_that_never_comes():
    ranks.run(3, without_a_peer)


class Store(dist.Store):
    """A store written in Python, which has no separate connections."""

    def __init__(self):
        super().__init__()
        self.inner = dist.HashStore()

    def set(self, key, value):
        self.inner.set(key, value)

    def get(self, key):
        return self.inner.get(key)

    def add(self, key, value):
        return self.inner.add(key, value)

    def wait(self, keys, timeout=None):
        self.inner.wait(keys)


def in_python(rank):
    import ddphook.torch

    store = Store()
    with mock.patch.object(c10d, "_get_default_store", lambda: store):
        check(start(2.0), 2.0)
    ddphook.torch.close()
    return store.inner.num_keys()


def test_a_store_in_python():
    assert ranks.run(1, in_python)[0] > 0
