# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiler in this process: parses modules, runs passes, returns text or code.

It has the dialects and passes of ddphook and of MLIR, and the stand-ins for StableHLO
and Shardy. Modules from other packages' MLIR (``jaxlib.mlir``, ``torch_mlir``) come in
and go out as text or bytecode: MLIR objects of one library are unknown to another.

>>> module = ddphook.compiler.parse(text)
>>> module.run("ddp-import-stablehlo,ddp-stablehlo-pipeline{hook=fp16}")
>>> print(module)

Threads may use different modules at the same time; only one thread may use a module.
"""

from __future__ import annotations

import os
from pathlib import Path

from ddphook import _compiler
from ddphook._errors import CompileError, Diagnostic, FailedPreconditionError

__all__ = ["CompileError", "Diagnostic", "Module", "parse", "parse_file"]


def parse(source: str | bytes) -> Module:
    """Reads a module.

    Parameters
    ----------
    source
        MLIR's textual form, or bytecode. A text without a surrounding ``module`` is
        also read as one module.

    Raises
    ------
    CompileError
        The source is malformed, or an operation in it is invalid.
    UnsupportedError
        The compiler's library is not installed.
    """
    return Module(_compiler.Parsed(source))


def parse_file(path: str | os.PathLike[str]) -> Module:
    """Reads a module from a file, as `parse`.

    Raises
    ------
    OSError
        The file cannot be read.
    CompileError, UnsupportedError
        As `parse`.
    """
    return parse(Path(path).read_bytes())


class Module:
    """An MLIR module, made by `parse`.

    Its memory is freed with the last reference to it, at the end of ``with``, or by
    `close`; any later call raises FailedPreconditionError. ``str()`` returns its text.
    """

    def __init__(self, parsed: _compiler.Parsed) -> None:
        self._parsed = parsed

    def run(self, passes: str) -> Module:
        """Runs passes on the module, in place.

        Parameters
        ----------
        passes
            A pipeline as ``--pass-pipeline`` takes it, with or without
            ``builtin.module(…)`` around it: ``"ddp-pipeline{hook=fp16}"``.

        Returns
        -------
        Module
            This module.

        Raises
        ------
        CompileError
            There is no such pass or option, and the module is unchanged; or a pass
            refused the module, which is as that pass has left it.
        """
        root = "builtin.module("
        text = passes.strip()
        if text.startswith(root) and text.endswith(")"):
            text = text[len(root) : -1]
        self._open().run(text)
        return self

    def verify(self) -> None:
        """Checks every operation.

        Raises
        ------
        CompileError
            An operation is invalid.
        """
        self._open().verify()

    def text(self, *, generic: bool = False, locations: bool = False) -> str:
        """Returns MLIR's textual form.

        Parameters
        ----------
        generic
            Use the form that every MLIR can read, even without these dialects.
        locations
            Include the source line of each operation.
        """
        return self._open().print(generic=generic, locations=locations)

    def bytecode(self) -> bytes:
        """Returns MLIR's bytecode, which `parse` and all tools read."""
        return self._open().bytecode()

    def compile(self, pipeline: str = "") -> bytes:
        """Returns a shared object of the module for this machine's CPU.

        Parameters
        ----------
        pipeline
            Options of ``ddp-pipeline``: ``"hook=powersgd bucket-cap-mb=25"``. The
            module itself does not change.

        Returns
        -------
        bytes
            A shared object that exports ``ddphook_compiled_module``, as
            ``ddphook-exec`` and the runtime load it. It refers to the runtime's
            library by name.

        Raises
        ------
        CompileError
            The options are wrong, or a pass refused the module.
        """
        return _compiler.compile_module(self.bytecode(), pipeline)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Warnings since the last exception of this module, in order."""
        return tuple(self._open().diagnostics)

    def close(self) -> None:
        """Frees the module; a second call does nothing."""
        self._parsed.close()

    def __enter__(self) -> Module:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return self.text()

    def _open(self) -> _compiler.Parsed:
        if not self._parsed.module:
            raise FailedPreconditionError("expected a module that is not closed")
        return self._parsed
