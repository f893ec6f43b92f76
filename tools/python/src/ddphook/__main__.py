# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``python -m ddphook``: ``info`` shows what is installed and where; ``text`` prints a
module; ``bench``; ``report``."""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import ddphook
from ddphook import _cache, _compiler, _libraries, _runtime, compiler, report


def main() -> int:
    """Runs a subcommand; returns 1 if it fails, and 2 for invalid options."""
    if sys.argv[1:2] == ["report"]:
        return report.main(sys.argv[2:])
    parser = argparse.ArgumentParser(
        prog="python -m ddphook", description="compiled communication hooks"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="show what is installed, and where")
    text = commands.add_parser(
        "text",
        help="print a module as text in the generic form",
        description="Reads StableHLO in its own textual form, in bytecode and in portable "
        "artifacts (jax.export), too, if jaxlib is installed.",
    )
    text.add_argument("file", metavar="FILE")
    _add_bench(commands)
    commands.add_parser("report", help="explain, draw or compare plans and traces")
    arguments = parser.parse_args()
    run = {"info": _info, "text": _text, "bench": _bench}[arguments.command]
    return run(arguments)


def _text(arguments: argparse.Namespace) -> int:
    try:
        print(compiler.parse_file(arguments.file).text(generic=True, locations=True))
    except (ddphook.Error, OSError) as error:
        return _fail("text", str(error), 1)
    return 0


def _add_bench(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        help="compare hooks with PyTorch's",
        description="Times whole steps of DDP and hooks alone, and compares ours with "
        "PyTorch's. Starts its ranks on this machine, unless a launcher has started them.",
    )
    numbers = {
        "model-mb": (float, 25, "MiB of parameters"),
        "ranks": (int, 2, "number of ranks to start without a launcher"),
        "samples": (int, 16, "samples per rank and step"),
        "steps": (int, 10, "steps of each side per round"),
        "rounds": (int, 6, "number of rounds"),
    }
    for name, (kind, default, text) in numbers.items():
        text += " (%(default)s)"
        parser.add_argument(f"--{name}", type=_number(kind), default=default, help=text)
    parser.add_argument(
        "--hooks",
        default="allreduce,fp16,bf16,powersgd-2,powersgd-4",
        help="comma-separated list of allreduce, fp16, bf16 and powersgd-RANK; with a "
        "wrapper: powersgd-4+fp16 (%(default)s)",
    )
    parser.add_argument(
        "--optimizer",
        choices=["sgd", "adam", "adamw"],
        default="sgd",
        help="optimizer of the model (%(default)s)",
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        help="measure whole steps under torch.compile, with SGD, against Inductor's own "
        "collectives and against no compression",
    )
    parser.add_argument("--json", metavar="FILE", help="also write the results there")


def _number(kind: type[int | float]) -> Callable[[str], float]:
    """Returns a parser of positive numbers for ``argparse``."""

    def parse(text: str) -> float:
        value = kind(text)
        if not 0 < value < 1e6:
            raise ValueError
        return value

    parse.__name__ = "positive number"  # argparse's errors show it.
    return parse


def _bench(arguments: argparse.Namespace) -> int:
    try:
        from ddphook.torch import _bench
    except ModuleNotFoundError as error:
        return _fail("bench", f"expected PyTorch, but {str(error).lower()}", 1)
    try:
        _bench.main(arguments)
    except ddphook.InvalidArgumentError as error:
        return _fail("bench", str(error), 2)
    except (ddphook.Error, OSError) as error:
        return _fail("bench", str(error), 1)
    return 0


def _fail(command: str, message: str, status: int) -> int:
    print(f"python -m ddphook {command}: {message}", file=sys.stderr)
    return status


def _info(_: argparse.Namespace) -> int:
    """Prints a line for each fact; returns 1 if something required is missing."""
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
        return what, f"unusable: {error}", False
    return what, _libraries.find(name), True


def _cache_line() -> str:
    place = _cache.directory()
    names = os.listdir(place) if place.is_dir() else []
    modules = [name for name in names if _cache.is_module(name)]
    size = sum((place / name).stat().st_size for name in modules)
    return f"{place}: {len(modules)} modules, {size / 2**20:.1f} MiB"


if __name__ == "__main__":
    sys.exit(main())
