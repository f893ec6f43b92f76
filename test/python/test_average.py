# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares periodic averages of parameters with PyTorch's."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.model_averaging import averagers
from torch.distributed.optim import PostLocalSGDOptimizer

import models
import ranks


def _train(rank, name, averager, steps):
    """Trains without DDP: between averages, each rank has different gradients."""
    torch.manual_seed(7)
    model = models.MODELS[name]()
    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05), averager
    )
    history = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step * 101 + rank)
        x = torch.rand(6, 64, generator=generator) * 2 - 1
        optimizer.zero_grad()
        (model(x).float() - 0.3).square().mean().backward()
        optimizer.step()
        history.append(models.parameters(model))
    return history


def _beside(rank, names):
    import ddphook.torch

    for name in names:
        expected = _train(rank, name, averagers.PeriodicModelAverager(3, 2), 9)
        averager = ddphook.torch.PeriodicModelAverager(3, 2, timeout=60)
        got = _train(rank, name, averager, 9)
        models.check_equal(got, expected, name)
        assert averager.step == 9
    ddphook.torch.close()
    return [parameters.tolist() for parameters in got]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_averages_have_pytorchs_bits(world):
    names = ["mixed-types", "tied", "frozen", "unused", "mlp"]
    histories = ranks.run(world, _beside, names)
    for other in histories[1:]:
        # Parameters are averaged after steps 2, 5 and 8 only.
        equal = [a == b for a, b in zip(histories[0], other)]
        assert equal == [False, False, True] * 3


def _keeps_strides(rank):
    import ddphook.torch

    averager = ddphook.torch.PeriodicModelAverager(1, timeout=60)
    model = models.MODELS["strided"]()
    before = [(p.stride(), p.data_ptr()) for p in model.parameters()]
    expected = [p.detach().clone() for p in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
        with torch.no_grad():
            parameter.add_(1 if rank else -1)
    averager.average_parameters(model.parameters())
    assert [(p.stride(), p.data_ptr()) for p in model.parameters()] == before
    for got, value in zip(model.parameters(), expected):
        torch.testing.assert_close(got.detach(), value)
    ddphook.torch.close()


def test_parameters_keep_their_memory():
    ranks.run(2, _keeps_strides)


def _subgroups(rank):
    import ddphook.torch

    pair = dist.new_group([1, 2])
    value = torch.nn.Parameter(torch.tensor([float(rank)]))
    value.grad = torch.zeros(1)
    address = value.data_ptr()
    averager = ddphook.torch.PeriodicModelAverager(2, process_group=pair, timeout=60)
    averager.average_parameters([{"params": [value]}])
    assert value.item() == (0.0 if rank == 0 else 1.5)
    assert value.data_ptr() == address
    ddphook.torch.close()
    dist.barrier()  # Rank 0 hosts the store.


def test_averages_of_a_part_of_the_ranks():
    ranks.run(3, _subgroups)


def _refused(rank):
    import ddphook.torch

    with pytest.raises(ValueError, match="period"):
        ddphook.torch.PeriodicModelAverager(0)
    with pytest.raises(ddphook.InvalidArgumentError, match="timeout"):
        ddphook.torch.PeriodicModelAverager(2, timeout=-1)
    value = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))
    value.grad = torch.ones_like(value)
    averager = ddphook.torch.PeriodicModelAverager(2)
    with pytest.raises(ddphook.UnsupportedError, match="complex"):
        averager.average_parameters([value])
    # The ranks average parameters of different sizes.
    value = torch.nn.Parameter(torch.ones(3 + rank))
    value.grad = torch.ones_like(value)
    averager = ddphook.torch.PeriodicModelAverager(2, timeout=60)
    with pytest.raises(ddphook.PlanMismatchError):
        averager.average_parameters([value])
    ddphook.torch.close()


def test_what_cannot_be_averaged():
    import ddphook.torch

    with pytest.raises(ddphook.FailedPreconditionError, match="init_process_group"):
        ddphook.torch.PeriodicModelAverager(2)
    ranks.run(2, _refused)
