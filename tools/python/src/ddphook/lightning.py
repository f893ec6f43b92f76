# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled hooks in Lightning, whose checkpoints have the states of every rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

import ddphook.torch
from ddphook._errors import InvalidArgumentError
from ddphook.torch._hooks import AnyHook, AnyWrapper

if TYPE_CHECKING:
    Callback: Any = object
    Strategy: Any = object
else:
    try:
        from lightning.pytorch import Callback
        from lightning.pytorch.strategies import DDPStrategy as Strategy
    except ImportError:
        from pytorch_lightning import Callback
        from pytorch_lightning.strategies import DDPStrategy as Strategy

__all__ = ["DDPStrategy", "HookCallback", "HookMixin"]

_KEY = "ddphook"


class HookMixin:
    """Registers the hook of a ``DDPStrategy`` as a compiled one, on CPUs as well.

    List it before the strategy among the bases of a class. ``ddp_comm_hook``,
    ``ddp_comm_state`` and ``ddp_comm_wrapper`` mean what they mean for
    ``ddphook.torch.register``.

    Parameters
    ----------
    *arguments, **keywords
        The strategy's arguments.
    hook_options
        The hook's options, by name.

    Attributes
    ----------
    handle
        The registered hook, while a model is being fitted.
    """

    handle: ddphook.torch.Handle | None = None

    def __init__(
        self, *arguments: Any, hook_options: Mapping[str, Any] | None = None, **keywords: Any
    ) -> None:
        super().__init__(*arguments, **keywords)
        self._hook_options = dict(hook_options or {})

    def _register_ddp_hooks(self) -> None:
        self.handle = ddphook.torch.register(
            self.model,  # type: ignore[attr-defined]
            ddp_comm_hook=self._ddp_comm_hook,  # type: ignore[attr-defined]
            ddp_comm_state=self._ddp_comm_state,  # type: ignore[attr-defined]
            ddp_comm_wrapper=self._ddp_comm_wrapper,  # type: ignore[attr-defined]
            **self._hook_options,
        )

    def teardown(self) -> None:
        """Closes the hook and tears down the strategy."""
        if self.handle is not None:
            self.handle.close()
            self.handle = None
        super().teardown()  # type: ignore[misc]


class DDPStrategy(HookMixin, Strategy):
    """Lightning's ``DDPStrategy`` with a compiled hook."""


class HookCallback(Callback):
    """Registers a hook for a fit and saves the states of all ranks in checkpoints.

    If the strategy registers a hook itself, as `DDPStrategy` does, the callback only saves
    the states. A checkpoint grows by the errors and factors of every rank.

    Parameters
    ----------
    hook, wrapper, **options
        As for ``ddphook.torch.register``. Omit them if the strategy has a hook.

    Attributes
    ----------
    handle
        The registered hook, while a model is being fitted.
    """

    def __init__(
        self,
        hook: AnyHook | None = None,
        wrapper: AnyWrapper | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.handle: ddphook.torch.Handle | None = None
        self._arguments = (hook, wrapper)
        self._options = options
        self._owns_handle = False
        self._loaded: list[dict[str, Any]] | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Registers the hook, unless the strategy has one, and loads its states."""
        handle = getattr(trainer.strategy, "handle", None)
        self._owns_handle = handle is None
        if handle is None:
            handle = ddphook.torch.register(
                trainer.strategy.model, *self._arguments, **self._options
            )
        elif self._options or any(given is not None for given in self._arguments):
            raise InvalidArgumentError(
                "expected no hook for the callback, since the strategy has one"
            )
        self.handle = handle
        if self._loaded is not None:
            if not self._loaded:
                raise InvalidArgumentError(
                    "expected states of the hook in the checkpoint, but it was saved "
                    "without this callback"
                )
            # If the job that saved had fewer ranks, this rank has no states.
            rank = min(trainer.global_rank, len(self._loaded) - 1)
            handle.load_state_dict(self._loaded[rank])
            self._loaded = None

    def on_save_checkpoint(
        self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        """Gathers the states of all ranks on rank 0, which writes the checkpoint."""
        if self.handle is None:
            return
        states: list[Any] = [self.handle.state_dict()]
        if trainer.world_size > 1:
            mine, states = states[0], [None] * trainer.world_size
            dist.gather_object(mine, None if trainer.global_rank else states)
        checkpoint[_KEY] = states

    def on_load_checkpoint(
        self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        """Keeps the states until the hook is registered."""
        self._loaded = checkpoint.get(_KEY, [])

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Closes the hook if the callback registered it."""
        handle, self.handle = self.handle, None
        if handle is not None and self._owns_handle:
            handle.close()
