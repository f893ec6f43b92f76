#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's compiled path beside its eager hooks and beside ddphook.

Trains the same models on 2 and 3 real ranks of this machine, with gradients
reduced by DDP's eager hooks, by PyTorch's own compiler
(optimize_ddp="python_reducer" and compiled autograd), and by a module that
ddphook compiled; counts the elements of the reduced gradients that differ from
the eager ones, and times steps. Prints Markdown, and JSON with --json=FILE.

    $(tools/python-env.sh) docs/examples/why/compiled_path.py --bin=build/bin
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).resolve().parent
MODES = ("eager", "compiled", "emulated", "ddphook")
MODELS = ("gaussian", "small", "mlp")
# What ddphook's hook is called; no entry: nothing to compare.
OURS = {"allreduce", "fp16", "bf16", "noop"}
HANG_S = 300


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def mlp_shapes():
    """The gradients' shapes in the order in which they become ready."""
    layers = [(256, 1024)] + 6 * [(1024, 1024)]
    return [shape for rows, cols in layers for shape in ((rows,), (rows, cols))]


def module_text(shapes):
    types = ["tensor<" + "x".join(map(str, s)) + "xf32>" for s in shapes]
    arguments = ", ".join(f"%g{i}: {t}" for i, t in enumerate(types))
    lines = [
        "module {",
        "  ddp.process_group @dp",
        f"  func.func @step({arguments}) -> ({', '.join(types)}) {{",
    ]
    for i, type in enumerate(types):
        lines.append(f"    %r{i} = ddp.all_reduce mean %g{i} on @dp : {type}")
    results = ", ".join(f"%r{i}" for i in range(len(types)))
    lines += [f"    return {results} : {', '.join(types)}", "  }", "}", ""]
    return "\n".join(lines)


def compile_modules(folder, bin, hook):
    shapes = {"gaussian": [(1 << 20,)], "small": [(1 << 20,)], "mlp": mlp_shapes()}
    for name in MODELS:
        source = folder / f"{name}.mlir"
        source.write_text(module_text(shapes[name]))
        subprocess.run(
            [
                bin / "ddphook-cc",
                source,
                "--shared",
                "-o",
                folder / f"{name}.so",
                f"--ddp-pipeline=hook={hook}",
            ],
            check=True,
        )


def launch(world, hook, mode, folder, arguments):
    """Runs all ranks; None, or the reason why one failed."""
    env = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=str(folder / "inductor"))
    env["TORCH_LOGS"] = "-all"
    env["DDPHOOK_PORT"] = free_port()
    if mode == "ddphook":
        compile_modules(folder, arguments.bin, hook)
        env["DDPHOOK_RT"] = str(arguments.bin.parent / "lib" / "libddphook_rt.so")
    port = free_port()
    ranks = []
    for rank in range(world):
        with open(folder / f"stderr.{rank}", "w") as stderr:
            command = [rank, world, port, hook, mode, folder, arguments.steps]
            ranks.append(
                subprocess.Popen(
                    [sys.executable, HERE / "training.py", *map(str, command)],
                    stderr=stderr,
                    env=env,
                )
            )
    deadline = time.monotonic() + HANG_S
    while any(rank.poll() is None for rank in ranks):
        failed = [i for i, rank in enumerate(ranks) if rank.poll()]
        if failed or time.monotonic() > deadline:
            for rank in ranks:
                rank.kill()
                rank.wait()
            if not failed:
                return f"no answer within {HANG_S} s"
            break
        time.sleep(0.05)
    for number, rank in enumerate(ranks):
        if rank.wait() > 0:
            text = (folder / f"stderr.{number}").read_text().strip()
            return text.splitlines()[-1] if text else f"exit {rank.returncode}"
    return None


def differing_percent(folder, eager, model, world):
    """Of all elements on all ranks, those whose bits differ from the eager
    run's. None of these gradients is NaN."""
    total = differ = 0
    for rank in range(world):
        ours = load_file(folder / f"{model}.{rank}")
        theirs = load_file(eager / f"{model}.{rank}")
        for name, value in ours.items():
            total += value.size
            differ += int(
                np.count_nonzero(value.view(np.uint32) != theirs[name].view(np.uint32))
            )
    return 100 * differ / total


def run(world, hook, arguments, scratch):
    """One row: mode → {"error"} or {"differs": {model: %}, "step_ms"}."""
    row = {"world": world, "hook": hook}
    eager = None
    for mode in arguments.modes.split(","):
        if mode == "ddphook" and hook not in OURS:
            continue
        if mode == "emulated" and "error" in row["compiled"]:
            continue
        if mode == "eager" and hook == "powersgd":
            # Several buckets at once abort on Gloo; not what is measured here.
            continue
        folder = scratch / f"{hook}-{world}-{mode}"
        folder.mkdir()
        print(f"running {hook}, {world} ranks, {mode}", file=sys.stderr)
        error = launch(world, hook, mode, folder, arguments)
        if error:
            row[mode] = {"error": error}
            continue
        if mode == "eager":
            eager = folder
        reports = [
            json.loads((folder / f"report.{rank}.json").read_text())
            for rank in range(world)
        ]
        row[mode] = {
            name: max(report[name] for report in reports)
            for name in ("step_ms", "first_ms", "reduction_ms")
            if name in reports[0]
        }
        row[mode] |= {
            "differs": {
                model: differing_percent(folder, eager, model, world)
                for model in MODELS
            },
        }
    return row


def cell_differs(result):
    if result is None:
        return "—"
    if "error" in result:
        return "does not run"
    return " / ".join(f"{result['differs'][model]:.3g}" for model in MODELS)


def cell_time(result):
    if not result or "step_ms" not in result:
        return "—"
    text = f"{result['step_ms']:.0f}"
    if "reduction_ms" in result:
        text += f" ({result['reduction_ms']:.1f})"
    return text


def markdown(rows):
    differs = ["compiled", "emulated", "ddphook"]
    times = [f"{mode} ms" for mode in MODES]
    titles = ["hook", "ranks", *differs, *times]
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    for row in rows:
        modes = [row.get(mode) for mode in MODES]
        cells = [cell_differs(result) for result in modes[1:]]
        cells += [cell_time(result) for result in modes]
        yield f"| {row['hook']} | {row['world']} | {' | '.join(cells)} |"
    errors = {
        (row["hook"], mode): row[mode]["error"]
        for row in rows
        for mode in MODES
        if "error" in row.get(mode, {})
    }
    if errors:
        yield ""
    for (hook, mode), error in errors.items():
        yield f"- {hook}, {mode}: `` {error} ``"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin"))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--ranks", default="2,3")
    parser.add_argument("--hooks", default="none,allreduce,fp16,bf16,noop,powersgd")
    parser.add_argument("--modes", default=",".join(MODES), help="eager first")
    parser.add_argument("--steps", type=int, default=24)
    arguments = parser.parse_args()
    arguments.bin = arguments.bin.resolve()
    if "ddphook" in arguments.modes and not (arguments.bin / "ddphook-cc").exists():
        parser.error(f"expected ddphook-cc in {arguments.bin}; build it, or --bin=")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for world in map(int, arguments.ranks.split(",")):
            for hook in arguments.hooks.split(","):
                rows.append(run(world, hook, arguments, pathlib.Path(scratch)))
    report = {
        "date": datetime.date.today().isoformat(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "torch": importlib.metadata.version("torch"),
        "steps": arguments.steps,
        "rows": rows,
    }
    print("\n".join(markdown(rows)))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
