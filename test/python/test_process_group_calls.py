# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of the backend "ddphook" that Gloo serves, and how long calls may wait."""

import faulthandler
import os
import re
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import ddphook
import ranks
from test_process_group import SUM, group, same

HANG_S = 120  # Far more than any test needs.


def test_no_method_that_communicates_is_inherited():
    """An inherited one could wait for Gloo with Python's lock held."""
    from ddphook.torch._process_group import Group

    methods = {
        name
        for name in dir(dist.ProcessGroup)
        if re.search(r"-> \S*\bWork\b", getattr(dist.ProcessGroup, name).__doc__ or "")
    }
    assert len(methods) > 20
    assert methods - vars(Group).keys() == {"_end_coalescing", "reconfigure"}


def _unkept(rank, only=()):
    """Nobody keeps these work objects. Threads of Gloo release their tensors, for which they
    need Python's lock, while this thread calls Gloo."""
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    g = group("int8")

    def x(size=2):
        return torch.ones(size, dtype=torch.int32)

    def xs():
        return [x(), x()]

    def at_root(tensors):
        return tensors if rank == 0 else None

    calls = {
        "broadcast": lambda: dist.broadcast(x(), 0, g, async_op=True),
        "allreduce": lambda: dist.all_reduce(x(), group=g, async_op=True),
        "allreduce_coalesced": lambda: g.allreduce_coalesced(xs()),
        "reduce": lambda: dist.reduce(x(), 0, group=g, async_op=True),
        "allgather": lambda: dist.all_gather(xs(), x(), g, async_op=True),
        "all_gather_single": lambda: dist.all_gather_into_tensor(x(4), x(), g, async_op=True),
        "_allgather_base": lambda: g._allgather_base(x(4), x()),
        "allgather_coalesced": lambda: g.allgather_coalesced([[x()], [x()]], [x()]),
        "all_gather_single_coalesced": lambda: g.all_gather_single_coalesced([x(4)], [x()]),
        "gather": lambda: dist.gather(x(), at_root(xs()), 0, g, async_op=True),
        "scatter": lambda: dist.scatter(x(), at_root(xs()), 0, g, async_op=True),
        "reduce_scatter": lambda: dist.reduce_scatter(x(), xs(), group=g, async_op=True),
        "reduce_scatter_single": lambda: g.reduce_scatter_single(x(), x(4)),
        "reduce_scatter_single_coalesced": lambda: g.reduce_scatter_single_coalesced(
            [x()], [x(4)]
        ),
        "alltoall": lambda: dist.all_to_all(xs(), xs(), g, async_op=True),
        "all_to_all_single": lambda: dist.all_to_all_single(x(), x(), group=g, async_op=True),
        "barrier": lambda: dist.barrier(g, async_op=True),
    }
    for _ in range(100):
        for name in only or calls:
            calls[name]()
    dist.barrier(g)
    faulthandler.cancel_dump_traceback_later()


def test_calls_do_not_block_each_other():
    ranks.run(2, _unkept)


def _checks(rank):
    """PyTorch's checks and hooks of calls see what passes through."""
    os.environ["TORCH_DIST_NAN_CHECK"] = "1"
    g = group("fp16")
    seen = []
    g.register_pre_hook(1, seen.append)
    dist.broadcast(torch.ones(2), 0, group=g)
    assert len(seen) == 1
    with pytest.raises(RuntimeError, match="NaN"):
        dist.all_gather_into_tensor(torch.empty(4), torch.full((2,), float("nan")), g)


def test_pytorchs_checks_of_calls():
    ranks.run(2, _checks)


def _timeouts(rank):
    """A reduction has its call's timeout, or else the one that the group got last."""
    g = group("fp16", timeout=300)
    x, opts = torch.ones(3), dist.AllreduceOptions()
    dist.all_reduce(x, group=g)
    opts.timeout = timedelta(seconds=0.25)
    for limit, call in (
        ("0.25", lambda: g.allreduce([x], opts)),
        ("0.5", lambda: g.allreduce(x, SUM, timedelta(seconds=0.5))),
        ("0.75", lambda: g.allreduce([x], op=SUM, timeout=timedelta(seconds=0.75))),
        ("1", lambda: g.reduce_scatter(x[:1], [x[:1], x[1:2]], SUM, timedelta(seconds=1))),
    ):
        if rank == 0:
            with pytest.raises(ddphook.DeadlineExceededError, match=f" {limit} s"):
                call().wait()
    dist.all_reduce(x, group=g)
    same(x, torch.full([3], 4.0))
    h = group("fp16", timeout=300)
    opts.timeout = timedelta(seconds=200)
    for _ in range(2):
        h.allreduce([x], opts)
    dist.barrier(h)
    same(x, torch.full([3], 16.0))
    dist.set_timeout(timedelta(seconds=0.25), h)
    if rank == 0:
        with pytest.raises(ddphook.DeadlineExceededError, match=" 0.25 s"):
            dist.all_reduce(x, group=h)


def test_timeouts():
    ranks.run(2, _timeouts)
