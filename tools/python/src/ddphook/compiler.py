# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiler in this process: parses modules, runs passes, returns text or code.

It has the dialects and passes of ddphook and of MLIR, and the stand-ins for StableHLO
and Shardy. A wheel lacks those of MLIR for other hardware and languages, such as ROCDL,
SPIR-V, OpenMP and EmitC. Modules from other packages' MLIR (``jaxlib.mlir``,
``torch_mlir``) come in and go out as text or bytecode: MLIR objects of one library are
unknown to another.

>>> module = ddphook.compiler.parse(text)
>>> module.run("ddp-import-stablehlo,ddp-stablehlo-pipeline{hook=fp16}")
>>> print(module)

Threads may use different modules at the same time; only one thread may use a module.
"""

# Mirrors ``ddphook-c/Compiler.h`` and the part of MLIR's C API that it needs. Structs of
# one pointer are passed as that pointer, which is the same in the ABIs of x86-64 and
# AArch64.

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator
from ctypes import CFUNCTYPE, c_bool, c_char_p, c_int, c_int8, c_size_t, c_uint64
from ctypes import c_ssize_t, c_void_p
from pathlib import Path
from typing import Any

from ddphook import _libraries
from ddphook._errors import CompileError, Diagnostic, FailedPreconditionError

__all__ = ["CompileError", "Diagnostic", "Module", "parse", "parse_file"]


class _StringRef(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("length", c_size_t)]

    @classmethod
    def from_param(cls, given: str | bytes) -> _StringRef:
        """Converts an argument of the library's functions."""
        text = given.encode() if isinstance(given, str) else given
        result = cls(ctypes.cast(c_char_p(text), c_void_p), len(text))
        result.owner = text  # Keeps the memory alive.
        return result

    def bytes(self) -> bytes:
        return ctypes.string_at(self.data, self.length) if self.length else b""


_StringCallback = CFUNCTYPE(None, _StringRef, c_void_p)
# The handler returns a struct of one byte, which ctypes callbacks cannot return.
_DiagnosticHandler = CFUNCTYPE(c_int8, c_void_p, c_void_p)
_SEVERITIES = ("error", "warning", "note", "remark")


@functools.cache
def library() -> ctypes.CDLL:
    """Returns the compiler, loaded at the first call."""
    capi = _libraries.load(_libraries.COMPILER)
    pointer, text, handler = c_void_p, _StringRef, _DiagnosticHandler
    to = (_StringCallback, c_void_p)
    _libraries.declare(
        capi,
        ("ddphookRegisterPasses", None),
        ("ddphookRegisterDialects ddphookRegisterOpaqueDialects", None, pointer),
        ("mlirDialectRegistryDestroy mlirContextDestroy mlirModuleDestroy", None, pointer),
        ("mlirPassManagerDestroy mlirOpPrintingFlagsDestroy", None, pointer),
        ("mlirOpPrintingFlagsPrintGenericOpForm", None, pointer),
        ("ddphookCompilerOptionsDestroy ddphookCompiledModuleDestroy", None, pointer),
        ("ddphookCompilerOptionsSetShared", None, pointer, c_bool),
        ("mlirOpPrintingFlagsEnableDebugInfo", None, pointer, c_bool, c_bool),
        ("ddphookCompilerOptionsSetName", None, pointer, text),
        ("ddphookCompilerOptionsSetPipeline", None, pointer, text),
        ("ddphookCompilerOptionsSetRuntime", None, pointer, text),
        ("ddphookCompilerOptionsSetDevice", None, pointer, text, text),
        ("mlirOperationWriteBytecode mlirDiagnosticPrint", None, pointer, *to),
        ("mlirOperationPrintWithFlags", None, pointer, pointer, *to),
        ("mlirDialectRegistryCreate mlirOpPrintingFlagsCreate", pointer),
        ("ddphookCompilerOptionsCreate", pointer),
        ("mlirModuleGetOperation mlirPassManagerCreate", pointer, pointer),
        ("mlirPassManagerGetAsOpPassManager mlirDiagnosticGetLocation", pointer, pointer),
        ("mlirLocationFileLineColRangeGetFilename", pointer, pointer),
        ("mlirContextCreateWithRegistry", pointer, pointer, c_bool),
        ("ddphookModuleCreateParse", pointer, pointer, text),
        ("ddphookCompile", pointer, pointer, pointer),
        ("mlirDiagnosticGetNote", pointer, pointer, c_ssize_t),
        ("mlirDiagnosticGetNumNotes", c_ssize_t, pointer),
        ("mlirOperationVerify mlirLocationIsAFileLineColRange", c_bool, pointer),
        ("mlirLocationFileLineColRangeGetStartLine", c_int, pointer),
        ("mlirLocationFileLineColRangeGetStartColumn", c_int, pointer),
        ("mlirDiagnosticGetSeverity", c_int, pointer),
        ("mlirPassManagerRunOnOp", c_int8, pointer, pointer),
        ("mlirOpPassManagerAddPipeline", c_int8, pointer, text, *to),
        ("mlirContextAttachDiagnosticHandler", c_uint64, pointer, handler, pointer, pointer),
        ("mlirIdentifierStr", text, pointer),
        ("ddphookCompiledModuleGetSharedObject", text, pointer, text, *to),
    )
    capi.ddphookRegisterPasses()
    return capi


class Module:
    """An MLIR module in a context of its own, made by ``ddphook.compiler.parse``.

    Its memory is freed with the last reference to it, at the end of ``with``, or by
    `close`; any later call raises FailedPreconditionError. ``str()`` returns its text.
    """

    def __init__(self, source: str | bytes) -> None:
        self._module = self._context = None
        self._capi = capi = library()
        diagnostics: list[Diagnostic] = []
        self._diagnostics = diagnostics

        @_DiagnosticHandler
        def on_diagnostic(diagnostic: int, _: int) -> int:
            diagnostics.append(_read_diagnostic(diagnostic))
            return 1

        # Kept alive as long as the context may call it.
        self._handler = on_diagnostic
        registry = capi.mlirDialectRegistryCreate()
        capi.ddphookRegisterDialects(registry)
        capi.ddphookRegisterOpaqueDialects(registry)
        self._context = capi.mlirContextCreateWithRegistry(registry, False)
        capi.mlirDialectRegistryDestroy(registry)
        capi.mlirContextAttachDiagnosticHandler(self._context, self._handler, None, None)
        data = source.encode() if isinstance(source, str) else source
        parse = capi.ddphookModuleCreateParse
        self._module = parse(self._context, data)
        if not self._module:
            error = self._error()
            if text := _read_stablehlo(data):
                self._module = parse(self._context, text)
        if not self._module:
            self.close()
            raise error

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
        capi, operation = self._capi, self._operation
        manager = capi.mlirPassManagerCreate(self._context)
        try:
            operations = capi.mlirPassManagerGetAsOpPassManager(manager)
            # The results are structs of one byte, true for success.
            with _collected() as (said, keep):
                if not capi.mlirOpPassManagerAddPipeline(operations, text, keep, None):
                    raise self._error(b"".join(said))
            if not capi.mlirPassManagerRunOnOp(manager, operation):
                raise self._error()
        finally:
            capi.mlirPassManagerDestroy(manager)
        return self

    def verify(self) -> None:
        """Checks every operation.

        Raises
        ------
        CompileError
            An operation is invalid.
        """
        if not self._capi.mlirOperationVerify(self._operation):
            raise self._error()

    def text(self, *, generic: bool = False, locations: bool = False) -> str:
        """Returns MLIR's textual form.

        Parameters
        ----------
        generic
            Use the form that every MLIR can read, even without these dialects.
        locations
            Include the source line of each operation.
        """
        capi, operation = self._capi, self._operation
        flags = capi.mlirOpPrintingFlagsCreate()
        try:
            if generic:
                capi.mlirOpPrintingFlagsPrintGenericOpForm(flags)
            if locations:
                capi.mlirOpPrintingFlagsEnableDebugInfo(flags, True, False)
            with _collected() as (parts, keep):
                capi.mlirOperationPrintWithFlags(operation, flags, keep, None)
            return b"".join(parts).decode()
        finally:
            capi.mlirOpPrintingFlagsDestroy(flags)

    def bytecode(self) -> bytes:
        """Returns MLIR's bytecode, which `parse` and all tools read."""
        with _collected() as (parts, keep):
            self._capi.mlirOperationWriteBytecode(self._operation, keep, None)
        return b"".join(parts)

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
        return compile_module(self.bytecode(), pipeline)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Warnings since the last exception of this module, in order."""
        self._check_open()
        return tuple(self._diagnostics)

    def close(self) -> None:
        """Frees the module; a second call does nothing."""
        if self._module:
            self._capi.mlirModuleDestroy(self._module)
        if self._context:
            self._capi.mlirContextDestroy(self._context)
        self._module = self._context = None

    def __enter__(self) -> Module:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return self.text()

    __del__ = close

    def _check_open(self) -> None:
        if not self._module:
            raise FailedPreconditionError("expected a module that is not closed")

    @property
    def _operation(self) -> int:
        self._check_open()
        return self._capi.mlirModuleGetOperation(self._module)

    def _error(self, said: bytes = b"") -> CompileError:
        """Returns the exception for the diagnostics since the last call."""
        taken = tuple(self._diagnostics)
        self._diagnostics.clear()
        errors = [each.message for each in taken if each.severity == "error"]
        errors += filter(None, [said.decode(errors="replace").strip()])
        text = "; ".join(errors) or "the compiler gave no reason"
        return CompileError(text, taken)


def parse(source: str | bytes) -> Module:
    """Reads a module.

    Parameters
    ----------
    source
        MLIR's textual form, or bytecode. A text without a surrounding ``module`` is
        also read as one module. StableHLO may also be in its own textual form, in
        bytecode or a portable artifact (``jax.export``) where jaxlib is installed.

    Raises
    ------
    CompileError
        The source is malformed, or an operation in it is invalid.
    UnsupportedError
        The compiler's library is not installed.
    """
    return Module(source)


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


def _read_stablehlo(source: bytes) -> str | None:
    """Returns a program of StableHLO in the generic form that ddphook reads, or None
    if there is no jaxlib, or none that reads ``source``."""
    if b"hlo" not in source:
        return None
    try:
        from jax.interpreters import mlir
        from jaxlib.mlir.dialects import stablehlo

        with mlir.make_ir_context() as context:
            context.attach_diagnostic_handler(lambda _: True)
            operation = stablehlo.deserialize_portable_artifact(context, source).operation
            return str(operation.get_asm(print_generic_op_form=True, enable_debug_info=True))
    except (ImportError, ValueError):
        return None


def _read_diagnostic(diagnostic: int) -> Diagnostic:
    capi = library()
    with _collected() as (parts, keep):
        capi.mlirDiagnosticPrint(diagnostic, keep, None)
    place = capi.mlirDiagnosticGetLocation(diagnostic)
    file, line, column = "", 0, 0
    if capi.mlirLocationIsAFileLineColRange(place):
        name = capi.mlirLocationFileLineColRangeGetFilename(place)
        file = capi.mlirIdentifierStr(name).bytes().decode(errors="replace")
        line = capi.mlirLocationFileLineColRangeGetStartLine(place)
        column = capi.mlirLocationFileLineColRangeGetStartColumn(place)
    notes = range(capi.mlirDiagnosticGetNumNotes(diagnostic))
    return Diagnostic(
        _SEVERITIES[capi.mlirDiagnosticGetSeverity(diagnostic)],
        b"".join(parts).decode(errors="replace"),
        file,
        line,
        column,
        tuple(_read_diagnostic(capi.mlirDiagnosticGetNote(diagnostic, i)) for i in notes),
    )


@contextlib.contextmanager
def _collected() -> Iterator[tuple[list[bytes], Any]]:
    """Yields the list of a text's parts, and the callback that appends to it."""
    parts: list[bytes] = []
    yield parts, _StringCallback(lambda part, _: parts.append(part.bytes()))


def transform_module(text: str | bytes, passes: str) -> str:
    """Returns a module's text after ``passes``; see `Module.run`."""
    with Module(text) as module:
        return str(module.run(passes))


def compile_module(text: str | bytes, pipeline: str, device: str = "") -> bytes:
    """Returns a shared object of a module, as `Module.compile`, or one for arrays in the
    memory of ``device``."""
    capi, stack = library(), contextlib.ExitStack()
    with Module(text) as module, _collected() as (said, keep), stack:
        options = capi.ddphookCompilerOptionsCreate()
        stack.callback(capi.ddphookCompilerOptionsDestroy, options)
        capi.ddphookCompilerOptionsSetName(options, "bucket")
        capi.ddphookCompilerOptionsSetShared(options, True)
        capi.ddphookCompilerOptionsSetPipeline(options, pipeline)
        if device:
            capi.ddphookCompilerOptionsSetDevice(options, device, "")
        # The module has to find the runtime without the process's global symbols: the
        # runtime's Gloo must not mix with PyTorch's.
        runtime = _libraries.path(_libraries.RUNTIME)
        capi.ddphookCompilerOptionsSetRuntime(options, runtime)
        compiled = capi.ddphookCompile(module._module, options)
        if not compiled:
            raise module._error()
        stack.callback(capi.ddphookCompiledModuleDestroy, compiled)
        shared = capi.ddphookCompiledModuleGetSharedObject(compiled, "", keep, None)
        if not shared.data:
            raise module._error(b"".join(said))
        return shared.bytes()
