# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A job for modules that are not of DDP's buckets: compiled steps, averagers.

A session has a context of the runtime, the thread that uses it, and the modules
that it has loaded. Those are known by their texts and by their owners: two
owners have states of their own, also where their modules are the same.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ddphook import _cache, _compiler, _runtime
from ddphook._errors import FailedPreconditionError, InvalidArgumentError
from ddphook.torch import _bucket, _states
from ddphook.torch._modules import add_counters
from ddphook.torch._rendezvous import Meeting, group_of_name
from ddphook.torch._worker import Worker

_log = logging.getLogger("ddphook")
_FORMAT = "ddphook.torch.compile 1"


class Key(NamedTuple):
    """What a module is known by.

    Attributes
    ----------
    owner
        Who runs it; has no part in its code.
    text
        The module, in MLIR's textual form.
    pipeline
        Options of ``ddp-pipeline``.
    """

    owner: str
    text: str
    pipeline: str


class Session:
    """A job of the ranks of a process group.

    All ranks run the same modules in the same order.

    Parameters
    ----------
    group
        The process group.
    timeout_s
        Deadline of every operation that waits for a peer, in seconds.
    """

    def __init__(self, group: dist.ProcessGroup, timeout_s: float) -> None:
        self._process = os.getpid()
        self._group = weakref.ref(group)
        self._worker = Worker()
        self._modules: dict[Key, _runtime.Module] = {}
        # States of modules that have not come yet.
        self._waiting: dict[Key, _states.Parts] = {}
        self._checks = 0
        self._error: BaseException | None = None
        self._meeting = Meeting(group, timeout_s)
        try:
            self._context = self._worker.call(self._meeting.join)
        except BaseException:
            self._worker.stop()
            raise

    def run(
        self,
        key: Key,
        arrays: Sequence[torch.Tensor],
        results: Sequence[torch.Tensor] | None = None,
    ) -> Future[None]:
        """Begins to run a module, which is compiled and loaded if need be.

        Parameters
        ----------
        key
            Of the module.
        arrays
            Its arguments, which are kept until it has run.
        results
            The memory of its results; by default the arguments'.

        Returns
        -------
        concurrent.futures.Future
            Done when the results are there, or with the step's exception.
        """
        self._check_process()
        done: Future[None] = Future()

        def task() -> None:
            try:
                if self._error is not None:
                    raise self._error
                self._module(key).run(
                    [array.data_ptr() for array in arrays],
                    None if results is None else [r.data_ptr() for r in results],
                )
            except BaseException as error:  # noqa: BLE001 - raised by result().
                self._error = self._error or error
                done.set_exception(error)
                # The other ranks learn of it now, and not by their deadlines.
                self._leave()
            else:
                done.set_result(None)

        self._worker.post(task)
        return done

    def statistics(self) -> dict[str, int]:
        """Counters of this rank, summed over the modules."""

        def add() -> dict[str, int]:
            total: dict[str, int] = {}
            for module in self._modules.values():
                add_counters(total, module.statistics())
            return total

        return self._worker.call(add)

    def state_dict(self) -> dict[str, Any]:
        """This rank's states, of all modules that have any."""
        self._check_process()

        def read() -> dict[Key, _states.Parts]:
            parts = {key: _states.read(module) for key, module in self._modules.items()}
            return {**self._waiting, **parts}

        return {
            "format": _FORMAT,
            "rank": self._meeting.rank,
            "world_size": self._meeting.world_size,
            "modules": [
                (*key, parts) for key, parts in self._worker.call(read).items() if parts
            ],
        }

    def load_state_dict(self, state: Any) -> None:
        """Continues where a ``state_dict()`` was, with modules yet to come as well.

        Raises
        ------
        InvalidArgumentError
            It is no such state.
        """
        self._check_process()
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise InvalidArgumentError(f"expected a state of the format '{_FORMAT}'")
        mine = (self._meeting.rank, self._meeting.world_size)
        is_mine = (state["rank"], state["world_size"]) == mine
        given: dict[Key, _states.Parts] = {}
        for owner, text, pipeline, parts in state["modules"]:
            given[Key(owner, text, pipeline)] = {
                role: values
                for role, values in parts.items()
                if is_mine or not _states.is_per_rank(role)
            }

        def place() -> None:
            self._waiting.update(given)
            for key, module in self._modules.items():
                self._place(key, module)

        self._worker.call(place)

    def is_of(self, group: dist.ProcessGroup) -> bool:
        """Whether it is of this process group, and not of one with its name."""
        return self._group() is group

    def close(self, wait: bool = True) -> None:
        """Leaves the job; collective. Waits for the other ranks, by default."""
        if os.getpid() != self._process:
            return
        if self._waiting:
            _log.warning(
                "states of %d modules were loaded and never used", len(self._waiting)
            )
        self._worker.post(self._leave)
        self._worker.stop()
        if wait:
            self._worker.join()

    def _leave(self) -> None:
        self._context.destroy()
        for module in self._modules.values():
            module.release()
        self._modules.clear()

    def _module(self, key: Key) -> _runtime.Module:
        module = self._modules.get(key)
        if module is None:
            text = _bucket.with_group_size(key.text, self._meeting.world_size)
            image = _cache.get(
                text,
                key.pipeline,
                lambda: _compiler.compile_module(text, key.pipeline),
            )
            module = _runtime.Module(self._context, image)
            self._modules[key] = module
            self._place(key, module)
        return module

    def _place(self, key: Key, module: _runtime.Module) -> None:
        """Gives a module the states that wait for it; collective if it has any."""
        parts = self._waiting.pop(key, {})
        if module.plan["states"]:
            self._checks += 1
            name = f"states of module {self._checks}"
            self._meeting.check_equal(name, _states.digest(parts))
            _states.write(module, parts)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise FailedPreconditionError(
                "the job was joined before this process was forked; compile the "
                "step in the process that trains"
            )


_sessions: dict[str, Session] = {}


def session_of(group: str, timeout_s: float) -> Session:
    """The session of a process group, by its name; collective when it is new."""
    process_group = group_of_name(group)
    found = _sessions.get(group)
    if found is not None and not found.is_of(process_group):
        # PyTorch was initialized again, with other ranks perhaps.
        _sessions.pop(group).close(wait=False)
        found = None
    if found is None:
        found = _sessions[group] = Session(process_group, timeout_s)
    return found


def sessions() -> dict[str, Session]:
    """All sessions, by the names of their process groups."""
    return dict(_sessions)


def close_all() -> None:
    """Leaves the jobs of all sessions; collective."""
    while _sessions:
        _sessions.popitem()[1].close()
