# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiler's C API: from the text of a module to a shared object, or to the
text of what passes make of it.

Mirrors ``ddphook-c/Compiler.h`` and the part of MLIR's C API that it needs.
Structs of one pointer are passed as that pointer, which is the same in the ABIs
of x86-64 and AArch64.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from ctypes import CFUNCTYPE, c_bool, c_char_p, c_int, c_int8, c_size_t, c_uint64
from ctypes import c_void_p
from typing import NamedTuple

from ddphook import _libraries
from ddphook._errors import CompileError


class _StringRef(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("length", c_size_t)]

    @classmethod
    def of(cls, text: bytes) -> _StringRef:
        result = cls(ctypes.cast(c_char_p(text), c_void_p), len(text))
        result.owner = text  # Keeps the memory.
        return result

    def bytes(self) -> bytes:
        return ctypes.string_at(self.data, self.length) if self.length else b""


_StringCallback = CFUNCTYPE(None, _StringRef, c_void_p)
# The result is a struct of one byte, which callbacks cannot return.
_DiagnosticHandler = CFUNCTYPE(c_int8, c_void_p, c_void_p)
_SEVERITIES = ("error", "warning", "note", "remark")


@functools.cache
def library() -> ctypes.CDLL:
    """The compiler, loaded at the first call.

    Raises
    ------
    UnsupportedError
        It is not there.
    """
    capi = _libraries.load(_libraries.COMPILER)
    pointer, text = c_void_p, _StringRef
    for name, result, arguments in (
        ("mlirDialectRegistryCreate", pointer, []),
        ("mlirDialectRegistryDestroy", None, [pointer]),
        ("ddphookRegisterDialects", None, [pointer]),
        ("ddphookRegisterOpaqueDialects", None, [pointer]),
        ("ddphookRegisterPasses", None, []),
        ("mlirContextCreateWithRegistry", pointer, [pointer, c_bool]),
        ("mlirContextDestroy", None, [pointer]),
        ("mlirModuleCreateParse", pointer, [pointer, text]),
        ("mlirModuleDestroy", None, [pointer]),
        ("mlirModuleGetOperation", pointer, [pointer]),
        ("mlirOperationPrint", None, [pointer, _StringCallback, pointer]),
        ("mlirPassManagerCreate", pointer, [pointer]),
        ("mlirPassManagerDestroy", None, [pointer]),
        ("mlirPassManagerGetAsOpPassManager", pointer, [pointer]),
        (
            "mlirOpPassManagerAddPipeline",
            c_int8,
            [pointer, text, _StringCallback, pointer],
        ),
        ("mlirPassManagerRunOnOp", c_int8, [pointer, pointer]),
        (
            "mlirContextAttachDiagnosticHandler",
            c_uint64,
            [pointer, _DiagnosticHandler, pointer, pointer],
        ),
        ("mlirDiagnosticPrint", None, [pointer, _StringCallback, pointer]),
        ("mlirDiagnosticGetSeverity", c_int, [pointer]),
        ("ddphookCompilerOptionsCreate", pointer, []),
        ("ddphookCompilerOptionsDestroy", None, [pointer]),
        ("ddphookCompilerOptionsSetName", None, [pointer, text]),
        ("ddphookCompilerOptionsSetShared", None, [pointer, c_bool]),
        ("ddphookCompilerOptionsSetPipeline", None, [pointer, text]),
        ("ddphookCompile", pointer, [pointer, pointer]),
        ("ddphookCompiledModuleDestroy", None, [pointer]),
        ("ddphookCompilerOptionsSetRuntime", None, [pointer, text]),
        (
            "ddphookCompiledModuleGetSharedObject",
            text,
            [pointer, text, _StringCallback, pointer],
        ),
    ):
        function = getattr(capi, name)
        function.restype, function.argtypes = result, arguments
    capi.ddphookRegisterPasses()
    return capi


class _Parsed(NamedTuple):
    context: int
    module: int | None  # Null after an error.
    errors: list[str]

    def error(self) -> CompileError:
        return CompileError("; ".join(self.errors) or "the compiler gave no reason")


@contextlib.contextmanager
def _parse(text: str) -> Iterator[_Parsed]:
    """A module in a context of its own, which collects its errors."""
    capi = library()
    errors: list[str] = []

    @_DiagnosticHandler
    def on_diagnostic(diagnostic: int, _: int) -> int:
        parts: list[bytes] = []
        keep = _StringCallback(lambda part, _: parts.append(part.bytes()))
        capi.mlirDiagnosticPrint(diagnostic, keep, None)
        severity = _SEVERITIES[capi.mlirDiagnosticGetSeverity(diagnostic)]
        if severity == "error":
            errors.append(b"".join(parts).decode(errors="replace"))
        return 1

    registry = capi.mlirDialectRegistryCreate()
    capi.ddphookRegisterDialects(registry)
    capi.ddphookRegisterOpaqueDialects(registry)
    context = capi.mlirContextCreateWithRegistry(registry, False)
    capi.mlirDialectRegistryDestroy(registry)
    capi.mlirContextAttachDiagnosticHandler(context, on_diagnostic, None, None)
    module = None
    try:
        module = capi.mlirModuleCreateParse(context, _StringRef.of(text.encode()))
        yield _Parsed(context, module, errors)
    finally:
        if module:
            capi.mlirModuleDestroy(module)
        capi.mlirContextDestroy(context)


def transform_module(text: str, passes: str) -> str:
    """Runs passes on a module.

    Parameters
    ----------
    text
        The module, in MLIR's textual form.
    passes
        A pipeline for a module, ``"pass{option=value},pass"``.

    Returns
    -------
    str
        The module afterwards.

    Raises
    ------
    CompileError
        The module or the pipeline is wrong, or a pass failed.
    UnsupportedError
        The compiler is missing.
    """
    capi = library()
    with _parse(text) as parsed:
        if not parsed.module:
            raise parsed.error()

        # What is wrong with the pipeline comes in pieces.
        said: list[bytes] = []
        on_error = _StringCallback(lambda part, _: said.append(part.bytes()))
        manager = capi.mlirPassManagerCreate(parsed.context)
        try:
            operations = capi.mlirPassManagerGetAsOpPassManager(manager)
            pipeline = _StringRef.of(passes.encode())
            module = capi.mlirModuleGetOperation(parsed.module)
            # The results are structs of one byte, true for success.
            if not capi.mlirOpPassManagerAddPipeline(
                operations, pipeline, on_error, None
            ):
                parsed.errors.append(b"".join(said).decode().strip())
                raise parsed.error()
            if not capi.mlirPassManagerRunOnOp(manager, module):
                raise parsed.error()
        finally:
            capi.mlirPassManagerDestroy(manager)
        parts: list[bytes] = []
        keep = _StringCallback(lambda part, _: parts.append(part.bytes()))
        capi.mlirOperationPrint(module, keep, None)
        return b"".join(parts).decode()


def compile_module(text: str, pipeline: str) -> bytes:
    """Compiles a module for this machine's CPU.

    Parameters
    ----------
    text
        The module, in MLIR's textual form.
    pipeline
        Options of ``ddp-pipeline``.

    Returns
    -------
    bytes
        A shared object that exports ``ddphook_compiled_module`` and needs the
        runtime by its soname.

    Raises
    ------
    CompileError
        The module or the options are wrong.
    UnsupportedError
        The compiler is missing.
    """
    capi = library()
    with _parse(text) as parsed:
        if not parsed.module:
            raise parsed.error()

        @_StringCallback
        def on_error(message: _StringRef, _: int) -> None:
            parsed.errors.append(message.bytes().decode(errors="replace"))

        options = capi.ddphookCompilerOptionsCreate()
        compiled = None
        try:
            flags = _StringRef.of(pipeline.encode())
            capi.ddphookCompilerOptionsSetName(options, _StringRef.of(b"bucket"))
            capi.ddphookCompilerOptionsSetShared(options, True)
            capi.ddphookCompilerOptionsSetPipeline(options, flags)
            # The module has to find the runtime among symbols that are not the
            # process's: its Gloo must not meet PyTorch's.
            runtime = _StringRef.of(_libraries.path(_libraries.RUNTIME).encode())
            capi.ddphookCompilerOptionsSetRuntime(options, runtime)
            compiled = capi.ddphookCompile(parsed.module, options)
            if not compiled:
                raise parsed.error()
            shared = capi.ddphookCompiledModuleGetSharedObject(
                compiled, _StringRef.of(b""), on_error, None
            )
            if not shared.data:
                raise parsed.error()
            return shared.bytes()
        finally:
            if compiled:
                capi.ddphookCompiledModuleDestroy(compiled)
            capi.ddphookCompilerOptionsDestroy(options)
