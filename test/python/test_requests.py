# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Requests to torch.compile's backend have an effect, or an error or a warning says why not.

The steps only multiply matrices. Inductor calls a library for that and compiles nothing.
"""

import contextlib
import logging

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddphook
import ranks

OPTIONS = {"hook": "fp16"}


@contextlib.contextmanager
def log():
    """Collects the texts of warnings."""
    texts = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: texts.append(record.getMessage())
    logger = logging.getLogger("ddphook")
    logger.addHandler(handler)
    try:
        yield texts
    finally:
        logger.removeHandler(handler)


def ways(step):
    """Yields both ways to compile a step, and resets TorchDynamo after each. Before PyTorch
    2.15, its own way does not tell the backend what it compiles."""
    import ddphook.torch
    from ddphook.torch import _private
    from ddphook.torch._backend import backend

    yield lambda: ddphook.torch.compile(step, **OPTIONS)
    torch._dynamo.reset()
    if not _private.announces_backends():
        return
    yield lambda: torch.compile(step, backend=backend, options=dict(OPTIONS))
    torch._dynamo.reset()


class Product(nn.Module):
    """A module that is not part of PyTorch, since TorchDynamo skips PyTorch's own modules."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 3))

    def forward(self, x):
        return x @ self.weight


def _nothing_is_reduced(rank):
    x, model = torch.ones(3, 3), Product()

    def broken(x):
        y = x @ x
        torch._dynamo.graph_break()
        return y @ x

    def alone(x):
        ops = torch.ops._c10d_functional
        return x @ x, ops.wait_tensor(ops.all_reduce(x[0, 0], "avg", "0"))

    for step, cause in (
        (lambda x: x @ x, "none of its graphs has a reduction"),
        (broken, "none of its graphs has a reduction"),
        (lambda x: x, "none of its graphs has a reduction"),
        (alone, "it is a scalar, such as a loss"),
    ):
        for make in ways(step):
            compiled = make()
            with log() as warnings:
                compiled(x)
                (text,) = warnings
                compiled(x)
            assert warnings == [text], "it warns once"
            assert "hook=fp16" in text and cause in text and "register" in text
    # A backward pass after the call may reduce, too.
    for make in ways(model):
        compiled = make()
        with log() as warnings:
            with torch.no_grad():
                compiled(x)
            y = compiled(x)
            assert not warnings
            y.backward(x)
            (text,) = warnings
            compiled(x).backward(x)
        assert warnings == [text] and "none of its graphs" in text
    # A step that reduces in some calls logs nothing.

    def reduce(x, reduces):
        ops = torch.ops._c10d_functional
        return ops.wait_tensor(ops.all_reduce(x @ x, "avg", "0")) if reduces else x

    for make in ways(reduce):
        compiled = make()
        with log() as warnings:
            compiled(x, True)
            compiled(x, False)
        assert not warnings
    ddphook.torch.close()


def test_a_step_that_reduces_nothing():
    ranks.run(1, _nothing_is_reduced)


def _ddp(rank):
    ranks.use_pytorchs_kernels()
    x, config = torch.ones(3, 3), torch._dynamo.config
    for reducer in ("ddp_optimizer", "no_optimization", "python_reducer"):
        for in_graphs in (False, True):
            config.optimize_ddp, config.compiled_autograd = reducer, in_graphs
            ddp = DistributedDataParallel(Product())
            for step in (ddp, torch.compile(ddp)):
                for make in ways(step):
                    with pytest.raises(ddphook.UnsupportedError, match="torch.register"):
                        make()
            for make in ways(lambda x, ddp=ddp: ddp(x)):
                compiled = make()
                with pytest.raises(ddphook.UnsupportedError, match="torch.register"):
                    compiled(x).backward(x)
    # TorchDynamo makes no graph of PyTorch's own modules, so there is only the warning.
    config.optimize_ddp, config.compiled_autograd = "ddp_optimizer", False
    ddp = DistributedDataParallel(nn.Linear(3, 3))
    for make in ways(lambda x: ddp(x)):
        compiled = make()
        with log() as warnings:
            for _ in range(2):
                compiled(x).backward(x)
        assert len(warnings) == 1 and "register for a model of DDP" in warnings[0]
    config.optimize_ddp, config.compiled_autograd = "python_reducer", True
    ddp = DistributedDataParallel(Product())
    for make in ways(lambda x: ddp(x).backward(x)):
        compiled = make()
        with log() as warnings:
            for _ in range(2):
                compiled(x)
        assert not warnings
    ddphook.torch.close()


def test_a_ddp_model_whose_backward_is_outside():
    ranks.run(1, _ddp)


def _too_few_bytes(rank):
    import ddphook.torch

    x, ops = torch.ones(3, 3), torch.ops._c10d_functional
    for hook, dtype, warns in (
        ("powersgd", torch.float32, True),
        ("bf16", torch.bfloat16, True),
        ("fp16", torch.float32, False),
        ("allreduce", torch.float32, False),
    ):
        ddp = DistributedDataParallel(Product().to(dtype))
        with log() as warnings, ddphook.torch.register(ddp, hook):
            for _ in range(4):
                ddp(x.to(dtype)).sum().backward()
        assert len(warnings) == warns, warnings
        assert all("more than half" in text and f"hook={hook}" in text for text in warnings)

        def step(x):
            return ops.wait_tensor(ops.all_reduce(x @ x, "avg", "0"))

        compiled = ddphook.torch.compile(step, hook=hook)
        with log() as warnings:
            for _ in range(3):
                compiled(x.to(dtype))
        assert len(warnings) == warns, warnings
        assert all("more than half" in text for text in warnings)
        torch._dynamo.reset()
    ddphook.torch.close()


def test_a_hook_that_saves_too_few_bytes():
    ranks.run(1, _too_few_bytes)


def _overflow(rank):
    import ddphook.torch


    def step(x):
        ops = torch.ops._c10d_functional
        return ops.wait_tensor(ops.all_reduce(x @ x, "avg", "0"))

    compiled = ddphook.torch.compile(step, hook="powersgd", start_powerSGD_iter=2)
    with log() as warnings:
        for value in (1, 2, 3):
            assert compiled(torch.full((64, 64), float(value))).isfinite().all()
        assert not warnings
        compiled(torch.full((64, 64), float("inf")))
        (text,) = warnings
        assert not compiled(torch.ones(64, 64)).isfinite().any()
    assert warnings == [text] and "skip_nonfinite=True" in text
    ddphook.torch.close()


def test_an_overflow_in_a_compiled_step():
    ranks.run(1, _overflow)
