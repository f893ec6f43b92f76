# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``python -m ddphook``: ``info`` shows what is installed and where; ``text`` prints a
module; ``bench``; ``report``."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import ddphook
from ddphook import _cache, _libraries, _runtime, compiler, report


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
    try:
        return {"info": _info, "text": _text, "bench": _bench}[arguments.command](arguments)
    except (ddphook.Error, OSError) as error:
        print(f"python -m ddphook {arguments.command}: {error}", file=sys.stderr)
        return 2 if isinstance(error, ddphook.InvalidArgumentError) else 1


def _text(arguments: argparse.Namespace) -> int:
    print(compiler.parse_file(arguments.file).text(generic=True, locations=True))
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
        message = f"expected PyTorch, but {str(error).lower()}"
        raise ddphook.UnsupportedError(message) from error
    _bench.main(arguments)
    return 0


def _info(_: argparse.Namespace) -> int:
    """Prints a line for each fact; returns 1 if something required is missing."""
    facts = list(_facts())
    for name, value, _is_good in facts:
        print(f"{name:12} {value}")
    return 0 if all(is_good for _, _, is_good in facts) else 1


def _facts() -> Iterator[tuple[str, str, bool]]:
    yield "ddphook", f"{ddphook.__version__}, {os.path.dirname(ddphook.__file__)}", True
    yield "Python", sys.version.split()[0], True
    if importlib.util.find_spec("torch") is None:
        yield "PyTorch", "missing: pip install torch", False
    else:
        yield "PyTorch", importlib.metadata.version("torch"), True
    for what, name, load in (
        ("runtime", _libraries.RUNTIME, _runtime.library),
        ("compiler", _libraries.COMPILER, compiler.library),
    ):
        try:
            load()
            yield what, _libraries.find(name), True
        except ddphook.Error as error:
            yield what, f"unusable: {error}", False
    place = _cache.directory()
    names = os.listdir(place) if place.is_dir() else []
    sizes = [(place / name).stat().st_size for name in names if _cache.is_module(name)]
    yield "cache", f"{place}: {len(sizes)} modules, {sum(sizes) / 2**20:.1f} MiB", True


if __name__ == "__main__":
    sys.exit(main())
