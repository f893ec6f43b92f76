# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled steps, and the check that they reduce something.

A step whose graphs start no reduction compresses nothing. The check considers the
reductions that have run rather than those that were compiled, because graphs may also
come from Inductor's caches.
"""

from __future__ import annotations

import gc
import logging
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ddphook._errors import UnsupportedError
from ddphook.torch import _ops, _private
from ddphook.torch._private import callback_handler, compiled_autograd

_log = logging.getLogger("ddphook")

FSDP_OUTSIDE = (
    "FSDP reduces gradients outside of the compiled function, where they cannot be "
    "compressed: use ddphook.torch.register(model, hook=…), with torch.compile(model)"
)
DDP_OUTSIDE = (
    "DistributedDataParallel reduces the gradients of its model outside of the compiled "
    "function, where they cannot be compressed: use ddphook.torch.register(ddp_model, "
    "hook=…), with torch.compile(ddp_model) if needed; or call backward() in the compiled "
    "function, with torch._dynamo.config.optimize_ddp = 'python_reducer' and "
    "torch._dynamo.config.compiled_autograd = True"
)


class Step:
    """A step: all graphs that are compiled with the same options object.

    `number` counts the steps of this process. For messages, `hook` is the hook with its
    options, and `left_alone` has the known reasons why reductions were not replaced.
    """

    hook = ""
    _is_settled = _has_ended = False
    # The state of the running call.
    _is_watched = _has_ddp = _trains = _awaits_backward = False

    def __init__(self, number: int) -> None:
        self.number = number
        self.left_alone: list[str] = []

    def watch(self, compiled: Callable[..., Any], ddp: str) -> Callable[..., Any]:
        """Returns a compiled graph that also checks whether the step reduces.

        It raises `UnsupportedError` if DDP reduces the gradients, and warns if nothing
        does. The warning comes at the end of the first step, or at the start of the second
        one if the end of the first cannot be seen. `ddp` is the result of `ddp_in`.
        """

        def run(*arguments: Any) -> Any:
            if self._is_settled or not torch.is_grad_enabled():
                return compiled(*arguments)
            if ddp == "reducer":
                raise UnsupportedError(DDP_OUTSIDE)
            if not self._is_watched and self._has_ended:
                self._check()
            self.watch_call()
            self._has_ddp |= bool(ddp)
            results = compiled(*arguments)
            nodes = (r.grad_fn for r in results if isinstance(r, torch.Tensor))
            if (node := next(filter(None, nodes), None)) is not None:
                self._await_backward(node)
            return results

        return run

    def watch_call(self) -> None:
        """Schedules a check for the end of the running call of a compiled function."""
        calls = [] if self._is_watched else list(_private.compiled_calls(sys._getframe()))
        # The outermost one is the last.
        if calls and isinstance(cleanups := calls[-1].get("cleanups"), list):
            self._is_watched = True
            cleanups.append(self._end_call)

    def _await_backward(self, node: torch.autograd.graph.Node) -> None:
        """Schedules a check for the end of the backward pass of the call's first graph.

        That graph's backward pass comes last. There is no check with compiled autograd,
        which would compile it.
        """
        if self._trains:
            return
        self._trains = True
        if compiled_autograd.compiled_autograd_enabled:
            return
        self._awaits_backward = True
        step = weakref.ref(self)

        def end_backward(*_: Any) -> None:
            registration.remove()
            if (found := step()) is not None:
                found._awaits_backward = False
                if not found._is_watched:
                    found._check()

        registration = node.register_hook(end_backward)

    def _end_call(self) -> None:
        ddp, trains, waits = self._has_ddp, self._trains, self._awaits_backward
        self._is_watched = self._has_ddp = self._trains = False
        if sys.exc_info()[1] is not None or not torch.is_grad_enabled():
            return
        self._has_ended = not ddp
        if ddp and trains and not self._reduces() and not _accumulates():
            raise UnsupportedError(DDP_OUTSIDE)
        # With compiled autograd, a backward pass may still follow.
        if not ddp and not waits and not (
            trains and compiled_autograd.compiled_autograd_enabled
        ):
            self._check()

    def _reduces(self) -> bool:
        prefix = prefix_of(self.number)
        return any(owner.startswith(prefix) for owner in _ops.owners)

    def _check(self) -> None:
        """Warns once if the step has reduced nothing so far."""
        if self._is_settled:
            return
        self._is_settled = True
        if self._reduces():
            return
        cause = "none of its graphs has a reduction"
        if self.left_alone:
            cause = f"its reductions are left unchanged ({'; '.join(self.left_alone)})"
        _log.warning(
            "the compiled step compresses nothing with '%s': %s; reduce gradients in the "
            "compiled function, with torch.distributed.all_reduce or a functional "
            "collective, or use ddphook.torch.register for a model of DDP or FSDP",
            self.hook,
            cause,
        )


def begin(find: Callable[[Any], Step | None], model: Any = None) -> None:
    """Called by ``torch.compile`` when it gets the backend.

    Refuses a model of DDP or FSDP: `model`, or what the running ``torch.compile`` compiles.
    Also watches compiled functions without a graph. `find` returns the step of a
    TorchDynamo backend, or None if the backend is another.
    """
    frame: Any = sys._getframe()
    while frame is not None and frame.f_code is not torch.compile.__code__:
        frame = frame.f_back
    if model is None and frame is not None:
        model = frame.f_locals.get("model")
    model = _private.unwrapped(model)
    if isinstance(model, DistributedDataParallel):
        raise UnsupportedError(DDP_OUTSIDE)
    if "FSDPModule" in [each.__name__ for each in type(model).__mro__]:
        raise UnsupportedError(FSDP_OUTSIDE)

    @_private.dynamo.disable  # Compiling it would take a lock that the caller holds.
    def watch(_: Any) -> None:
        context = next(_private.compiled_calls(sys._getframe()), {}).get("self")
        step = find(_private.innermost_backend(getattr(context, "callback", find)))
        if step is not None and torch.is_grad_enabled():
            step.watch_call()

    # `torch._dynamo.reset` removes it.
    names = [known.__qualname__ for known in callback_handler.start_callbacks]
    if watch.__qualname__ not in names:
        callback_handler.register_start_callback(watch)


def _accumulates() -> bool:
    """Returns true if any DDP model is in ``no_sync()``."""
    # isinstance() would query a proxy for the object that it represents.
    return any(
        issubclass(type(model), DistributedDataParallel)
        and not model.require_backward_grad_sync
        for model in gc.get_objects()
    )


def ddp_in(model: torch.fx.GraphModule) -> str:
    """Returns what reduces the gradients of a DDP model that is part of a graph.

    ``"reducer"`` is DDP itself, ``"graphs"`` a graph that has ``backward()`` in it. Empty if
    no DDP model is part of the graph.
    """
    if torch.is_grad_enabled() and _private.get_active_ddp_module():
        return "reducer"
    kinds = (
        str(kind)
        for node in model.graph.nodes
        for _, kind in node.meta.get("nn_module_stack", {}).values()
    )
    is_traced = any(DistributedDataParallel.__name__ in kind for kind in kinds)
    return "graphs" if is_traced else ""


# Each step with the object that identifies it, kept alive so that its id stays unique.
_steps: list[tuple[Any, Step]] = []


def step_of(token: Any) -> Step:
    for known, step in _steps:
        if known is token:
            return step
    _steps.append((token, Step(len(_steps))))
    return _steps[-1][1]


def prefix_of(number: int) -> str:
    return f"step {number} "
