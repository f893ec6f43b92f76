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
from ddphook.torch._worker import Worker

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

    `given` is what PyTorch gives a backend's constructor. `_gloo` is a group that is not
    written in Python, and does the rest. An inherited method would wait for Gloo's queue
    with Python's lock held, while a thread of Gloo's that has locked the queue may wait for
    Python's lock, to release the tensors of a call.
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

    def barrier(self, *args: Any, **named: Any) -> dist.Work:
        """Ends after all earlier reductions, as Gloo's ends after all earlier work."""
        work = self._gloo.barrier(*args, **named)
        runs = [run for run in self._last.values() if not run.done()]
        if not runs:
            return work

        def end() -> bool:
            futures.wait(runs)
            return work.wait()

        waiter = Worker()
        ended = waiter.submit(end)
        waiter.stop()
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

    def _all_reduce(self, how: _How, given: Any) -> Work | None:
        tensors = _listed(given)
        # Gloo adds several tensors of one rank together.
        return self._reduce(how, tensors) if len(tensors) == 1 else None

    def _reduce(self, how: _How, tensors: _Tensors) -> Work:
        """Reduces tensors as one flat tensor, in place."""
        whole, copies = _in_place(tensors, sum(tensor.numel() for tensor in tensors))
        for tensor, part in copies:
            part.copy_(tensor)
        return self._start(how, [whole], tensors, copies)

    def _scatter_parts(self, how: _How, output: Any, inputs: Any) -> Work | None:
        outputs = _listed(output)
        parts = list(inputs if outputs[0] is output else inputs[0])
        sizes = [part.numel() for part in parts]
        is_one = len(outputs) == 1 and len(parts) == self.size()
        if not is_one or outputs[0].numel() != sizes[self.rank()]:
            return None
        # All parts of a module have the size of the largest one.
        whole = outputs[0].new_zeros(len(parts), max(sizes))
        for row, part in zip(whole, parts):
            row[: part.numel()] = part.detach().reshape(-1)
        return self._scatter(how, outputs, whole)

    def _scatter_rows(self, how: _How, output: Any, given: Any) -> Work | None:
        outputs, inputs, ranks = _listed(output), _listed(given), self.size()
        if [each.numel() for each in inputs] != [each.numel() * ranks for each in outputs]:
            return None
        rows = [each.detach().reshape(ranks, each.numel() // ranks) for each in inputs]
        return self._scatter(how, outputs, rows[0] if len(rows) == 1 else torch.cat(rows, 1))

    def _scatter(self, how: _How, outputs: _Tensors, whole: torch.Tensor) -> Work:
        """Reduces a matrix with one row per rank; the outputs get this rank's row."""
        check_scatters(self._pipeline)
        if whole.numel() == 0:
            whole = whole.new_zeros(self.size(), 1)
        part, copies = _in_place(outputs, whole.shape[1])
        if _private.storage_of(part) == _private.storage_of(whole):
            whole = whole.clone()  # A module does not reduce into its input.
        return self._start(how, [whole, part], outputs, copies)

    def _start(
        self,
        how: _How,
        arrays: _Tensors,
        results: _Tensors,
        copies: Sequence[tuple[torch.Tensor, torch.Tensor]],
    ) -> Work:
        """Starts a reduction of the first array, or a reduce-scatter to the second one."""
        if not self._is_usable:
            raise FailedPreconditionError("the process group was destroyed")
        kind, timeout = how
        names, shape, dtype = ("tensor",), (arrays[0].numel(),), arrays[0].dtype
        layout: Any = _bucket.Layout(0, names, (shape,), dtype, kind=kind)
        if len(arrays) > 1:
            layout = _bucket.Scattered(0, (names,), shape, self.size(), dtype, kind, keeps=True)
        text = layout.text(_bucket.WHOLE_GROUP)
        limit = self._timeout_s if timeout in _UNSET else timeout_seconds(timeout)
        session = _session.sessions_of(self).open(self, _device.HOST, limit)
        key = _session.Key(f"process group {self.group_name}", text, self._pipeline)
        run = self._last[limit] = session.run(key, arrays, copies)
        return Work(run, results)


def _passed_on(name: str) -> Any:
    return lambda self, *args, **named: getattr(self._gloo, name)(*args, **named)


def _reduction(name: str, reduce: Any) -> Any:
    """Makes a method that passes a call on if a module cannot reduce its tensors.

    `reduce` takes `_How` and the arguments with tensors, the output before the input, whose
    names differ between methods. It returns None if only Gloo can.
    """
    count = reduce.__code__.co_argcount - 2
    gloos = _passed_on(name)

    def method(self: Group, *args: Any, **named: Any) -> dist.Work:
        names = sorted(named.keys() - {"opts", "op", "timeout"}, reverse=True)
        given = [*args[:count], *(named[name] for name in names)]
        op, timeout = [*args[count:], None, None][:2]
        op = op or named.get("opts", named.get("op"))
        timeout = getattr(op, "timeout", timeout or named.get("timeout"))
        kind = _kind(_private.pytree.tree_leaves(given), op)
        work = reduce(self, (kind, timeout), *given) if kind else None
        return work or gloos(self, *args, **named)

    return method


for _name in _private.PASSED_ON:
    setattr(Group, _name, _passed_on(_name))
for _name, _reduce in {
    "allreduce": Group._all_reduce,
    "allreduce_coalesced": Group._reduce,
    "reduce_scatter": Group._scatter_parts,
    "reduce_scatter_single": Group._scatter_rows,
    "reduce_scatter_single_coalesced": Group._scatter_rows,
    # Older names of the last two.
    "_reduce_scatter_base": Group._scatter_rows,
    "reduce_scatter_tensor_coalesced": Group._scatter_rows,
}.items():
    setattr(Group, _name, _reduction(_name, _reduce))


def _listed(tensors: Any) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _kind(tensors: _Tensors, given: Any) -> str | None:
    """Returns how a module reduces these tensors, or None if only Gloo can."""
    op = getattr(given, "reduceOp", given or dist.ReduceOp.SUM)
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
    return kinds[0] if kinds and are_ours else None


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
    sizes = [tensor.numel() for tensor in tensors]
    parts = whole[: sum(sizes)].split(sizes)
    return whole, [(t.detach(), part.view(t.shape)) for t, part in zip(tensors, parts)]


def _create(given: Any, options: Any) -> Group:
    """Makes a process group; PyTorch calls it on each of its ranks."""
    if not hasattr(dist.ProcessGroup, "reduce_scatter_single"):
        raise UnsupportedError(
            "expected PyTorch 2.15 for a process group with a hook, but found "
            f"{torch.__version__}"
        )
    options = Options("allreduce") if options is None else options
    if not isinstance(options, Options):
        raise InvalidArgumentError(
            f"expected pg_options=ddphook.torch.Options(hook=…), but got {options!r}"
        )
    return Group(given, options)


dist.Backend.register_backend(_NAME, _create, extended_api=True, devices=["cpu"])
