# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The result of ``register``: the hook that DDP calls, with its states."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import weakref
from typing import Any, NoReturn, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import profiler
from torch.nn.parallel import DistributedDataParallel

from ddphook import _rate
from ddphook._errors import Error, FailedPreconditionError
from ddphook._errors import InvalidArgumentError, UnsupportedError
from ddphook._runtime import Statistics
from ddphook.report import counted
from ddphook.torch import _bucket, _private, _states
from ddphook.torch._device import Device, Future
from ddphook.torch._hooks import Hook
from ddphook.torch._modules import Modules, begin, common_parts
from ddphook.torch._optimizer import Optimizer
from ddphook.torch._order import Bucket, Order, regroup
from ddphook.torch._rendezvous import Meeting
from ddphook.torch._rules import Rule
from ddphook.torch._worker import Worker

_log = logging.getLogger("ddphook")

_FORMAT = "ddphook.torch 2"


class CommHook:
    """The communication hook that DDP calls; `title` is the name that DDP logs.

    It has no handle in a copy of a DDP model, whose reducer has no hook.
    """

    def __init__(self, handle: Handle | None, title: str) -> None:
        self.handle = handle
        self.__qualname__ = title
        # DDP compares `__name__` with the names of its own functions.
        self.__name__ = type(self).__name__

    # Has no annotations: DDP does not understand those that are strings.
    def __call__(self, state, bucket):  # type: ignore[no-untyped-def]
        if self.handle is None:
            raise FailedPreconditionError(
                f"the hook '{self.__qualname__}' belongs to the model that this one was "
                "copied from; call ddphook.torch.register to give the copy a hook"
            )
        return self.handle.start(bucket)

    def __deepcopy__(self, memo: Any) -> CommHook:
        return CommHook(None, self.__qualname__)

    def __reduce__(self) -> Any:
        return _unpickled, (self.__qualname__,)


def _unpickled(title: str) -> CommHook:
    _log.warning(
        "a DDP model was loaded without its hook '%s': call ddphook.torch.register to "
        "train it with one",
        title,
    )
    return CommHook(None, title)


class Handle:
    """A hook that is registered with a DDP model.

    Made by ``ddphook.torch.register``. A context manager: leaving it closes it.
    ``repr`` shows what the ranks reduce, and the bytes of a compressed step.
    """

    _format = _FORMAT
    _error: BaseException | None = None
    _closed = False

    def __init__(
        self,
        model: DistributedDataParallel,
        hook: Hook,
        meeting: Meeting,
        groups: str,
        device: Device,
        optimizer: Optimizer | None = None,
    ) -> None:
        self._hook = hook
        self._pipeline = hook.pipeline()
        self._device = device
        self._optimizer = optimizer
        self._names = _bucket.parameter_names(model)
        self._reduced = {
            parameter
            for name, parameter in model.module.named_parameters()
            if name not in model.parameters_to_ignore
        }
        self._model = weakref.ref(model)
        self._meeting = meeting
        self._process = os.getpid()
        # Names of parameters by bucket: in DDP's final buckets; in the current step; in
        # the first step after a load; and in the loaded states, which apply until DDP
        # has its final buckets.
        self._order: Order = []
        self._step_order: Order = []
        self._first_order: Order = []
        self._planned: Order | None = None
        self._held: list[tuple[Bucket, Future, Any]] = []
        self._worker, self._modules = begin(meeting, hook, groups, device)
        open_handles.add(self)
        # A handle that is garbage-collected leaves the job as well, but nothing waits
        # for that.
        self._abandon = weakref.finalize(
            self, leave, self._worker, self._modules, self._process
        )
        self._abandon.atexit = False

    @property
    def hook(self) -> str:
        """The hook with its options, in the compiler's syntax."""
        return self._pipeline

    def start(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Starts the reduction of a bucket; DDP calls it.

        Parameters
        ----------
        bucket
            A bucket of dense gradients, on the device of the model.

        Returns
        -------
        torch.futures.Future
            Holds the bucket's flat buffer, averaged in place. If an optimizer runs in
            the modules, the parameters are then updated as well.

        Raises
        ------
        UnsupportedError
            A module cannot hold gradients of this kind.
        FailedPreconditionError
            The hook was closed, or the process was forked.
        """
        self._check_usable()
        if not isinstance(bucket, dist.GradBucket):
            raise UnsupportedError(
                "expected a bucket of DDP's reducer, but got one gradient of "
                "torch.compile's python_reducer, which has no buckets"
            )
        buffer = bucket.buffer()
        _bucket.check_tensor(buffer)
        if buffer.device != self._device.memory:
            raise UnsupportedError(
                f"expected gradients on {self._device.memory}, where the model was "
                f"when the hook was registered, but got some on {buffer.device}"
            )
        gradients = bucket.gradients()
        _bucket.check_tiling(buffer, gradients)
        # PyTorch's annotations declare tensors.
        parameters: list[Any] = bucket.parameters()
        names = [self._names[parameter] for parameter in parameters]
        given = Bucket(bucket.index(), names, parameters, gradients, buffer)
        if given.index == 0:
            self._held, self._step_order = [], []
        self._step_order.append(names)
        if bucket.is_last() and self._has_final_buckets():
            self._order = self._step_order
        if self._planned is None or self._has_final_buckets():
            self._planned = None
            return self._start(given)
        return self._hold(given, bucket.is_last())

    def _start(self, given: Bucket) -> Future:
        arrays: list[torch.Tensor] = [given.buffer]
        rules: list[Rule | None] = []
        if self._optimizer is not None:
            arrays += self._optimizer.arrays(given.parameters)
            rules = self._optimizer.rules(given.parameters)
        if given.buffer.numel() == 0:
            empty = self._device.new_future()
            self._device.finish(empty, given.buffer)
            return empty
        layout = _bucket.Layout.of(given.index, given.names, given.gradients, rules)
        updated = [p for p, rule in zip(given.parameters, rules) if rule]
        # Makes autograd refuse the parameters that it saved before this update.
        torch.autograd.graph.increment_version(updated)
        return self._reduce(layout, arrays)

    def _hold(self, given: Bucket, is_last: bool) -> Future:
        """Holds a bucket until all buckets of the step have arrived.

        They are then reduced in the order of the loaded states. Used until DDP has its
        final buckets.
        """
        device = self._device
        held = device.new_future()
        self._held.append((given, held, device.begin([given.buffer])))
        if is_last:
            self._start_held()
        return held.then(self._value_or_raise)

    def _start_held(self) -> None:
        assert self._planned is not None
        device, held = self._device, self._held
        for _, _, begun in held:
            device.wait(begun)
        # A rank in DDP's join() is not notified when DDP makes its final buckets.
        self._first_order = self._first_order or self._step_order
        is_first = self._step_order == self._first_order
        order = self._planned if is_first else self._step_order
        buckets, copies = regroup([given for given, _, _ in held], order)
        self._held = []
        for made in buckets:
            self._start(made)

        def put_back() -> None:
            try:
                if self._error is None:
                    device.copy(copies)
            except BaseException as error:  # noqa: BLE001 - backward() raises it.
                self._error = self._error or error
            for given, future, _ in held:
                device.finish(future, given.buffer)

        self._worker.post(put_back)

    def __repr__(self) -> str:
        failed = f"failed: {self._error}" if self._error else ""
        parts = [self.hook, *self._facts(), "closed" if self._closed else failed]
        return f"<ddphook.torch.Handle: {', '.join(filter(None, parts))}>"

    def _facts(self) -> list[str]:
        """Returns what `repr` shows between the hook and its state."""
        buckets = self._modules.buckets()
        before, after = _rate.bytes_of(buckets)
        return [
            f"group '{self._meeting.group.group_name}'",
            f"rank {self._meeting.rank} of {self._meeting.world_size}",
            counted(sum(p.requires_grad for p in self._reduced), "parameter"),
            counted(len(buckets), "bucket") if buckets else "no step so far",
            f"{after} of {before} bytes sent per step" if buckets else "",
        ]

    def statistics(self) -> Statistics:
        """Returns counters of this rank since the hook was registered."""
        self._check_usable()
        self._finish()
        return statistics_of(self._worker.call(self._modules.statistics))

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's states: errors, factors, counters, generators.

        Not collective. Call it between steps, on every rank: error feedback differs
        between ranks.

        Returns
        -------
        dict
            A dictionary for ``torch.save``. ``"states"`` has, for each role
            (``"powersgd.error"``), a tensor for each parameter's name, or, for
            ``batched_powersgd``, for the tuple of all names of a bucket.
            ``"kinds"`` says what each role is (``"error"``), and
            ``"buckets"`` has the names of each of DDP's final buckets.
        """
        self._check_usable()
        self._finish()
        states, kinds = self._worker.call(self._modules.states)
        rank, size = self._meeting.rank, self._meeting.world_size
        parts = _states.nested(states)
        return _saved(self.hook, rank, size, parts, kinds, self._planned or self._order)

    def load_state_dict(self, state: Any) -> None:
        """Continues from a ``state_dict()`` or from PyTorch's state.

        Collective: all ranks call it, between steps. States that it does not contain
        start again.

        Parameters
        ----------
        state
            The result of ``state_dict()`` on this rank. The state of another rank,
            or of another number of ranks, is loaded without error feedback, and the
            logger ``ddphook`` warns about it. It may also be a ``PowerSGDState`` or
            ``PostLocalSGDState`` of PyTorch's: its counter and generator are loaded,
            and so are its errors and factors if DDP has the same buckets.

        Raises
        ------
        InvalidArgumentError
            The states belong to another hook, to other options, or to other
            parameters.
        PlanMismatchError
            Ranks have different values of a state that must be the same on all of
            them.
        """
        self._check_usable()
        if not isinstance(state, dict):
            self._check_common(common_parts(self._hook.name, state))
            self._worker.call(self._modules.adopt, state, list(self._names.values()))
            return
        self._check_format(state)
        parts = _states.flat(state["states"])
        kinds = dict(state["kinds"])
        order = state.get("buckets") or []
        self._check_names(_states.names(parts).union(*order))
        mine = (self._meeting.rank, self._meeting.world_size)
        common = _states.without_errors(parts, kinds)
        if (state["rank"], state["world_size"]) != mine:
            _states.warn_of_errors({role for role, _ in parts.keys() - common.keys()})
            parts = common
        self._check_common(common, order)
        self._worker.call(self._modules.place, parts, kinds)
        self._planned = order or None

    def close(self) -> None:
        """Leaves the job and frees all memory. May be called twice.

        Collective: rank 0 waits until the other ranks have left. DDP keeps the hook:
        the next ``backward()`` raises ``FailedPreconditionError``.

        Raises
        ------
        Error
            A device's last step has failed, and no call has raised it yet. The job
            has been left nevertheless.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if os.getpid() == self._process:
                self._finish()
        finally:
            if self._optimizer is not None:
                self._optimizer.release()
            open_handles.discard(self)
            if self._abandon() is not None:
                self._worker.join()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is None:
            self.close()
        else:
            # An error of close() must not hide the exception that ends the block.
            _close_and_log(self)

    def _finish(self) -> None:
        """Waits for the device's last run; raises a failure that no run has reported."""

        def finish() -> None:
            # Runs after all modules, one of which may have failed and left the job.
            if self._error is None:
                self._modules.finish()

        try:
            self._worker.call(finish)
        except Error as error:
            self._error = self._error or error
            raise

    def _reduce(self, layout: _bucket.Layout, arrays: list[torch.Tensor]) -> Future:
        """Enqueues the reduction of a bucket, `arrays[0]`, on the worker."""
        is_final = self._has_final_buckets()
        modules, device = self._modules, self._device
        begun = device.begin(arrays)
        started = device.new_future()

        def task() -> None:
            try:
                self._raise_failure()
                modules.run(layout, arrays, is_final, begun)
            except BaseException as error:  # noqa: BLE001 - backward() raises it.
                self._error = self._error or error
            try:
                device.finish(started, arrays[0])
            except BaseException as error:  # noqa: BLE001 - backward() raises it.
                self._error = self._error or error
                started.set_exception(error)  # type: ignore[arg-type]
            if self._error is not None:
                # Notifies the other ranks now, rather than at their deadlines.
                modules.close()

        with contextlib.ExitStack() as stack:
            ended = started
            for name in self._names_of_records(layout):
                record = stack.enter_context(profiler.record_function(name))
                ended = _private.end_record(record, ended)
            self._worker.post(task)
        # DDP waits for a C++ future, which fails only if a callback raises.
        return ended.then(self._value_or_raise)

    def _raise_failure(self, *_: Any) -> None:
        if self._error is not None:
            raise self._error

    def _value_or_raise(self, future: Future) -> torch.Tensor:
        self._raise_failure()
        return future.value()

    def _names_of_records(self, layout: _bucket.Layout) -> list[str]:
        """Returns the names of a bucket's reduction in ``torch.profiler``, if it is running.

        The last one is PyTorch's own, which its tools recognize as communication.
        """
        if not _private.is_profiling():
            return []
        names = [f"ddphook: {self._hook.name} bucket {layout.index}"]
        if self._hook.name != "noop":
            names.append(f"{dist.get_backend(self._meeting.group)}:all_reduce")
        return names

    def _check_format(self, state: Any) -> None:
        if not isinstance(state, dict):
            raise InvalidArgumentError(f"expected a dictionary, but got {type(state).__name__}")
        for key, expected in ("format", self._format), ("hook", self.hook):
            if state.get(key) != expected:
                raise InvalidArgumentError(
                    f"expected a state with the {key} '{expected}', but got "
                    f"{state.get(key)!r}"
                )

    def _check_names(self, given: set[str]) -> None:
        """Checks that states, if not empty, belong to the model's parameters.

        Parameters that are frozen now may have states: DDP reduces those that were not
        frozen when it was made.
        """
        expected = {self._names[p] for p in self._reduced if p.requires_grad}
        strange = given - set(self._names.values())
        for has, names in ("has", strange), ("lacks", expected - given):
            if given and names:
                raise InvalidArgumentError(
                    "expected states of the model's parameters, but the state "
                    f"{has} '{min(names)}'"
                )

    def _check_common(self, parts: _states.Parts, order: Order | None = None) -> None:
        self._meeting.check_equal("loaded states", _states.digest(parts, order), "load states")

    def _has_final_buckets(self) -> bool:
        model = self._model()
        return model is not None and (
            _private.has_rebuilt_buckets(model)
            or (model.find_unused_parameters and not model.static_graph)
        )

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise FailedPreconditionError(
                "the hook was registered before this process was forked; "
                "register it in the process that trains"
            )
        if self._closed:
            raise FailedPreconditionError("the hook was closed")
        self._raise_failure()


class LocalHandle(Handle):
    """A handle in a job of one rank without DDP, where there is nothing to reduce.

    Has no effect on the model. States that are loaded are kept for `state_dict`.
    """

    def __init__(self, model: nn.Module, hook: Hook) -> None:
        self._pipeline = hook.pipeline()
        self._count = sum(p.requires_grad for p in model.parameters())
        self._process = os.getpid()
        self._state = _saved(self.hook, 0, 1, {}, {}, [])

    def _facts(self) -> list[str]:
        return ["a job of one rank", counted(self._count, "parameter"), "nothing to send"]

    def start(self, bucket: dist.GradBucket) -> NoReturn:
        raise FailedPreconditionError("expected no bucket of DDP's in a job of one rank")

    def statistics(self) -> Statistics:
        self._check_usable()
        return statistics_of({})

    def state_dict(self) -> dict[str, Any]:
        self._check_usable()
        return self._state

    def load_state_dict(self, state: Any) -> None:
        self._check_usable()
        if isinstance(state, dict):
            self._check_format(state)
            self._state = state

    def close(self) -> None:
        self._closed = True


def _saved(hook: str, *values: Any) -> dict[str, Any]:
    names = ("rank", "world_size", "states", "kinds", "buckets")
    return {"format": _FORMAT, "hook": hook, **dict(zip(names, values, strict=True))}


def statistics_of(counters: dict[str, int]) -> Statistics:
    """Adds the compression ratio to counters; missing ones are 0."""
    names = list(Statistics.__annotations__)[:-1]
    made: dict[str, float] = {name: counters.get(name, 0) for name in names}
    sent = made["wire_bytes"]
    made["compression_ratio"] = made["uncompressed_bytes"] / sent if sent else 1.0
    return cast(Statistics, made)


def leave(worker: Worker, modules: Modules, process: int) -> bool | None:
    """Makes the worker leave the job and end; does nothing in a forked process."""
    if os.getpid() != process:
        return None
    worker.post(modules.close)
    worker.stop()
    return True


# At exit, ranks leave first: others might still read the last step's memory.
open_handles: weakref.WeakSet[Handle] = weakref.WeakSet()


def _close_and_log(handle: Handle) -> None:
    try:
        handle.close()
    except Error as error:
        _log.error("the last step of '%s' failed: %s", handle.hook, error)


@atexit.register
def _close_all() -> None:
    for handle in list(open_handles):
        _close_and_log(handle)
