# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operators that compiled graphs call: start a reduction, wait for it.

Everything that a reduction depends on is an argument, so that a graph that
Inductor finds in its cache runs in a process that never saw it compiled. The
gradients are arguments of both operators: nobody may reuse their memory before
the reduction has read them.
"""

from __future__ import annotations

import atexit
import itertools
import os
from concurrent.futures import Future
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ddphook import _cache, _compiler, _runtime
from ddphook._errors import FailedPreconditionError
from ddphook.torch._modules import add_counters
from ddphook.torch._rendezvous import Meeting
from ddphook.torch._worker import Worker

_library = torch.library.Library("ddphook", "DEF")
_library.define(
    "start(Tensor[] gradients, str module, str pipeline, str group, float timeout) "
    "-> Tensor",
    tags=(torch.Tag.needs_contiguous_strides,),
)
_library.define(
    "wait(Tensor ticket, Tensor[] gradients) -> Tensor[]",
    tags=(torch.Tag.needs_contiguous_strides,),
)


class Session:
    """A context of the runtime for all graphs of a process group.

    Parameters
    ----------
    group
        The process group.
    timeout_s
        Deadline of every operation that waits for a peer, in seconds.
    """

    def __init__(self, group: dist.ProcessGroup, timeout_s: float) -> None:
        self._process = os.getpid()
        self._worker = Worker()
        self._modules: dict[tuple[str, str], _runtime.Module] = {}
        self._error: BaseException | None = None
        try:
            self._context = self._worker.call(Meeting(group, timeout_s).join)
        except BaseException:
            self._worker.stop()
            raise

    def start(
        self, text: str, pipeline: str, gradients: list[torch.Tensor]
    ) -> Future[list[torch.Tensor]]:
        """Begins to reduce `gradients`, which stay as they are."""
        if os.getpid() != self._process:
            raise FailedPreconditionError(
                "the graph has run before this process was forked; compile it "
                "in the process that trains"
            )
        result: Future[list[torch.Tensor]] = Future()

        def task() -> None:
            try:
                result.set_result(self._reduce(text, pipeline, gradients))
            except BaseException as error:  # noqa: BLE001 - raised by wait().
                self._error = self._error or error
                result.set_exception(error)

        self._worker.post(task)
        return result

    def _reduce(
        self, text: str, pipeline: str, gradients: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        module = self._modules.get((text, pipeline))
        if module is None:
            image = _cache.get(
                text, pipeline, lambda: _compiler.compile_module(text, pipeline)
            )
            module = _runtime.Module(self._context, image)
            self._modules[text, pipeline] = module
        averages = [torch.empty_like(gradient) for gradient in gradients]
        module.run(
            [gradient.data_ptr() for gradient in gradients],
            [average.data_ptr() for average in averages],
        )
        return averages

    def statistics(self) -> dict[str, int]:
        """Counters of this rank, summed over the modules."""

        def add() -> dict[str, int]:
            total: dict[str, int] = {}
            for module in self._modules.values():
                add_counters(total, module.statistics())
            return total

        return self._worker.call(add)

    def close(self) -> None:
        """Leaves the job; collective."""
        if os.getpid() == self._process:
            self._worker.call(self._context.destroy)
            self._worker.stop()


_sessions: dict[str, Session] = {}
_pending: dict[int, Future[list[torch.Tensor]]] = {}
_tickets = itertools.count()


def session(group: str, timeout_s: float) -> Session:
    """The session of a process group, by its name; collective when it is new."""
    found = _sessions.get(group)
    if found is None:
        process_group = c10d._resolve_process_group(group)
        found = _sessions[group] = Session(process_group, timeout_s)
    return found


def close() -> None:
    """Leaves the jobs of all compiled graphs and frees their memory.

    Collective. A graph that runs afterwards begins anew, without its states.
    Without this call it happens when the process exits.
    """
    _pending.clear()
    while _sessions:
        _sessions.popitem()[1].close()


atexit.register(close)


def _start(
    gradients: list[torch.Tensor],
    module: str,
    pipeline: str,
    group: str,
    timeout: float,
) -> torch.Tensor:
    ticket = next(_tickets)
    dense = [gradient.contiguous() for gradient in gradients]
    _pending[ticket] = session(group, timeout).start(module, pipeline, dense)
    return torch.tensor(ticket)


def _wait(ticket: torch.Tensor, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    del gradients
    return _pending.pop(int(ticket)).result()


def _start_shape(gradients: list[torch.Tensor], *_: Any) -> torch.Tensor:
    return gradients[0].new_empty((), dtype=torch.int64)


def _wait_shape(
    ticket: torch.Tensor, gradients: list[torch.Tensor]
) -> list[torch.Tensor]:
    del ticket
    return [
        torch.empty_like(gradient, memory_format=torch.contiguous_format)
        for gradient in gradients
    ]


_library.impl("start", _start, "CPU")
_library.impl("wait", _wait, "CPU")
torch.library.register_fake("ddphook::start", _start_shape, lib=_library)
torch.library.register_fake("ddphook::wait", _wait_shape, lib=_library)
