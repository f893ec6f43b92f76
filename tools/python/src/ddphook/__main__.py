# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``python -m ddphook info``: what is installed, and where."""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator

import ddphook
from ddphook import _cache, _compiler, _libraries, _runtime


def main() -> int:
    """Prints a line for each fact; 1 if something that is needed is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m ddphook", description="compiled communication hooks"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="show what is installed, and where")
    parser.parse_args()
    complete = True
    for name, value, is_good in _facts():
        print(f"{name:12} {value}")
        complete = complete and is_good
    return 0 if complete else 1


def _facts() -> Iterator[tuple[str, str, bool]]:
    yield "ddphook", f"{ddphook.__version__}, {os.path.dirname(ddphook.__file__)}", True
    yield "Python", sys.version.split()[0], True
    yield _torch()
    yield _library("runtime", _libraries.RUNTIME, _runtime.library)
    yield _library("compiler", _libraries.COMPILER, _compiler.library)
    yield "cache", _cache_line(), True


def _torch() -> tuple[str, str, bool]:
    if importlib.util.find_spec("torch") is None:
        return "PyTorch", "missing: pip install torch", False
    return "PyTorch", importlib.metadata.version("torch"), True


def _library(
    what: str, name: str, load: Callable[[], ctypes.CDLL]
) -> tuple[str, str, bool]:
    try:
        load()
    except ddphook.Error as error:
        return what, f"missing: {error}", False
    return what, _libraries.find(name), True


def _cache_line() -> str:
    place = _cache.directory()
    names = os.listdir(place) if place.is_dir() else []
    modules = [name for name in names if _cache.is_module(name)]
    size = sum((place / name).stat().st_size for name in modules)
    return f"{place}: {len(modules)} modules, {size / 2**20:.1f} MiB"


if __name__ == "__main__":
    sys.exit(main())
