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
from pathlib import Path

from ddphook._errors import UnsupportedError

LIBRARY_DIR_VARIABLE = "DDPHOOK_LIBRARY_DIR"
RUNTIME = "libddphook_rt.so"
COMPILER = "libDDPHookCAPI.so"
_VERSION = "0.1"


def directories() -> list[Path]:
    """Returns the directories to search, in order.

    ``DDPHOOK_LIBRARY_DIR``, if set, is the only one, so that a mistake in it does
    not load another version of the libraries.
    """
    chosen = os.environ.get(LIBRARY_DIR_VARIABLE)
    if chosen:
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
    if os.environ.get(LIBRARY_DIR_VARIABLE):
        raise UnsupportedError(
            f"expected {soname} in {LIBRARY_DIR_VARIABLE}="
            f"{os.environ[LIBRARY_DIR_VARIABLE]}, but there is none"
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
    try:
        return ctypes.CDLL(find(name), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        if "`GLIBC_" in str(error):
            system = os.confstr("CS_GNU_LIBC_VERSION")
            raise UnsupportedError(
                f"cannot load {name}: {error}; this system has {system}: use a newer "
                "one, or a container, or build ddphook here"
            ) from None
        searched = ", ".join(str(directory) for directory in directories())
        raise UnsupportedError(
            f"cannot load {name}: {error}; install a wheel, which "
            f"tools/python/build-wheel.sh makes, or set {LIBRARY_DIR_VARIABLE} to the "
            f"directory that has it (searched: {searched})"
        ) from None
