# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled hooks in Accelerate, whose checkpoints have the states of every rank."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

import ddphook.torch
from ddphook._errors import InvalidArgumentError
from ddphook.torch import _private
from ddphook.torch._hooks import AnyHook, AnyWrapper

__all__ = ["register"]


def register(
    accelerator: Any,
    model: Any,
    hook: AnyHook | None = None,
    wrapper: AnyWrapper | None = None,
    **options: Any,
) -> ddphook.torch.Handle:
    """Registers a hook with a prepared model, and its states with the checkpoints.

    Collective. ``accelerator.save_state()`` then writes a file with the states of each
    rank, and ``load_state()`` restores each rank's own. ``register_for_checkpointing()``
    would save the states of one rank for all ranks.

    Parameters
    ----------
    accelerator
        The ``accelerate.Accelerator``, made without ``comm_hook``.
    model
        The model that its ``prepare()`` returned.
    hook, wrapper, **options
        As for ``ddphook.torch.register``.

    Returns
    -------
    ddphook.torch.Handle
        The registered hook. It must be open for ``save_state()`` and ``load_state()``.

    Raises
    ------
    Error
        As ``ddphook.torch.register``. ``load_state()`` raises
        `InvalidArgumentError` if the checkpoint has no states of the hook, and both it
        and ``save_state()`` raise `FailedPreconditionError` after the hook was closed.
    """
    number = _number_of(model, accelerator._models)
    handle = ddphook.torch.register(model, hook, wrapper, **options)

    def file_of(directory: str | os.PathLike[str], rank: int) -> Path:
        return Path(directory) / f"ddphook_{number}.{rank}.pt"

    def save(models: Any, weights: Any, directory: str) -> None:
        torch.save(handle.state_dict(), file_of(directory, accelerator.process_index))

    def load(models: Any, directory: str) -> None:
        # If the job that saved had fewer ranks, this rank has no file.
        for rank in (accelerator.process_index, 0):
            if (file := file_of(directory, rank)).exists():
                handle.load_state_dict(torch.load(file))
                return
        raise InvalidArgumentError(
            f"expected states of the hook in {directory}, but it was saved without them"
        )

    accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(load)
    return handle


def _number_of(model: Any, prepared: list[Any]) -> int:
    """Returns the index of a model among the prepared ones, which may lack its wrappers."""
    while model is not None:
        for number, known in enumerate(prepared):
            if known is model:
                return number
        model = getattr(model, _private.ORIG_MOD, None) or getattr(model, "module", None)
    raise InvalidArgumentError("expected a model that accelerator.prepare() returned")
