# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training steps of other people's libraries, from the program to native ranks.

    $(tools/python-env.sh) test/frontends/corpus.py [--check | --write] [NAME...]

Each file of programs/ is a step in JAX or PyTorch that knows nothing of ddphook. It is
exported, its reductions are imported, it is compiled, and as many ranks as it wants run
it beside the framework itself. Prints a table; --write writes docs/generated/Corpus.md.
With --check the status is 0 if no program does worse than that page says: all gradients
that were recognised are, nothing else is taken for one, what was compiled and ran still
is and does, and results are the framework's.
"""

import argparse
import concurrent.futures
import dataclasses
import datetime
import importlib.metadata
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

import ml_dtypes  # noqa: F401  So that numpy knows bfloat16.
import numpy as np
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOOL = pathlib.Path(os.environ.get("DDPHOOK_RUN", ROOT / "build/bin/ddphook-run"))
BIN = TOOL.resolve().parent
FX = "builtin.module(ddp-import-fx)"
HANG_S = 600
# Of a result's largest change: sums of some hundred products in another order, and
# quotients of small gradients.
LIMIT = 2**-10
# Programs that compute in bfloat16: linalg's products are added up in it, those of XLA
# and PyTorch in float32. The frameworks' own results differ by 2**-5 from those of the
# same program in float32.
NARROW_LIMIT = 2**-3
NARROW = {"jax_scan_layers", "jax_lora", "torch_lora"}
PAGE = ROOT / "docs/generated/Corpus.md"


@dataclasses.dataclass
class Row:
    name: str
    ranks: int = 0
    gradients: int = 0
    reductions: int = 0
    recognised: int = 0
    wrong: int = 0
    compiled: bool = False
    deviation: float | None = None
    error: str = ""

    def limit(self):
        return NARROW_LIMIT if self.name in NARROW else LIMIT

    def problems(self, kept):
        """What is worse than in the row of the page, or without one than it should
        be."""
        expected = {
            "gradients": str(self.gradients),
            "recognised": str(self.gradients),
            "reductions": str(self.reductions),
            "others": "0",
            "compiled": "yes",
            "ran": f"on {self.ranks} ranks",
        }
        names = ("gradients", "recognised", "reductions", "others", "compiled", "ran")
        expected |= dict(zip(names, kept[1:])) if kept else {}
        mine = dict(zip(names, map(str, self.cells()[1:])))
        for name, value in expected.items():
            if mine[name] != value:
                yield f"{name}: expected {value}, but got {mine[name]}"
        if self.deviation is not None and not self.deviation <= self.limit():
            limit = f"{self.limit():.1e}"
            yield f"expected a deviation of {limit}, but got {self.deviation:.1e}"
        if expected["ran"] != "no" and self.error:
            yield self.error

    def cells(self):
        ran = "no" if self.deviation is None else f"on {self.ranks} ranks"
        off = "" if self.deviation is None else f"{self.deviation:.1e}"
        link = f"[{self.name}](../../test/frontends/programs/{self.name}.py)"
        compiled = "yes" if self.compiled else "no"
        counts = self.gradients, self.recognised, self.reductions, self.wrong
        return link, *counts, compiled, ran, off


# ---------------------------------------------------------------------------
# One program
# ---------------------------------------------------------------------------


def call(*command, where):
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=HANG_S, cwd=where, check=False
    )
    if done.returncode:
        tool = pathlib.Path(command[0]).name
        raise RuntimeError(f"{tool}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def count(row, gradients, imported):
    """Compares what hooks may compress with the gradients that there are."""
    expected = {name: size for name, size in gradients}
    found = set()
    row.gradients = len(expected)
    for line in imported.splitlines():
        if '"ddp.all_reduce"(' not in line or "ddp.hook = #ddp.allreduce" in line:
            continue
        row.reductions += 1
        name = re.search(r'ddp\.name = "([^"#]*)[^"]*"', line)
        shape = re.search(r": \(tensor<([0-9x]*)x\w+>\)", line)[1]
        size = math.prod(map(int, shape.split("x")))
        # A program may keep its parameters in a field of its state, or in an object
        # of its own for each.
        matches = [
            key
            for key in expected
            if name and f".{key}." in f".{name[1]}." and expected[key] == size
        ]
        key = max(matches, key=len, default=None)
        row.wrong += key is None
        found.add(key)
    row.recognised = len(found - {None})


def compare(got, expected, given):
    """The largest difference, as a part of the result's largest change. A result that
    has an argument's shape and place is that argument's new value."""
    before = [given[f"arg{i}"] for i in range(len(given))]
    worst = 0.0
    if got.keys() != expected.keys():
        raise RuntimeError(f"expected {len(expected)} results, but got {len(got)}")
    for i in range(len(expected)):
        mine, right = got[f"result{i}"], expected[f"result{i}"]
        if (mine.shape, mine.dtype) != (right.shape, right.dtype):
            raise RuntimeError(
                f"result{i}: expected {right.dtype} {right.shape}, but got "
                f"{mine.dtype} {mine.shape}"
            )
        kinds = [(array.shape, array.dtype) for array in before]
        change = right.astype(np.float64)
        if (right.shape, right.dtype) in kinds:
            change = change - before.pop(kinds.index((right.shape, right.dtype)))
        difference = np.abs(mine.astype(np.float64) - right.astype(np.float64))
        if not np.isfinite(difference).all():
            raise RuntimeError(f"result{i}: expected finite numbers")
        if difference.any():
            worst = max(worst, difference.max() / (np.abs(change).max() or 0.0))
    return float(worst)


def run(name, folder):
    row = Row(name)
    try:
        if (folder / "error").exists():
            row.error = (folder / "error").read_text()
        described = json.loads((folder / "step.json").read_text())
        row.ranks = described["ranks"]
        source, flags = folder / "linalg.mlir", []
        if not (folder / "imported.mlir").exists() and (folder / "step.mlir").exists():
            source, flags = folder / "step.mlir", [f"--preprocessing-pass-pipeline={FX}"]
            command = [BIN / "ddphook-opt", source, "--ddp-import-fx"]
            text = call(*command, "--mlir-print-op-generic", where=folder)
            (folder / "imported.mlir").write_text(text)
        count(row, described["gradients"], (folder / "imported.mlir").read_text())
        if row.error:
            return row
        command = [BIN / "ddphook-cc", source, "--shared", "-o", folder / "step.so"]
        call(*command, *flags, "--ddp-pipeline=hook=allreduce", where=folder)
        row.compiled = True
        command = [BIN / "ddphook-exec", folder / "step.so", "--quiet"]
        command += [f"--entry={described['entry']}", f"--ranks={row.ranks}"]
        call(*command, "--inputs=in.{rank}", "--outputs=out.{rank}", where=folder)
        files = [
            [load_file(folder / f"{kind}.{rank}") for kind in ("out", "expected", "in")]
            for rank in range(row.ranks)
        ]
        row.deviation = max(compare(*loaded) for loaded in files)
    except Exception as error:
        row.error = row.error or str(error)
    return row


# ---------------------------------------------------------------------------
# All of them
# ---------------------------------------------------------------------------


def start(script, folder, programs, **environment):
    environment = {
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "DDPHOOK_LIBRARY_DIR": str(BIN.parent / "lib"),
        **os.environ,
        "DDPHOOK_RUN": str(BIN / "ddphook-run"),
        **environment,
    }
    return subprocess.Popen(
        [sys.executable, HERE / script, folder, *programs],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def run_all(names, folder):
    for name in names:
        (folder / name).mkdir()
    of_torch = [name for name in names if name.startswith("torch_")]
    of_jax = [name for name in names if name not in of_torch]
    exports = [start("export_jax.py", folder, of_jax)] if of_jax else []
    if of_torch:
        ranks = [start("export_torch.py", folder, of_torch, RANK=str(r)) for r in (0, 1)]
        exports += ranks
    with concurrent.futures.ThreadPoolExecutor(len(exports) + 2) as pool:

        def follow(process):
            rows = [
                pool.submit(run, line.strip(), folder / line.strip())
                for line in process.stdout
            ]
            return rows, process.wait()

        followed = [pool.submit(follow, process) for process in exports]
        rows = {}
        for future in followed:
            futures, status = future.result()
            rows |= {row.name: row for row in (future.result() for future in futures)}
            if status:
                print(f"error: an export ended with status {status}", file=sys.stderr)
    return [rows.get(name, Row(name, error="it was not exported")) for name in names]


HEADER = (
    "program, gradients, recognised, in reductions, of others, compiled, ran, deviation"
)


def page(rows):
    header = HEADER.split(", ")
    lines = [" | ".join(header), " | ".join(["---"] * len(header))]
    lines += [" | ".join(map(str, row.cells())) for row in rows]
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("jax", "flax", "optax", "torch", "torch-mlir")
    )
    text = (
        f"{datetime.date.today()}; {versions}. All of "
        f"{sum(row.gradients for row in rows)} gradients: "
        f"{sum(row.recognised for row in rows)} recognised; "
        f"{sum(row.wrong for row in rows)} other reductions taken for one. JAX may "
        "reduce a gradient in several parts, one for each use of a parameter. The "
        "deviation is the largest one of any result from the framework's, as a part of "
        "how far the step has moved the result; that of a step that computes in bfloat16 "
        "is larger, because linalg adds up products in it, and XLA in float32."
    )
    return "\n".join(f"| {line} |" for line in lines) + "\n\n" + textwrap.fill(text, 100)


TITLE = """<!-- Written by test/frontends/corpus.py --write -->
# Programs of front ends

Training steps in the way in which people write them, in JAX with Flax and Optax, and in
PyTorch. [corpus.py](../../test/frontends/corpus.py) exports, imports, compiles and runs
each of them beside its framework, as [frontends.md](../frontends.md) describes it.

"""


def read_page():
    """The cells of each program's row."""
    lines = PAGE.read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| [")]
    return {re.match(r"\[(\w+)\]", row[0])[1]: row for row in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all programs")
    parser.add_argument("--check", action="store_true", help="compare with the page")
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--keep", type=pathlib.Path, help="a new folder for all files")
    arguments = parser.parse_args()
    every = sorted(path.stem for path in (HERE / "programs").glob("*.py"))
    names = arguments.names or every
    kept = read_page() if arguments.check else {}
    if arguments.check and kept.keys() != set(every):
        parser.error(f"expected all programs in {PAGE}: run it with --write")
    with tempfile.TemporaryDirectory() as scratch:
        folder = (arguments.keep or pathlib.Path(scratch, "corpus")).resolve()
        folder.mkdir(parents=True)
        rows = run_all(names, folder)
    if arguments.write:
        PAGE.write_text(TITLE + page(rows) + "\n")
    else:
        print(page(rows))
    problems = [
        f"{row.name}: {problem}"
        for row in rows
        for problem in row.problems(kept.get(row.name))
    ]
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
