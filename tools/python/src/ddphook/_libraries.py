# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the shared libraries of ddphook.

A wheel has them next to the package. ``DDPHOOK_LIBRARY_DIR`` names another
directory, such as ``build/lib`` of a build tree. Otherwise the search covers the
prefix that the package is installed in, then the libraries known to the loader.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddphook._errors import UnsupportedError

LIBRARY_DIR_VARIABLE = "DDPHOOK_LIBRARY_DIR"
RUNTIME = "libddphook_rt.so"
COMPILER = "libDDPHookCAPI.so"
_VERSION = "0.1"
_SAME_VERSION = (
    "install the package and its libraries from the same build, or set "
    f"{LIBRARY_DIR_VARIABLE} to the directory of that build's libraries"
)


def directories() -> list[Path]:
    """Returns the directories to search, in order.

    ``DDPHOOK_LIBRARY_DIR``, if set, is the only one, so that a mistake in it does
    not load another version of the libraries.
    """
    if chosen := os.environ.get(LIBRARY_DIR_VARIABLE):
        return [Path(chosen)]
    package = Path(__file__).resolve().parent
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    prefixes = [Path(sys.prefix), *package.parents[2:5]]
    found = [package / "lib"]
    for prefix in prefixes:
        found += [prefix / "lib", prefix / "lib" / multiarch]
    return list(dict.fromkeys(found))


def find(name: str) -> str:
    """Returns the path of a library, or its soname if only the loader can find it.

    Raises UnsupportedError if ``DDPHOOK_LIBRARY_DIR`` is set and has no such library.
    """
    soname = f"{name}.{_VERSION}"
    for directory in directories():
        for candidate in (directory / soname, directory / name):
            if candidate.is_file():
                return str(candidate)
    if chosen := os.environ.get(LIBRARY_DIR_VARIABLE):
        raise UnsupportedError(
            f"expected {soname} in {LIBRARY_DIR_VARIABLE}={chosen}, but there is none; "
            "correct or unset the variable"
        )
    return soname


def path(name: str) -> str:
    """Returns the path of a library, loading it to find the path if necessary."""
    found = find(name)
    if os.sep in found:
        return found
    load(name)
    with open("/proc/self/maps") as maps:
        return next(line.split()[-1] for line in maps if line.rstrip().endswith(found))


def load(name: str) -> ctypes.CDLL:
    """Loads a library into this process with local symbols.

    Local symbols matter: PyTorch and the runtime may each contain a Gloo. Raises
    UnsupportedError if the library is missing or cannot be loaded.
    """
    found = find(name)
    try:
        return ctypes.CDLL(found, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        if os.sep in found:
            advice = "install what it lacks"
            if "GLIBC" in str(error):
                advice = "use a newer system"
            advice += ", or build ddphook on this one (docs/installing.md)"
        else:
            searched = ", ".join(map(str, directories()))
            advice = (
                f"install a wheel of ddphook, which has it, or set {LIBRARY_DIR_VARIABLE} "
                f"to the directory that has it (searched: {searched})"
            )
        raise UnsupportedError(f"cannot load {name}: {error}; {advice}") from None


def declare(library: ctypes.CDLL, *functions: Sequence[Any]) -> None:
    """Declares functions, given as names, the type of their results, and those of their
    arguments; raises UnsupportedError if the library lacks one."""
    for names, result, *arguments in functions:
        for name in names.split():
            try:
                function = getattr(library, name)
            except AttributeError as error:
                raise UnsupportedError(
                    f"expected {library._name} to be of the version {_VERSION}, but it has "
                    f"another one: {str(error).rpartition(': ')[2]}; {_SAME_VERSION}"
                ) from None
            function.restype, function.argtypes = result, arguments


def check_abi(library: ctypes.CDLL, found: int, expected: int) -> None:
    """Raises UnsupportedError if the library has another ABI than this package."""
    if found != expected:
        raise UnsupportedError(
            f"expected the ABI version {expected}, which this package is for, but "
            f"{os.path.realpath(library._name)} has {found}; {_SAME_VERSION}"
        )
