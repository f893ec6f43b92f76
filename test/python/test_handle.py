# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What handles show about themselves, and handles in jobs of one rank."""

import logging
import os
import re

import pytest
import torch
from torch import nn

import ddphook
import ddphook.torch
import models
import ranks


def _shown(rank):
    ddp = models.make("mlp", rank)
    hook = ddphook.PowerSGD(rank=2, start_powerSGD_iter=2)
    handle = ddphook.torch.register(ddp, hook)
    count = len(list(ddp.parameters()))
    start = f"<ddphook.torch.Handle: {handle.hook}, group "
    assert repr(handle).startswith(start), repr(handle)
    assert f"rank {rank} of 2, {count} parameters, no step so far>" in repr(handle)
    first = handle.statistics()
    assert first["compression_ratio"] == 1 and first["steps"] == 0
    models.train(ddp, rank, 6)
    buckets, sent, size = map(
        int, re.search(r"(\d+) buckets?, (\d+) of (\d+) bytes sent per step>", repr(handle)).groups()
    )
    assert buckets >= 1 and 0 < sent < size
    assert size == sum(p.numel() * p.element_size() for p in ddp.parameters())
    counters = handle.statistics()
    assert list(counters) == list(ddphook.torch.Statistics.__annotations__)
    ratio = counters["uncompressed_bytes"] / counters["wire_bytes"]
    assert counters["compression_ratio"] == ratio > 1
    handle.close()
    assert repr(handle).endswith(", closed>")


def test_a_handle_shows_what_it_does():
    ranks.run(2, _shown)


def _alone(initialized):
    """Trains a model without DDP; the handle must change nothing."""
    assert torch.distributed.is_initialized() == initialized
    model = nn.Linear(3, 2)
    model.weight.grad = torch.ones(2, 3)
    with ddphook.torch.register(model, ddphook.Int4(), exempt="bias") as handle:
        assert isinstance(handle, ddphook.torch.Handle)
        assert "one rank, 2 parameters" in repr(handle)
        counters = handle.statistics()
        assert list(counters) == list(ddphook.torch.Statistics.__annotations__)
        assert counters["steps"] == 0 and counters["compression_ratio"] == 1
        state = handle.state_dict()
        handle.load_state_dict(state)
        # A state from more ranks is kept for the next checkpoint.
        handle.load_state_dict({**state, "rank": 1, "world_size": 4})
        assert handle.state_dict()["world_size"] == 4
        with pytest.raises(ddphook.InvalidArgumentError, match="hook 'hook=int4"):
            handle.load_state_dict({**state, "hook": "hook=fp16"})
    assert torch.equal(model.weight.grad, torch.ones(2, 3))
    with pytest.raises(ddphook.FailedPreconditionError, match="was closed"):
        handle.statistics()
    handle.close()
    with pytest.raises(ddphook.InvalidArgumentError, match="matches none"):
        ddphook.torch.register(model, "fp16", exempt="conv")
    with pytest.raises(ddphook.InvalidArgumentError, match="fp61"):
        ddphook.torch.register(model, "fp61")


def test_a_job_of_one_rank_without_groups(caplog, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with caplog.at_level(logging.WARNING, "ddphook"):
        _alone(False)
    [record] = caplog.records
    assert "'hook=int4 exempt='bias'" in record.getMessage()
    assert "has no effect in a job of one rank" in record.getMessage()
    # A launcher has started more ranks, which have not met yet.
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ddphook.InvalidArgumentError, match="got Linear"):
        ddphook.torch.register(nn.Linear(2, 2), "fp16")


def _in_a_group(rank):
    _alone(True)
    # With DDP, the hook rounds as PyTorch's does.
    ddp = models.make("mlp", rank)
    with ddphook.torch.register(ddp, "fp16") as handle:
        models.train(ddp, rank, 1)
        assert handle.statistics()["steps"] >= 1
    for gradient in (p.grad for p in ddp.parameters()):
        assert torch.equal(gradient, gradient.half().float())


def test_a_job_of_one_rank_with_a_group():
    ranks.run(1, _in_a_group)


def _two(rank):
    with pytest.raises(ddphook.InvalidArgumentError, match="got Linear"):
        ddphook.torch.register(nn.Linear(2, 2), "fp16")


def test_a_model_without_ddp_on_two_ranks():
    ranks.run(2, _two)
    assert "RANK" not in os.environ
