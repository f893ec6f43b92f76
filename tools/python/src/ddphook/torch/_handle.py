# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ``register`` returns, and the hook that DDP calls."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist

from ddphook import _cache, _compiler, _runtime
from ddphook._errors import Error, FailedPreconditionError
from ddphook.torch import _bucket
from ddphook.torch._hooks import Hook
from ddphook.torch._rendezvous import Meeting
from ddphook.torch._worker import Worker


class Handle:
    """A hook that is registered with a DDP model.

    Made by ``ddphook.torch.register``.
    """

    def __init__(
        self,
        names: dict[torch.Tensor, str],
        hook: Hook,
        meeting: Meeting,
        groups: str,
    ) -> None:
        self.hook = hook
        self._names = names
        self._groups = groups
        self._meeting = meeting
        self._process = os.getpid()
        self._modules: dict[_bucket.Layout, _runtime.Module] = {}
        self._error: BaseException | None = None
        self._closed = False
        self._worker = Worker()
        try:
            self._context = self._worker.call(meeting.join)
        except BaseException:
            self._worker.stop()
            raise

    def start(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Starts the reduction of a bucket: what DDP calls.

        Parameters
        ----------
        bucket
            Of gradients of shapes that do not change while DDP keeps its
            buckets.

        Returns
        -------
        torch.futures.Future
            Holds the bucket's flat buffer, averaged in place.
        """
        self._check_usable()
        buffer = bucket.buffer()
        _bucket.check_dtype(buffer)
        gradients = bucket.gradients()
        layout = _bucket.Layout(
            bucket.index(),
            tuple(self._names[parameter] for parameter in bucket.parameters()),
            tuple(tuple(gradient.shape) for gradient in gradients),
            buffer.dtype,
        )
        started: torch.futures.Future[Any] = torch.futures.Future()

        def task() -> None:
            try:
                self._reduce(layout, gradients)
            except BaseException as error:  # noqa: BLE001: raised by backward().
                self._error = self._error or error
                started.set_result(error)
            else:
                started.set_result(buffer)

        self._worker.post(task)
        # DDP waits for a future of C++, which fails only if a callback raises.
        return started.then(_value_or_raise)

    def _reduce(self, layout: _bucket.Layout, gradients: list[torch.Tensor]) -> None:
        """Averages a bucket; on the worker's thread."""
        if self._error is not None:
            raise self._error
        module = self._modules.get(layout)
        if module is None:
            module = self._load(layout)
        module.run(_bucket.addresses(gradients))

    def _load(self, layout: _bucket.Layout) -> _runtime.Module:
        text = layout.text(self._groups)
        pipeline = _bucket.pipeline(self.hook.pipeline())
        image = _cache.get(
            text, pipeline, lambda: _compiler.compile_module(text, pipeline)
        )
        module = _runtime.Module(self._context, image)
        self._modules[layout] = module
        return module

    def statistics(self) -> dict[str, int]:
        """Counters of this rank since the hook was registered.

        Returns
        -------
        dict
            The fields of ``ddphook_stats_t``, summed over the buckets.
        """
        self._check_usable()

        def add() -> dict[str, int]:
            total: dict[str, int] = {}
            for module in self._modules.values():
                for name, value in module.statistics().items():
                    total[name] = total.get(name, 0) + value
            return total

        return self._worker.call(add)

    def close(self) -> None:
        """Leaves the job and frees all memory. May be called twice.

        Collective: rank 0 waits until the other ranks have left. DDP keeps the
        hook: the next ``backward()`` raises ``FailedPreconditionError``.
        """
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._process:
            return
        self._worker.call(self._context.destroy)
        self._worker.stop()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise FailedPreconditionError(
                "the hook was registered before this process was forked; "
                "register it in the process that trains"
            )
        if self._closed:
            raise FailedPreconditionError("the hook was closed")
        if self._error is not None:
            raise self._error


def _value_or_raise(future: torch.futures.Future[Any]) -> torch.Tensor:
    value = future.value()
    if isinstance(value, Error):
        raise type(value)(f"{value.status}: {value}")
    if isinstance(value, BaseException):
        raise value
    return value
