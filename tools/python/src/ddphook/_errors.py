# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exceptions, one for each status of the runtime.

All of them are ``RuntimeError``, so that code that catches the exceptions PyTorch
raises from ``backward()`` also catches these. Some are also the exception that Python
raises for such a failure; an ``OSError`` among them has no ``errno``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

__all__ = [
    "AbortedError",
    "BadEnvironmentError",
    "CompileError",
    "DataLossError",
    "DeadlineExceededError",
    "Diagnostic",
    "Error",
    "FailedPreconditionError",
    "InputOutputError",
    "InternalError",
    "InvalidArgumentError",
    "PeerLostError",
    "PlanMismatchError",
    "ResourceExhaustedError",
    "UnsupportedError",
]


class Error(RuntimeError):
    """Anything that ddphook reports.

    Attributes
    ----------
    status
        The runtime's name for the failure (``"PEER_LOST"``).
    """

    status = "INTERNAL"

    def __init_subclass__(cls, status: str | None = None) -> None:
        cls.status = status or cls.status


class InvalidArgumentError(Error, ValueError, status="INVALID_ARGUMENT"):
    """A value that the callee does not accept; nothing has changed."""


class FailedPreconditionError(Error, status="FAILED_PRECONDITION"):
    """A call in a state that does not allow it; nothing has changed."""


class UnsupportedError(Error, status="UNSUPPORTED"):
    """Something that ddphook, or this build of it, does not do."""


class ResourceExhaustedError(Error, status="RESOURCE_EXHAUSTED"):
    """Memory, shared memory, file descriptors or disk are used up."""


class DataLossError(Error, status="DATA_LOSS"):
    """A file or a message is malformed or truncated."""


class InputOutputError(Error, OSError, status="IO_ERROR"):
    """The operating system refused an operation."""


class BadEnvironmentError(Error, status="BAD_ENVIRONMENT"):
    """Environment variables contradict each other or are incomplete."""


class PlanMismatchError(Error, status="PLAN_MISMATCH"):
    """The ranks registered different hooks, or have different models."""


class PeerLostError(Error, ConnectionError, status="PEER_LOST"):
    """Another rank died or closed its connection; restart the job."""


class DeadlineExceededError(Error, TimeoutError, status="DEADLINE_EXCEEDED"):
    """Another rank never arrived, or stopped; restart the job."""


class AbortedError(Error, status="ABORTED"):
    """Another rank failed first; the message has the reason."""


class InternalError(Error):
    """A bug in ddphook."""


# The classes above are in the order of ddphook_status_t, after DDPHOOK_OK.
_BY_STATUS = tuple(Error.__subclasses__())


@dataclasses.dataclass(frozen=True)
class Diagnostic:
    """A message of the compiler about a location in a module.

    Attributes
    ----------
    severity
        ``"error"``, ``"warning"``, ``"note"`` or ``"remark"``.
    message
        One sentence.
    file, line, column
        The location, counted from 1; an empty name and zeros if there is none.
    notes
        Attached notes, such as other locations.
    """

    severity: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    notes: tuple[Diagnostic, ...] = ()


class CompileError(Error, status="INVALID_ARGUMENT"):
    """The compiler refused a module; the message holds its errors.

    Attributes
    ----------
    diagnostics
        The errors one by one, with their locations and notes, and warnings.
    """

    def __init__(self, message: str, diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__(message)
        self.diagnostics = tuple(diagnostics)


def from_status(status: int, message: str) -> Error:
    """Returns the exception for a ``ddphook_status_t`` that is not ``DDPHOOK_OK``."""
    known = 1 <= status <= len(_BY_STATUS)
    return (_BY_STATUS[status - 1] if known else InternalError)(message)
