# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operators that compiled graphs call: start a reduction, wait for it.

Everything that a reduction depends on is an argument, so that a graph that
Inductor finds in its cache runs in a process that never saw it compiled. The
ticket of a reduction is declared as an alias of its gradients: whoever plans
memory keeps theirs for the reduction until the ticket has been used. To name them
again in the wait would not do, because Inductor may compute them twice.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
from concurrent.futures import Future
from typing import Any

import torch

from ddphook._errors import FailedPreconditionError
from ddphook.torch import _session
from ddphook.torch._flat_memory import FlatMemory

_library = torch.library.Library("ddphook", "DEF")
_library.define(
    "start(Tensor(a)[] gradients, int[] flats, str owner, str module, str pipeline, "
    "str group, float timeout) -> Tensor(a)",
    tags=(torch.Tag.needs_contiguous_strides,),
)
# The averages have `types`, and the shapes that lie in `sizes` one behind the
# other, with `dimensions` numbers each.
_library.define(
    "wait(Tensor ticket, int[] sizes, int[] dimensions, ScalarType[] types) -> Tensor[]"
)

# What Inductor expects of memory that an operator returns, in bytes.
_ALIGNMENT = 16

# Reductions that nobody has waited for yet, by their tickets.
_pending: dict[int, tuple[Future[None], list[torch.Tensor]]] = {}
_tickets = itertools.count()
_memory = FlatMemory()


def close() -> None:
    """Leaves the jobs of all compiled graphs and frees their memory.

    Collective. A graph that runs afterwards begins anew, without its states.
    Without this call it happens when the process exits.
    """
    _pending.clear()
    _session.close_all()
    _memory.clear()


atexit.register(close)


def _start(
    gradients: list[torch.Tensor],
    flats: list[int],
    owner: str,
    module: str,
    pipeline: str,
    group: str,
    timeout: float,
) -> torch.Tensor:
    """Begins to reduce gradients, the number of whose flat array is in `flats`."""
    ticket = next(_tickets)
    dense = [gradient.contiguous() for gradient in gradients]
    whole, places = _memory.take(dense, flats)
    # Here, and not where the reduction runs: that may still be busy with the
    # bucket before, and its link would be idle while this one is packed.
    for gradient, place in zip(dense, places):
        ctypes.memmove(place.data_ptr(), gradient.data_ptr(), gradient.nbytes)
    key = _session.Key(owner, module, pipeline)
    session = _session.session_of(group, timeout)
    _pending[ticket] = session.run(key, whole), places
    return torch.tensor(ticket)


def _wait(ticket: torch.Tensor, *_: Any) -> list[torch.Tensor]:
    number = int(ticket)
    if number not in _pending:
        raise FailedPreconditionError(
            f"expected the ticket of a reduction that is under way, but {number} was "
            "waited for already, or ddphook.torch.close() came in between; wait once "
            "for each start"
        )
    done, averages = _pending.pop(number)
    done.result()
    return [
        average if average.data_ptr() % _ALIGNMENT == 0 else average.clone()
        for average in averages
    ]


def _start_shape(gradients: list[torch.Tensor], *_: Any) -> torch.Tensor:
    return gradients[0].new_empty((), dtype=torch.int64)


def _wait_shape(
    ticket: torch.Tensor,
    sizes: list[int],
    dimensions: list[int],
    types: list[torch.dtype],
) -> list[torch.Tensor]:
    left = iter(sizes)
    shapes = [list(itertools.islice(left, count)) for count in dimensions]
    return [
        ticket.new_empty(shape, dtype=dtype)
        for shape, dtype in zip(shapes, types, strict=True)
    ]


_library.impl("start", _start, "CPU")
_library.impl("wait", _wait, "CPU")
torch.library.register_fake("ddphook::start", _start_shape, lib=_library)
torch.library.register_fake("ddphook::wait", _wait_shape, lib=_library)
