# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Impossible requests raise an exception that gives the reason, and nothing hangs."""

import os
import re

import pytest
import torch
from torch import nn

import ddphook
import models
import ranks


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4, sparse=True)

    def forward(self, x):
        return self.table(x.abs().long().clamp(0, 9))


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.phase = nn.Parameter(torch.zeros(3, dtype=torch.complex64))


def raised(error, text, function, *arguments, **keywords):
    """Checks that the call raises this error with this text."""
    with pytest.raises(error, match=re.escape(text)):
        function(*arguments, **keywords)


def _refused_models(rank):
    from torch.nn.parallel import DistributedDataParallel
    from torch.nn.parallel.distributed import _MixedPrecision

    from ddphook.torch import register

    raised(ddphook.InvalidArgumentError, "got list", register, [nn.Linear(2, 2)], "fp16")
    raised(
        ddphook.UnsupportedError,
        "the gradients of 'table' are sparse",
        register,
        DistributedDataParallel(Sparse()),
        "fp16",
    )
    raised(
        ddphook.UnsupportedError,
        "parameter 'phase': expected gradients of float16",
        register,
        DistributedDataParallel(Complex()),
        "fp16",
    )
    # Parameters that DDP ignores are not checked.
    partly = nn.Sequential(nn.Linear(4, 4), Sparse(), Complex())
    ignored = ["1.table.weight", "2.phase"]
    ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    ignore(partly, ignored)
    register(DistributedDataParallel(partly), "fp16").close()
    ddp = models.make("mlp", rank)
    ddp.register_comm_hook(None, lambda state, bucket: None)
    raised(ddphook.FailedPreconditionError, "hook already", register, ddp, "fp16")
    # A PyTorch built for GPUs can make such a model only on a machine with a GPU.
    narrow = models.make("mlp", rank)
    narrow.mixed_precision = _MixedPrecision(param_dtype=torch.float16)
    raised(ddphook.UnsupportedError, "mixed_precision", register, narrow, "fp16")
    ddp = models.make("mlp", rank)
    for timeout in (0, -1, float("inf"), "soon"):
        raised(
            ddphook.InvalidArgumentError, "timeout", register, ddp, "fp16", timeout=timeout
        )
    # The model is still usable after these errors.
    with register(ddp, "fp16") as handle:
        raised(
            ddphook.FailedPreconditionError, "hook already", register, ddp, "fp16"
        )
        models.train(ddp, rank, 1)
    raised(ddphook.FailedPreconditionError, "was closed", handle.statistics)
    raised(ddphook.FailedPreconditionError, "was closed", models.train, ddp, rank, 1)
    handle.close()


def test_models_that_are_refused():
    ranks.run(1, _refused_models)


def _different_hooks(rank):
    import ddphook.torch

    ddp = models.make("mlp", rank)
    raised(
        ddphook.PlanMismatchError,
        "rank 0 has the hook 'hook=fp16', but rank 1 has 'hook=bf16'",
        ddphook.torch.register,
        ddp,
        ("fp16", "bf16")[rank],
    )
    # All ranks raise the error, and can try again.
    with ddphook.torch.register(ddp, "fp16"):
        models.train(ddp, rank, 1)


def test_ranks_with_different_hooks():
    ranks.run(2, _different_hooks)


def _missing_rank(rank):
    import ddphook.torch

    ddp = models.make("mlp", rank)
    if rank == 0:
        raised(
            ddphook.DeadlineExceededError,
            "waited 1 s",
            ddphook.torch.register,
            ddp,
            "fp16",
            timeout=1,
        )
    torch.distributed.barrier()


def test_a_rank_that_registers_nothing():
    ranks.run(2, _missing_rank)


def _lost(rank):
    import ddphook.torch

    ddp = models.make("mlp", rank, bucket_cap_mb=0.02)
    with ddphook.torch.register(ddp, "powersgd", timeout=60) as handle:
        models.train(ddp, rank, 3)
        if rank == 1:
            ddp.module[0].register_full_backward_hook(lambda *_: os._exit(9))
        try:
            models.train(ddp, rank, 1)
        except RuntimeError as error:
            first = str(error)
        raised(ddphook.PeerLostError, "rank 1", handle.statistics)
        raised(ddphook.PeerLostError, "rank 1", models.train, ddp, rank, 1)
    return first


def test_a_rank_that_dies_in_backward():
    results = ranks.collect(3, _lost)
    assert results[1] == ("died", 9)
    for kind, text in (results[0], results[2]):
        assert kind == "ok" and "PeerLostError: rank 1" in text, text


def _late(rank):
    import ddphook.torch

    ddp = models.make("mlp", rank)
    # Allows for a busy machine; only the last step takes this long.
    with ddphook.torch.register(ddp, "fp16", timeout=10) as handle:
        models.train(ddp, rank, 2)
        if rank == 0:
            raised(RuntimeError, "DeadlineExceeded", models.train, ddp, rank, 1)
            raised(ddphook.DeadlineExceededError, "rank 1", handle.statistics)
        torch.distributed.barrier()
        if rank == 1:
            raised(RuntimeError, "rank", models.train, ddp, rank, 1)


def test_a_rank_that_comes_too_late():
    ranks.run(2, _late)


def _raises(rank):
    """Rank 0 raises an unrelated exception; the other rank must not wait."""
    import ddphook.torch

    ddp = models.make("mlp", rank)
    with ddphook.torch.register(ddp, "fp16", timeout=60):
        models.train(ddp, rank, 2)
        if rank == 0:
            raise ValueError("a reason of its own")
        raised(RuntimeError, "rank 0", models.train, ddp, rank, 1)


def test_a_rank_that_raises_an_exception():
    first, second = ranks.collect(2, _raises)
    assert first[0] == "raised" and "a reason of its own" in first[1]
    assert second[0] == "ok", second


def _cannot_compile(rank):
    """One rank fails to compile; the others must not wait for their deadlines."""
    import ddphook.torch
    from ddphook import _cache

    def full(*_):
        raise ddphook.UnsupportedError("no linker")

    if rank == 1:
        _cache.compiled = full
    ddp = models.make("mlp", rank)
    with ddphook.torch.register(ddp, "fp16", timeout=100):
        text = "no linker" if rank == 1 else "rank 1"
        raised(RuntimeError, text, models.train, ddp, rank, 1)
        torch.distributed.barrier()  # All ranks are still alive.


def test_a_rank_that_cannot_compile():
    ranks.run(2, _cannot_compile)


def _forked(rank):
    import ddphook.torch

    ddp = models.make("mlp", rank)
    with ddphook.torch.register(ddp, "fp16") as handle:
        models.train(ddp, rank, 1)
        here, there = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                handle.statistics()
            except ddphook.FailedPreconditionError as error:
                os.write(there, str(error).encode())
            handle.close()  # Does not affect the parent.
            os._exit(0)
        os.close(there)
        text = os.read(here, 1000).decode()
        os.waitpid(child, 0)
        assert "before this process was forked" in text
        models.train(ddp, rank, 1)


def test_a_forked_process():
    ranks.run(2, _forked)


def _different_models(rank):
    import ddphook.torch

    # DDP compares only shapes, not names.
    torch.manual_seed(0)
    names = ("first", "second") if rank == 0 else ("second", "first")
    module = nn.ModuleDict({name: nn.Linear(3, 3) for name in names})
    module.forward = lambda x: module[names[1]](module[names[0]](x))
    ddp = nn.parallel.DistributedDataParallel(module)
    with ddphook.torch.register(ddp, "powersgd", timeout=60):
        with pytest.raises(RuntimeError, match="PlanMismatchError"):
            ddp(torch.ones(2, 3)).sum().backward()


def test_ranks_with_different_models():
    ranks.run(2, _different_models)
