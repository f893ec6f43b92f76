# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operators that compiled graphs call: start a reduction, wait for it.

Everything that a reduction depends on is an argument, so that a graph from Inductor's
cache runs in a process that never compiled it. The ticket of a reduction is declared as
an alias of its gradients, so that memory planning keeps their memory until the ticket
has been used. The wait cannot name the gradients again instead, because Inductor may
compute them twice.

A ticket is a number in the host's memory, even for gradients on a device, whose streams
are ordered by events: the host waits until a module is in the device's queue, but never
for the device. Neither operator can be part of a CUDA graph.

A step that ends with an exception waits for none of its tickets. The finalizer of a
ticket's memory then abandons its reduction.
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
    "start(Tensor(a)[] gradients, int parts, str owner, str module, str pipeline, "
    "str group, float timeout) -> Tensor(a)",
    tags=(torch.Tag.needs_contiguous_strides, torch.Tag.cudagraph_unsafe),
)
# The averages have consecutive shapes in `sizes`, with `dimensions` numbers each. `dtype`
# is a name: graphs of PyTorch 2.8 contain the numbers of dtypes.
_library.define(
    "wait(Tensor ticket, int[] sizes, int[] dimensions, str dtype, "
    "Device device) -> Tensor[]",
    tags=(torch.Tag.cudagraph_unsafe,),
)

# The alignment that Inductor expects of memory from an operator, in bytes.
_ALIGNMENT = 16


class _Reduction(NamedTuple):
    """A reduction in flight, with all memory that it may still use.

    `ended` is a future of its `Device.end`. `whole` and `places` are the results of
    `Device.pack`; the places become averages.
    """

    session: Session
    ended: Future[Any]
    whole: list[torch.Tensor]
    places: list[torch.Tensor]


# Reductions that nobody has waited for yet, by their tickets.
_pending: dict[int, _Reduction] = {}
_tickets = itertools.count()
# The owners of all reductions that have begun in this process.
owners: set[str] = set()


# The characters that need no escape in a C++ string, without the escape character.
_PLAIN = "".join(set(string.printable) - set(string.whitespace) - set('"\\%')) + " "


def quoted(module: str) -> str:
    """Encodes a module's text as an argument: Inductor copies it into C++ unescaped."""
    return urllib.parse.quote(module, safe=_PLAIN)


def close() -> None:
    """Leaves the jobs of all compiled steps and frees their memory.

    Collective. A step that runs afterwards starts again, without its states. If it
    is not called, the same happens when the process exits. After leaving the jobs,
    raises a device's failure that no step has raised.
    """
    try:
        _session.close_all()
    finally:
        # Must come last: a device may still use their memory.
        _pending.clear()


@atexit.register
def _close_at_exit() -> None:
    try:
        close()
    except Error as error:
        _log.error("the last compiled step failed: %s", error)


def _start(
    gradients: list[torch.Tensor],
    parts: int,
    owner: str,
    module: str,
    pipeline: str,
    group: str,
    timeout: float,
) -> torch.Tensor:
    """Begins to reduce gradients of one type, of which this rank gets one of `parts`.

    The module is `quoted`.
    """
    owners.add(owner)
    session = _session.session_of(group, timeout, gradients[0].device)
    session.finish_given_up()
    dense = [gradient.contiguous() for gradient in gradients]
    # Packs here rather than on the session's thread: that may still be busy with the
    # previous bucket, and its link would be idle while it packs this one.
    whole, places = session.device.pack(dense, parts)
    key = _session.Key(owner, urllib.parse.unquote(module), pipeline)
    ended = session.run(key, whole)
    return _new_ticket(_Reduction(session, ended, whole, places))


def starts_in(*modules: torch.nn.Module) -> bool:
    """Returns whether graphs among the modules start reductions."""
    graphs = (each.graph for each in modules if isinstance(each, torch.fx.GraphModule))
    start = torch.ops.ddphook.start.default
    return any(node.target is start for graph in graphs for node in graph.nodes)


def _new_ticket(reduction: _Reduction) -> torch.Tensor:
    """Returns a reduction's ticket; releasing the ticket's memory abandons the reduction."""
    number = next(_tickets)
    memory = (ctypes.c_char * (2 * _ALIGNMENT))()
    begin = -ctypes.addressof(memory) % _ALIGNMENT
    ticket = torch.frombuffer(memory, dtype=torch.int64, count=1, offset=begin)[0]
    ticket.fill_(number)
    _pending[number] = reduction
    weakref.finalize(memory, _give_up, number).atexit = False
    return ticket


def _give_up(number: int) -> None:
    """Hands a reduction that nobody can await any more to its session.

    Called by a finalizer, at any time in any thread.
    """
    if (reduction := _pending.pop(number, None)) is not None:
        reduction.session.give_up([*reduction.whole, *reduction.places])


def _wait(ticket: torch.Tensor, *_: Any) -> list[torch.Tensor]:
    number = int(ticket)
    reduction = _pending.pop(number, None)
    if reduction is None:
        raise FailedPreconditionError(
            f"expected the ticket of a reduction in flight, but {number} was already "
            "waited for, or ddphook.torch.close() was called; wait once for each start"
        )
    session = reduction.session
    try:
        session.device.wait(session.end_of(reduction.ended))
    except BaseException:
        # The session keeps its memory until the job has been left.
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
    dtype: str,
    device: torch.device,
) -> list[torch.Tensor]:
    left = iter(sizes)
    shapes = [list(itertools.islice(left, count)) for count in dimensions]
    own = {"dtype": getattr(torch, dtype), "device": device}
    return [ticket.new_empty(shape, **own) for shape in shapes]


_library.impl("start", _start, "CPU")
_library.impl("start", _start, "CUDA")
_library.impl("wait", _wait, "CPU")
torch.library.register_fake("ddphook::start", _start_shape, lib=_library)
torch.library.register_fake("ddphook::wait", _wait_shape, lib=_library)
