# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled communication hooks for ``DistributedDataParallel``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from ddphook._errors import FailedPreconditionError, InvalidArgumentError
from ddphook._errors import UnsupportedError
from ddphook.torch import _bucket
from ddphook.torch._handle import Handle
from ddphook.torch._hooks import resolve
from ddphook.torch._rendezvous import Meeting

__all__ = ["Handle", "register"]

DEFAULT_TIMEOUT = timedelta(seconds=300)


def register(
    ddp_model: DistributedDataParallel,
    hook: Any = "powersgd",
    wrapper: Any = None,
    *,
    timeout: timedelta | float = DEFAULT_TIMEOUT,
    **options: Any,
) -> Handle:
    """Registers a compiled communication hook with a DDP model.

    Collective: all ranks of the model's process group call it, with equal
    arguments, where they would call ``register_comm_hook``.

    Parameters
    ----------
    ddp_model
        The model, without a hook, on CPUs.
    hook
        A name (``"allreduce"``, ``"fp16"``, ``"bf16"``, ``"noop"``,
        ``"powersgd"``, ``"batched_powersgd"``, ``"post_local_sgd"``,
        ``"allreduce_and_upcast"``); or what PyTorch, Accelerate or Lightning
        call a hook: one of PyTorch's functions, also wrapped in
        ``fp16_compress_wrapper``; a member of ``DDPCommHookType``; a
        ``PowerSGDState`` or ``PostLocalSGDState``; Accelerate's
        ``DistributedDataParallelKwargs``.
    wrapper
        ``"fp16"`` or ``"bf16"``, or PyTorch's wrapper function.
    timeout
        How long to wait for another rank, at any time; seconds or a
        ``timedelta``.
    **options
        Of the hook, by PyTorch's names (``matrix_approximation_rank``, …); a
        ``state`` object of PyTorch's; Lightning's ``ddp_comm_hook``,
        ``ddp_comm_state`` and ``ddp_comm_wrapper``.

    Returns
    -------
    Handle
        The registered hook, with its states and counters.

    Raises
    ------
    InvalidArgumentError
        There is no such hook or option, or a value has a wrong type.
    UnsupportedError
        The model or the hook is of a kind that ddphook does not support.
    FailedPreconditionError
        The model has a hook already.
    PlanMismatchError
        Another rank registers another hook.
    DeadlineExceededError
        A rank did not register its hook in time.
    """
    if not isinstance(ddp_model, DistributedDataParallel):
        raise InvalidArgumentError(
            "expected a DistributedDataParallel model, but got "
            f"{type(ddp_model).__name__}"
        )
    resolved = resolve(hook, wrapper, options)
    _check_model(ddp_model)
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    meeting = Meeting(ddp_model.process_group, float(seconds))
    meeting.check_equal("the hook", resolved.pipeline())
    names = {
        parameter: name for name, parameter in ddp_model.module.named_parameters()
    }
    handle = Handle(names, resolved, meeting, "ddp.process_group @dp\n")
    if resolved.state is not None:
        handle.load_state_dict(resolved.state)

    # Without annotations: DDP does not know those that are texts.
    def compiled_hook(state, bucket):  # type: ignore[no-untyped-def]
        return handle.start(bucket)

    ddp_model.register_comm_hook(None, compiled_hook)
    return handle


def _check_model(model: DistributedDataParallel) -> None:
    """Refuses what DDP would do in a way that no hook sees."""
    if model.mixed_precision is not None:
        raise UnsupportedError(
            "a DDP model with mixed_precision has PyTorch's own hook; use "
            "torch.autocast, or parameters of a 16-bit type"
        )
    if model._comm_hooks:
        raise FailedPreconditionError("the model has a communication hook already")
    for name, parameter in model.module.named_parameters():
        if parameter.requires_grad:
            try:
                _bucket.check_tensor(parameter)
            except UnsupportedError as error:
                raise UnsupportedError(f"parameter '{name}': {error}") from None
