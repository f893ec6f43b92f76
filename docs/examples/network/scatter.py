#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reduce-scatters with hooks on a slow network.

Makes two network namespaces on this machine that are joined by a link of
1 Gbit/s, and runs a rank in each. A step reduces a gradient of 100 MiB, and leaves
each rank half of it; it is compiled with every hook, and all of them run in turns. As
root:

    $(tools/python-env.sh) docs/examples/network/scatter.py --build=build

Prints, per hook, the time of a step, what a rank sends, and how far results are from
the uncompressed ones; JSON with --json=FILE. --local uses no slow link: both ranks
share this machine's memory.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "why"))

import job
import link
import numpy as np

ELEMENTS, RANKS = 25 << 20, 2
HOOKS = {
    "none": "hook=allreduce",
    "fp16": "hook=fp16",
    "bf16": "hook=bf16",
    "int8": "hook=int8",
    "int8, error feedback": "hook=int8 error-feedback=true",
    "fp8": "hook=fp8",
    "int4": "hook=int4",
}
MODULE = """
ddp.process_group @dp size 2
func.func @step(%g: tensor<{n}xf32>) -> tensor<{part}xf32> {{
  %s = ddp.reduce_scatter mean %g on @dp : tensor<{n}xf32> -> tensor<{part}xf32>
  return %s : tensor<{part}xf32>
}}
"""


def file_of(folder, hook, suffix):
    return folder / f"{list(HOOKS).index(hook)}.{suffix}"


def compile_steps(arguments, folder):
    for hook, options in HOOKS.items():
        source = file_of(folder, hook, "mlir")
        source.write_text(MODULE.format(n=ELEMENTS, part=ELEMENTS // RANKS))
        words = [arguments.build / "bin" / "ddphook-cc", source, "--shared"]
        words += ["-o", file_of(folder, hook, "so"), f"--ddp-pipeline={options}"]
        subprocess.run(words, check=True)


def sent_bytes(interface):
    """What this rank has sent over the link so far."""
    file = pathlib.Path("/sys/class/net", interface, "statistics", "tx_bytes")
    return int(file.read_text())


def run_rank(arguments):
    from c_runtime import Runtime
    from compiled import Compiled

    runtime = Runtime()
    random = np.random.default_rng([1, arguments.rank])
    values = {"g": random.standard_normal(ELEMENTS, np.float32)}
    steps, report, exact = {}, {}, None
    for hook in HOOKS:
        results = {"s": np.full(ELEMENTS // RANKS, np.nan, np.float32)}
        library = file_of(arguments.folder, hook, "so")
        steps[hook] = Compiled(runtime, library, values, results)
        steps[hook].step()
        if exact is None:
            exact = results["s"].copy()
        lost = np.linalg.norm(results["s"] - exact) / np.linalg.norm(exact)
        report[hook] = {"seconds": [], "sent": [], "error": float(lost)}
    for _ in range(arguments.rounds):
        for hook, step in steps.items():
            runtime.barrier()
            before, begin = sent_bytes(arguments.interface), time.perf_counter()
            step.step()
            report[hook]["seconds"].append(time.perf_counter() - begin)
            runtime.barrier()
            sent = sent_bytes(arguments.interface) - before
            report[hook]["sent"].append(sent)
    job.write_report(arguments.folder, arguments.rank, report)
    runtime.barrier()


def summarize(arguments):
    """Medians; a step is over when its slower rank is."""
    reports = job.read_reports(arguments.folder, RANKS)
    rows = {}
    for hook in HOOKS:
        steps = zip(*(report[hook]["seconds"] for report in reports))
        rows[hook] = {
            "seconds": statistics.median(map(max, steps)),
            "sent_bytes": statistics.median(reports[0][hook]["sent"]),
            "error": reports[0][hook]["error"],
        }
    return rows


def print_table(rows):
    print("| hook | time | sent | over bf16 | error |")
    print("|---|---|---|---|---|")
    for hook, row in rows.items():
        ratio = rows["bf16"]["seconds"] / row["seconds"]
        cells = [hook, f"{1e3 * row['seconds']:.1f} ms", f"{row['sent_bytes'] / 1e6:.1f} MB"]
        print("| " + " | ".join([*cells, f"{ratio:.2f}x", f"{row['error']:.1e}"]) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--rate", default="1gbit", help="of the link, for tc")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--local", action="store_true", help="no slow link")
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="run ranks before other programs of this machine (SCHED_RR)",
    )
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--interface", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        run_rank(arguments)
        return
    if os.geteuid() != 0 and not arguments.local:
        parser.error("network namespaces need root")
    if arguments.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    load = os.getloadavg()[0]
    arguments.build = arguments.build.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        arguments.folder = pathlib.Path(scratch)
        compile_steps(arguments, arguments.folder)
        with link.Loopback() if arguments.local else link.Link(arguments.rate) as network:
            words = [HERE / "scatter.py", f"--folder={arguments.folder}"]
            words += [f"--rounds={arguments.rounds}", f"--interface={network.interface}"]
            job.run_ranks(network, arguments.build, range(RANKS), words, arguments.local)
        rows = summarize(arguments)
    print_table(rows)
    if arguments.json:
        summary = {"load_before": load, "steps": rows}
        arguments.json.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
