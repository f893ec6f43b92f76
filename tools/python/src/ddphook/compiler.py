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

from __future__ import annotations

import os
from pathlib import Path

from ddphook._compiler import Module
from ddphook._errors import CompileError, Diagnostic

__all__ = ["CompileError", "Diagnostic", "Module", "parse", "parse_file"]


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
