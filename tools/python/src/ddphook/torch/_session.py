# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A job for modules outside of DDP's buckets: compiled steps, averagers.

A session has a context of the runtime, the thread that uses it, and the modules that
it has loaded. Modules are identified by text and owner: two owners have separate
states, even if their modules are equal. A process group has a session for each device
of its arrays, and for each deadline.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import weakref
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ddphook import _cache, _rate, _runtime
from ddphook._errors import DeadlineExceededError, FailedPreconditionError
from ddphook._errors import InvalidArgumentError
from ddphook.torch import _bucket, _device, _states
from ddphook.torch._device import Device
from ddphook.torch._overflow import Watch
from ddphook.torch._private import resolve_process_group as group_of_name
from ddphook.torch._rendezvous import Meeting
from ddphook.torch._worker import Worker

_log = logging.getLogger("ddphook")
_FORMAT = "ddphook.torch.compile 2"


class Key(NamedTuple):
    """The identity of a module: its text, and options of ``ddp-pipeline``.

    The owner is the code that runs it, and does not affect the compiled code.
    """

    owner: str
    text: str
    pipeline: str


class Session:
    """A job of the ranks of a process group, for arrays on a device.

    All ranks run the same modules in the same order. A thread of the session joins the
    job, so that ranks may begin the sessions of several groups in different orders. If
    joining fails, the first run raises the error. `waiting` has the states of modules
    that are not loaded yet; loading a module removes its states.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        timeout_s: float,
        device: Device,
        waiting: dict[Key, _states.Parts],
    ) -> None:
        self.device = device
        self._watch = Watch(device)
        self._rated: set[str] = set()
        self._process = os.getpid()
        self._worker = Worker()
        self._modules: dict[Key, _runtime.Module] = {}
        self._waiting = waiting
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._given_up: deque[Future[None]] = deque()
        # Destroys the context, once it exists.
        self._membership = contextlib.ExitStack()
        self._meeting = Meeting(group, timeout_s)
        self._worker.post(self._join)

    def run(
        self,
        key: Key,
        arrays: Sequence[torch.Tensor],
        copies: Sequence[tuple[torch.Tensor, torch.Tensor]] = (),
    ) -> Future[Any]:
        """Begins to run a module, compiling and loading it if necessary.

        The arrays are those of `Module.run`. The caller keeps them until the device has
        waited for the end of the run. The copies are made after the run; see
        `Device.copy`. The returned future holds the end, for `Device.wait`, or the
        step's exception. On the host the results are then complete.
        """
        self._check_process()
        done: Future[Any] = Future()
        begun = self.device.begin(arrays, are_kept=True)

        def task() -> None:
            try:
                if self._error is not None:
                    raise self._error
                module = self._module(key)
                self.device.run(module, arrays, begun)
                self._watch.after(module, arrays)
                if copies:
                    self.device.copy(copies)
                end = self.device.end()
            except BaseException as error:  # noqa: BLE001 - raised by result().
                self._fail(error)
                done.set_exception(error)
                # Notifies the other ranks now, rather than at their deadlines.
                self._leave()
            else:
                done.set_result(end)

        self._worker.post(task)
        return done

    def end_of(self, run: Future[Any]) -> Any:
        """Returns the end of a completed run; raises the exception of its step."""
        if (error := run.exception()) is None:
            return run.result()
        # The session keeps the exception. If each wait extended its traceback, that
        # would keep the frames of all waits, with their tensors.
        raise error.with_traceback(self._traceback)

    def give_up(self, arrays: list[torch.Tensor]) -> None:
        """Keeps arrays of abandoned runs until those runs have ended.

        Finalizers may call it, at any time in any thread.
        """
        if os.getpid() != self._process:
            return

        def release() -> None:
            # This task follows the runs, and the leaving of the job if a run failed.
            self.device.release(arrays)
            arrays.clear()

        self._given_up.append(self._worker.submit(release))

    def finish_given_up(self) -> None:
        """Waits for abandoned runs.

        Without it, each step that ends with an exception would use more memory.
        """
        self._check_process()
        while self._given_up:
            self._given_up.popleft().result()

    def states(self) -> dict[Key, tuple[_states.Parts, _states.Kinds]]:
        """Returns this rank's states of all loaded modules."""
        self._check_process()
        return self._worker.call(
            lambda: {
                key: (_states.read(module), _states.kinds(module.plan))
                for key, module in self._modules.items()
            }
        )

    def place(self) -> None:
        """Gives loaded modules the states that wait for them; collective."""
        self._check_process()
        for key, module in list(self._modules.items()):
            self._worker.call(self._place, key, module)

    def leave(self, finish: bool = True) -> None:
        """Begins to leave the job; collective. By default, waits for its runs first.

        After waiting, it raises a failure of the device that no run has reported.
        """
        if os.getpid() != self._process:
            return
        try:
            if finish:
                self._worker.call(self._finish)
        finally:
            self._worker.post(self._leave)
            self._worker.stop()

    def wait_until_left(self) -> None:
        if os.getpid() == self._process:
            self._worker.join()

    def _join(self) -> None:
        try:
            self._context = _device.join(self._meeting, self.device)
        except DeadlineExceededError as error:
            ranks = dist.get_process_group_ranks(self._meeting.group)
            what = f"not all ranks of {ranks} started a reduction in their process group"
            self._fail(DeadlineExceededError(f"{what}: {error}"))
        except BaseException as error:  # noqa: BLE001 - raised by end_of().
            self._fail(error)
        else:
            self._membership.callback(self._context.destroy)

    def _fail(self, error: BaseException) -> None:
        """Keeps the first failure, which all later runs raise as well."""
        if self._error is None:
            self._error, self._traceback = error, error.__traceback__

    def _finish(self) -> None:
        if self._error is None:
            self.device.finish_all(self._context)

    def _leave(self) -> None:
        self._membership.close()
        for module in self._modules.values():
            module.release()
        self._modules.clear()

    def _module(self, key: Key) -> _runtime.Module:
        if key in self._modules:
            self._check_rate(key)
            return self._modules[key]
        text = _bucket.with_group_size(key.text, self._meeting.world_size)
        image = _cache.compiled(text, key.pipeline, self.device.target)
        module = self._modules[key] = _runtime.Module(self._context, image)
        self._place(key, module)
        return module

    def _check_rate(self, key: Key) -> None:
        """Warns once if the hook of a compiled step saves too few bytes.

        Called when a module of the step runs again; all its modules are then loaded.
        """
        # _steps.prefix_of() writes this format.
        match = re.match(r"step \d+ ", key.owner)
        if match is None or match[0] in self._rated:
            return
        step = match[0]
        self._rated.add(step)
        own = (module for k, module in self._modules.items() if k.owner.startswith(step))
        _rate.warn_of_waste(key.pipeline, [b for module in own for b in module.plan["buckets"]])

    def _place(self, key: Key, module: _runtime.Module) -> None:
        """Gives a module the states that wait for it; collective if it has any."""
        has_parts = key in self._waiting
        parts = self._waiting.pop(key, {})
        if module.plan["states"]:
            common = _states.without_errors(parts, _states.kinds(module.plan))
            self._meeting.check_equal("states of a module", _states.digest(common))
            if has_parts:
                _states.check(module, parts)
                _states.clear_errors(module)
            _states.write(module, parts)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise FailedPreconditionError(
                "the job was joined before this process was forked; reduce in the process "
                "that joined it"
            )


class Sessions:
    """The sessions of a process group, and the states that wait for their modules."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        # Another group may get the name of one that no longer exists.
        self.group = weakref.ref(group)
        self._process = os.getpid()
        self._rank = (group.rank(), group.size())
        self._waiting: dict[Key, _states.Parts] = {}
        self._kinds: _states.Kinds = {}
        self._opened: dict[tuple[torch.device, float], Session] = {}

    def open(
        self, group: dist.ProcessGroup, memory: torch.device, timeout_s: float
    ) -> Session:
        """Returns the session for arrays in this memory; collective when it is new."""
        key = memory, timeout_s
        if key not in self._opened:
            device = _device.device_at(memory)
            self._opened[key] = Session(group, timeout_s, device, self._waiting)
        return self._opened[key]

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's states of all modules that have any.

        The states of a module that ran in several sessions are the newest session's.
        """
        states = dict(self._waiting)
        for session in self._opened.values():
            for key, (parts, kinds) in session.states().items():
                states[key] = parts
                self._kinds.update(kinds)
        rank, world_size = self._rank
        return {
            "format": _FORMAT,
            "rank": rank,
            "world_size": world_size,
            "kinds": self._kinds,
            "modules": [(*k, _states.nested(parts)) for k, parts in states.items() if parts],
        }

    def load_state_dict(self, state: Any) -> None:
        """Continues from a ``state_dict()``; also applies to modules loaded later."""
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise InvalidArgumentError(f"expected a state of the format '{_FORMAT}'")
        is_mine = (state["rank"], state["world_size"]) == self._rank
        self._kinds.update(state["kinds"])
        dropped: set[str] = set()
        for owner, text, pipeline, saved in state["modules"]:
            own = parts = _states.flat(saved)
            if not is_mine:
                own = _states.without_errors(parts, self._kinds)
            dropped |= {role for role, _ in parts.keys() - own.keys()}
            self._waiting[Key(owner, text, pipeline)] = own
        _states.warn_of_errors(dropped)
        for session in self._opened.values():
            session.place()

    def close(self) -> list[Session]:
        """Returns all sessions, the oldest first; the caller has to leave them."""
        if self._waiting and os.getpid() == self._process:
            _log.warning(
                "states of %d modules were loaded but never used", len(self._waiting)
            )
        opened, self._opened = list(self._opened.values()), {}
        return opened


_sessions: dict[str, Sessions] = {}
# Sessions of groups that no longer exist, until they have left their jobs.
_leaving: weakref.WeakSet[Session] = weakref.WeakSet()


def sessions_of(group: dist.ProcessGroup) -> Sessions:
    name = group.group_name
    found = _sessions.get(name)
    if found is not None and found.group() is not group:
        # PyTorch was initialized again, possibly with other ranks.
        for session in _sessions.pop(name).close():
            session.leave(finish=False)
        found = None
    if found is None:
        found = _sessions[name] = Sessions(group)
    return found


def session_of(
    group: str, timeout_s: float, memory: torch.device = _device.HOST
) -> Session:
    """Returns the session of the named process group for arrays in this memory.

    Its waits for peers have this deadline. Collective when the session is new.
    """
    process_group = group_of_name(group)
    return sessions_of(process_group).open(process_group, memory, timeout_s)


def leave(group: dist.ProcessGroup, finish: bool = True) -> None:
    """Begins to leave the jobs of a process group that nobody uses any more.

    Does not wait for other ranks, which may destroy their groups in another order. See
    `Session.leave`.
    """
    found = _sessions.get(group.group_name)
    if found is not None and found.group() is group:
        del _sessions[group.group_name]
        for session in found.close():
            _leaving.add(session)
            session.leave(finish)


def state_dict() -> dict[str, Any]:
    """Returns this rank's states of all compiled steps: errors, factors, counters.

    Not collective. Call it between steps, on every rank: error feedback differs
    between ranks. The handles of registered hooks have their own states.

    Returns
    -------
    dict
        A dictionary for ``torch.save``, by the names of process groups.
    """
    return {name: each.state_dict() for name, each in _sessions.items()}


def load_state_dict(state: dict[str, Any]) -> None:
    """Makes compiled steps continue from a ``state_dict()``.

    Collective. Call it in a program that compiles the same steps in the same
    order, before they run for the first time or between steps.

    Parameters
    ----------
    state
        The result of ``state_dict()`` on this rank. A state of another rank, or of
        another number of ranks, is loaded without error feedback.

    Raises
    ------
    InvalidArgumentError
        The value is not such a state.
    PlanMismatchError
        Ranks have different values of a state that must be the same on all ranks;
        for a module that was not loaded yet, its next step raises it.
    """
    if not isinstance(state, dict):
        raise InvalidArgumentError(
            f"expected a state of ddphook.torch.state_dict(), but got {state!r}"
        )
    for name, values in state.items():
        sessions_of(group_of_name(name)).load_state_dict(values)


def close_all() -> None:
    """Leaves the jobs of all sessions; collective.

    It leaves every job before it waits for other ranks to leave one, since they may
    have begun the jobs in another order.
    """
    opened = [each for sessions in _sessions.values() for each in sessions.close()]
    _sessions.clear()
    with contextlib.ExitStack() as stack:
        # The stack continues after an exception, and runs its callbacks in reverse.
        for session in [*_leaving, *opened]:
            stack.callback(session.wait_until_left)
        for session in reversed(opened):
            stack.callback(session.leave)
