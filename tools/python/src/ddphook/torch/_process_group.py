# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The backend ``"ddphook"`` of ``torch.distributed``.

A process group whose reductions of floating-point tensors are compiled modules, each of
one size. Gloo does everything else. Modules and Gloo have separate connections: their
order does not matter, and each has the order of the calls, which is the same on all
ranks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ddphook._errors import DeadlineExceededError, FailedPreconditionError
from ddphook._errors import InvalidArgumentError, UnsupportedError
from ddphook.torch import _bucket, _device, _private, _session
from ddphook.torch._hooks import AnyHook, AnyWrapper, check_scatters, resolve_for_group
from ddphook.torch._rendezvous import Meeting, timeout_seconds

_NAME = "ddphook"
_KINDS = ((dist.ReduceOp.SUM, "sum"), (dist.ReduceOp.AVG, "mean"))
_UNSET = (None, dist.AllreduceOptions().timeout)

_Tensors = Sequence[torch.Tensor]
# "sum" or "mean", and how long the call lets a rank wait for others, if it says so.
_How = tuple[str, Any]


class Options:
    """The hook of a process group with the backend ``"ddphook"``.

    For ``pg_options`` of ``torch.distributed.new_group`` and ``init_process_group``, and
    for ``backend_override`` of ``init_device_mesh``. All ranks give equal options.

    Parameters
    ----------
    hook, wrapper, **options
        As for ``register``, but a process group cannot have a hook with states, such as
        PowerSGD or error feedback, nor ``exempt``.
    timeout
        How long any operation waits for another rank, also one of Gloo's: seconds or a
        ``timedelta``; by default the process group's own ``timeout``.

    Raises
    ------
    InvalidArgumentError
        There is no such hook or option, or a value has a wrong type or is out of range.
    UnsupportedError
        The hook needs to know which gradient it reduces.
    """

    def __init__(
        self,
        hook: AnyHook | None = None,
        wrapper: AnyWrapper | None = None,
        *,
        timeout: timedelta | float | None = None,
        **options: Any,
    ) -> None:
        self._hook = resolve_for_group(hook, wrapper, options).pipeline()
        # init_device_mesh gives it to the group.
        self._timeout: timedelta | None = None
        if timeout is not None:
            self._timeout = timedelta(seconds=timeout_seconds(timeout))

    def __iter__(self) -> Iterator[Any]:
        """Yields the two values that ``init_device_mesh`` expects for a dimension."""
        return iter((_NAME, self))

    @property
    def hook(self) -> str:
        """The hook with its options, in the compiler's syntax."""
        return self._hook

    def __repr__(self) -> str:
        return f"<ddphook.torch.Options: {self._hook}>"


class Work(dist.Work):
    """A reduction in flight; `results` are the tensors that it changes."""

    def __init__(self, run: futures.Future[Any], results: _Tensors) -> None:
        super().__init__()
        self._run = run
        self._results = list(results)

    def is_completed(self) -> bool:
        return self._run.done()

    def is_success(self) -> bool:
        return self._run.done() and self._run.exception() is None

    def exception(self) -> BaseException | None:
        return self._run.exception() if self._run.done() else None

    def result(self) -> list[torch.Tensor]:
        return self._results

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits for the end, for ever by default; raises the exception of the run."""
        limit = timeout.total_seconds()
        try:
            error = self._run.exception(limit or None)
        except futures.TimeoutError:
            raise DeadlineExceededError(
                f"a reduction has not ended after {limit:g} s"
            ) from None
        if error is not None:
            # All later runs raise it as well: its traceback must not grow.
            raise error.with_traceback(None)
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns a future of the results.

        Its callbacks have a thread of their own. In the reductions' thread, a callback
        that waits for another reduction, as PyTorch's PowerSGD does, would never end.
        """
        ended: torch.futures.Future[Any] = torch.futures.Future()

        def end(_: Any) -> None:
            threading.Thread(
                target=ended.set_result, args=(self._results,), daemon=True
            ).start()

        self._run.add_done_callback(end)
        # A C++ future, on which DDP waits, fails only if a callback raises.
        return ended.then(lambda _: self.wait() and self._results)


class Group(dist.ProcessGroup):
    """A process group that reduces with a hook, for ranks that have equal options.

    `given` is what PyTorch gives a backend's constructor. All other calls
    go to `_gloo`, a group that is not written in Python. PyTorch would call an inherited
    method with Python's lock held. The method needs the lock of Gloo's queue, and a thread of Gloo's may hold that one while it releases tensors, for which it needs Python's.
    """

    def __init__(self, given: Any, options: Options) -> None:
        super().__init__(given.store, given.group_rank, given.group_size)
        limit = options._timeout or given.timeout
        self._timeout_s = limit.total_seconds()
        self._pipeline = _bucket.pipeline(options.hook)
        self._last: dict[float, futures.Future[Any]] = {}  # By timeout.
        self._is_usable = True
        meeting = Meeting(self, self._timeout_s, given.store)
        meeting.check_equal("the hook", options.hook)
        self._gloo = _private.use_gloo(self, given.store, limit)

    def allreduce(self, *args: Any, **named: Any) -> dist.Work:
        given, asked = _given(args, named, 1)
        tensors = _listed(given)
        how = _how(tensors, asked)
        # Gloo adds several tensors of one rank together.
        if how is None or len(tensors) != 1:
            return self._gloo.allreduce(*args, **named)
        return self._reduce(how, tensors)

    def allreduce_coalesced(self, *args: Any, **named: Any) -> dist.Work:
        tensors, asked = _given(args, named, 1)
        how = _how(tensors, asked)
        if how is None:
            return self._gloo.allreduce_coalesced(*args, **named)
        return self._reduce(how, tensors)

    def reduce_scatter(self, *args: Any, **named: Any) -> dist.Work:
        output, inputs, asked = _given(args, named, 2)
        outputs = _listed(output)
        parts = list(inputs if outputs[0] is output else inputs[0])
        how = _how([*outputs, *parts], asked)
        sizes = [part.numel() for part in parts]
        is_whole = len(outputs) == 1 and len(parts) == self.size()
        if how is None or not is_whole or outputs[0].numel() != sizes[self.rank()]:
            return self._gloo.reduce_scatter(*args, **named)
        # All parts of a module have the size of the largest one.
        whole = outputs[0].new_zeros(len(parts), max(sizes))
        for row, part in zip(whole, parts):
            row[: part.numel()] = part.detach().reshape(-1)
        return self._scatter(how, outputs, whole)

    def reduce_scatter_single(self, *args: Any, **named: Any) -> dist.Work:
        output, whole, asked = _given(args, named, 2)
        how = _how([output, whole], asked)
        if how is None or whole.numel() != output.numel() * self.size():
            return self._gloo.reduce_scatter_single(*args, **named)
        return self._scatter(how, [output], self._rows(whole))

    def reduce_scatter_single_coalesced(self, *args: Any, **named: Any) -> dist.Work:
        outputs, inputs, asked = _given(args, named, 2)
        how = _how([*outputs, *inputs], asked)
        sizes = [output.numel() * self.size() for output in outputs]
        if how is None or sizes != [each.numel() for each in inputs]:
            return self._gloo.reduce_scatter_single_coalesced(*args, **named)
        return self._scatter(how, outputs, torch.cat(list(map(self._rows, inputs)), 1))

    # Older names.
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def barrier(self, *args: Any, **named: Any) -> dist.Work:
        """Ends after all earlier reductions, as Gloo's ends after all earlier work."""
        work = self._gloo.barrier(*args, **named)
        runs = [run for run in self._last.values() if not run.done()]
        if not runs:
            return work
        ended: futures.Future[Any] = futures.Future()

        def finish() -> None:
            futures.wait(runs)
            try:
                ended.set_result(work.wait())
            except BaseException as error:  # noqa: BLE001 - raised by wait().
                ended.set_exception(error)

        threading.Thread(target=finish, daemon=True).start()
        return Work(ended, [])

    def set_timeout(self, timeout: timedelta) -> None:
        self._gloo.set_timeout(timeout)
        self._timeout_s = timeout_seconds(timeout)

    def split_group(self, *_: Any, **__: Any) -> Any:
        raise UnsupportedError(
            "a process group of the backend 'ddphook' cannot be split; use "
            "torch.distributed.new_group with pg_options"
        )

    def shutdown(self) -> None:
        """Leaves the job, after its reductions; does not wait for other ranks."""
        self._is_usable = False
        _session.leave(self)
        self._gloo.shutdown()

    def abort(self) -> None:
        self._is_usable = False
        _session.leave(self, finish=False)
        self._gloo.abort()

    def _rows(self, whole: torch.Tensor) -> torch.Tensor:
        """Returns a tensor as a matrix with one row per rank."""
        return whole.detach().reshape(self.size(), whole.numel() // self.size())

    def _reduce(self, how: _How, tensors: _Tensors) -> Work:
        """Reduces tensors as one flat tensor, in place."""
        kind, timeout = how
        size = sum(tensor.numel() for tensor in tensors)
        whole, copies = _in_place(tensors, size)
        for tensor, part in copies:
            part.copy_(tensor)
        reduced = _bucket.Reduced(kind, (whole.numel(),), whole.dtype, "tensor")
        text = _bucket.flat_reductions_text([reduced])
        return self._start(text, [whole], tensors, copies, timeout)

    def _scatter(self, how: _How, outputs: _Tensors, whole: torch.Tensor) -> Work:
        """Reduces a matrix with one row per rank; the outputs get this rank's row."""
        kind, timeout = how
        check_scatters(self._pipeline)
        if whole.numel() == 0:
            whole = whole.new_zeros(self.size(), 1)
        part, copies = _in_place(outputs, whole.shape[1])
        reduced = _bucket.Reduced(kind, (whole.numel(),), whole.dtype, "tensor")
        text = _bucket.scatter_text(reduced, self.size())
        return self._start(text, [whole, part], outputs, copies, timeout)

    def _start(
        self,
        text: str,
        arrays: _Tensors,
        results: _Tensors,
        copies: Sequence[tuple[torch.Tensor, torch.Tensor]],
        timeout: Any,
    ) -> Work:
        from ddphook.torch import _ops  # noqa: F401 - leaves the job when the process exits.

        if not self._is_usable:
            raise FailedPreconditionError("the process group was destroyed")
        limit = self._timeout_s if timeout in _UNSET else timeout_seconds(timeout)
        session = _session.sessions_of(self).open(self, _device.HOST, limit)
        key = _session.Key(f"process group {self.group_name}", text, self._pipeline)
        run = self._last[limit] = session.run(key, arrays, copies)
        return Work(run, results)


def _passed_on(name: str) -> Any:
    return lambda self, *args, **named: getattr(self._gloo, name)(*args, **named)


for _name in _private.PASSED_ON:
    setattr(Group, _name, _passed_on(_name))


def _listed(tensors: Any) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _given(args: Sequence[Any], named: dict[str, Any], count: int) -> list[Any]:
    """Returns the tensors of a call, and its operation with its timeout.

    There are `count` arguments with tensors, the output before the input. Their names
    differ between methods.
    """
    names = sorted(named.keys() - {"opts", "op", "timeout"}, reverse=True)
    op, timeout = [*args[count:], None, None][:2]
    op = op or named.get("opts", named.get("op"))
    timeout = getattr(op, "timeout", timeout or named.get("timeout"))
    return [*args[:count], *(named[name] for name in names), (op, timeout)]


def _how(tensors: _Tensors, asked: tuple[Any, Any]) -> _How | None:
    """Returns how a module reduces these tensors, or None if only Gloo can."""
    op, timeout = asked
    op = getattr(op, "reduceOp", op or dist.ReduceOp.SUM)
    kinds = [kind for known, kind in _KINDS if op == known]
    are_ours = tensors and all(
        tensor.dtype == tensors[0].dtype in _bucket.ELEMENT_TYPES
        and tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        # The memory of others, such as fake ones, is not theirs.
        and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        and not _private.is_view_of_complex(tensor)
        for tensor in tensors
    )
    return (kinds[0], timeout) if kinds and are_ours else None


def _in_place(
    tensors: _Tensors, size: int
) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Returns a flat array of tensors, and the copies from its parts to them, if any.

    The array is that of the only tensor if possible. It has at least `size` elements, and
    is never empty.
    """
    first = tensors[0]
    if len(tensors) == 1 and first.is_contiguous() and first.numel() == size > 0:
        return first, []
    if any(_private.is_expanded(tensor) for tensor in tensors):
        raise InvalidArgumentError(
            "expected tensors whose elements have memory of their own, but got an expanded "
            "one; clone it"
        )
    whole = first.new_zeros(_bucket.flat_size(size))
    ends = torch.tensor([tensor.numel() for tensor in tensors]).cumsum(0).tolist()
    parts = [
        (tensor.detach(), whole[end - tensor.numel() : end].view(tensor.shape))
        for tensor, end in zip(tensors, ends)
    ]
    return whole, parts


def _create(given: Any, options: Any) -> Group:
    """Makes a process group; PyTorch calls it on each of its ranks."""
    if not hasattr(dist.ProcessGroup, "reduce_scatter_single"):
        raise UnsupportedError(
            "expected PyTorch 2.15 for a process group with a hook, but found "
            f"{torch.__version__}"
        )
    if options is None:
        options = Options("allreduce")
    if not isinstance(options, Options):
        raise InvalidArgumentError(
            f"expected pg_options=ddphook.torch.Options(hook=…), but got {options!r}"
        )
    return Group(given, options)


dist.Backend.register_backend(_NAME, _create, extended_api=True, devices=["cpu"])
