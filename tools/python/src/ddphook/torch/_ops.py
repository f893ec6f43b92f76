# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operators that compiled graphs call: start a reduction, wait for it.

Everything that a reduction depends on is an argument, so that a graph that
Inductor finds in its cache runs in a process that never saw it compiled. The
ticket of a reduction is declared as an alias of its gradients: whoever plans
memory keeps theirs for the reduction until the ticket has been used. To name them
again in the wait would not do, because Inductor may compute them twice.

A ticket is a number in the host's memory, also for gradients of a device, whose
streams are ordered by events: the host waits until a module is in the device's
queue, never for the device. Neither operator can be a part of a CUDA graph.

A step that ends by an exception waits for none of its tickets. Their memory is that
of the reductions, so that the end of a ticket's memory gives up its reduction.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import logging
import string
import urllib.parse
import weakref
from concurrent.futures import Future
from typing import Any, NamedTuple

import torch

from ddphook._errors import Error, FailedPreconditionError
from ddphook.torch import _session
from ddphook.torch._session import Session

_log = logging.getLogger("ddphook")

_library = torch.library.Library("ddphook", "DEF")
_library.define(
    "start(Tensor(a)[] gradients, int[] flats, str owner, str module, str pipeline, "
    "str group, float timeout) -> Tensor(a)",
    tags=(torch.Tag.needs_contiguous_strides, torch.Tag.cudagraph_unsafe),
)
# The averages have `types`, and the shapes that lie in `sizes` one behind the
# other, with `dimensions` numbers each.
_library.define(
    "wait(Tensor ticket, int[] sizes, int[] dimensions, ScalarType[] types, "
    "Device device) -> Tensor[]",
    tags=(torch.Tag.cudagraph_unsafe,),
)

# What Inductor expects of memory that an operator returns, in bytes.
_ALIGNMENT = 16


class _Reduction(NamedTuple):
    """One that is under way, with all memory that it may still use.

    Attributes
    ----------
    session
        In which it is.
    ended
        What `Device.end` returns for it.
    whole, places
        Of `Device.pack`; the places become averages.
    """

    session: Session
    ended: Future[Any]
    whole: list[torch.Tensor]
    places: list[torch.Tensor]


# Reductions that nobody has waited for yet, by their tickets.
_pending: dict[int, _Reduction] = {}
_tickets = itertools.count()
# Of all reductions that have begun in this process.
owners: set[str] = set()


# What a string of C++ may have as it is, and what begins a quotation.
_PLAIN = "".join(set(string.printable) - set(string.whitespace) - set('"\\%')) + " "


def quoted(module: str) -> str:
    """A module's text as an argument: Inductor puts it into C++ as it is."""
    return urllib.parse.quote(module, safe=_PLAIN)


def close() -> None:
    """Leaves the jobs of all compiled graphs and frees their memory.

    Collective. A graph that runs afterwards begins anew, without its states.
    Without this call it happens when the process exits. Raises a failure of a device
    that no step has raised, when it has left them.
    """
    try:
        _session.close_all()
    finally:
        # No sooner: a device may still be at work on their memory.
        _pending.clear()


@atexit.register
def _close_at_exit() -> None:
    try:
        close()
    except Error as error:
        _log.error("the last compiled step failed: %s", error)


def _start(
    gradients: list[torch.Tensor],
    flats: list[int],
    owner: str,
    module: str,
    pipeline: str,
    group: str,
    timeout: float,
) -> torch.Tensor:
    """Begins to reduce gradients, the number of whose flat array is in `flats`.

    The module is `quoted`.
    """
    owners.add(owner)
    session = _session.session_of(group, timeout, gradients[0].device)
    session.finish_given_up()
    dense = [gradient.contiguous() for gradient in gradients]
    # Here, and not where the reduction runs: that may still be busy with the
    # bucket before, and its link would be idle while this one is packed.
    whole, places = session.device.pack(dense, flats)
    key = _session.Key(owner, urllib.parse.unquote(module), pipeline)
    ended = session.run(key, whole)
    return _new_ticket(_Reduction(session, ended, whole, places))


def _new_ticket(reduction: _Reduction) -> torch.Tensor:
    """The number of a reduction, which is given up with the last tensor that has it."""
    number = next(_tickets)
    memory = (ctypes.c_char * (2 * _ALIGNMENT))()
    begin = -ctypes.addressof(memory) % _ALIGNMENT
    ticket = torch.frombuffer(memory, dtype=torch.int64, count=1, offset=begin)[0]
    ticket.fill_(number)
    _pending[number] = reduction
    weakref.finalize(memory, _give_up, number).atexit = False
    return ticket


def _give_up(number: int) -> None:
    """Leaves a reduction that nobody can wait for any more to its session.

    A finalizer, which may run at any time in any thread.
    """
    reduction = _pending.pop(number, None)
    if reduction is not None:
        reduction.session.give_up([*reduction.whole, *reduction.places])


def _wait(ticket: torch.Tensor, *_: Any) -> list[torch.Tensor]:
    number = int(ticket)
    reduction = _pending.pop(number, None)
    if reduction is None:
        raise FailedPreconditionError(
            f"expected the ticket of a reduction that is under way, but {number} was "
            "waited for already, or ddphook.torch.close() came in between; wait once "
            "for each start"
        )
    session = reduction.session
    try:
        session.device.wait(session.end_of(reduction.ended))
    except BaseException:
        # Its memory is kept until the job has been left.
        session.give_up([*reduction.whole, *reduction.places])
        raise
    return [
        average if average.data_ptr() % _ALIGNMENT == 0 else average.clone()
        for average in reduction.places
    ]


def _start_shape(gradients: list[torch.Tensor], *_: Any) -> torch.Tensor:
    return gradients[0].new_empty((), dtype=torch.int64, device="cpu")


def _wait_shape(
    ticket: torch.Tensor,
    sizes: list[int],
    dimensions: list[int],
    types: list[torch.dtype],
    device: torch.device,
) -> list[torch.Tensor]:
    left = iter(sizes)
    shapes = [list(itertools.islice(left, count)) for count in dimensions]
    return [
        ticket.new_empty(shape, dtype=dtype, device=device)
        for shape, dtype in zip(shapes, types, strict=True)
    ]


_library.impl("start", _start, "CPU")
_library.impl("start", _start, "CUDA")
_library.impl("wait", _wait, "CPU")
torch.library.register_fake("ddphook::start", _start_shape, lib=_library)
torch.library.register_fake("ddphook::wait", _wait_shape, lib=_library)
